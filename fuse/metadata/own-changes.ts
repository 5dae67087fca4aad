import type { Answered } from '../answered.ts';
import type { Attributes, FileSystemBackend, RenameMode } from '../backend.ts';
import type { Place } from '../place.ts';
import type { MetadataCache } from './cache.ts';

type Result<Call extends 'unlink' | 'removeDirectory' | 'rename' | 'createFile'> = Awaited<
  ReturnType<FileSystemBackend[Call]>
>;

export interface RenameKind {
  readonly mode: RenameMode;
  /** A whiteout takes the old name: the outcome for the names is not cached. */
  readonly whitens: boolean;
}

/**
 * Changes of names by this mount. Answers requested before a change are not cached after it; the cache gets its
 * outcome, or nothing if that is unknown.
 */
export class OwnChanges {
  readonly #cache: MetadataCache;

  constructor(cache: MetadataCache) {
    this.#cache = cache;
  }

  /** Creates a file, or finds it. The kernel's next requests about a new one are answered from the cache. */
  async create(
    place: Place,
    create: () => Promise<Result<'createFile'>>,
  ): Promise<{ readonly attributes: Answered; readonly created: boolean }> {
    const { parent, name } = place;
    const cache = this.#cache;
    const since = cache.request();
    let result: Result<'createFile'>;
    try {
      result = await create();
    } catch (error) {
      cache.forgetEntry(parent, name);
      throw error;
    }
    const { attributes, created } = result;
    if (!created) {
      cache.forgetEntry(parent, name);
      return { attributes, created };
    }
    // An uncommitted file has not changed the times of its directory yet.
    if (result.uncommitted === true) cache.changingName(parent, name);
    else cache.nameAdded(parent, name, attributes, since);
    return {
      attributes: cache.learnEntry(parent, name, attributes, cache.request(), { prefetched: true }),
      created,
    };
  }

  async link(inode: number, place: Place, link: () => Promise<Attributes>): Promise<Answered> {
    const begunAt = this.#cache.attributes.changing(inode);
    const attributes = await this.#change([place], link, (now, since) => {
      // The times of a live file come from its primary, and are not those of the directory.
      if (now.live) return false;
      this.#cache.nameAdded(place.parent, place.name, now, since);
      return true;
    });
    return this.#cache.attributes.changed(attributes, begunAt);
  }

  unlink(place: Place, unlink: () => Promise<Result<'unlink'>>): Promise<Result<'unlink'>> {
    return this.#change([place], unlink, ({ inode, atNs = null, isPending }) => {
      this.#cache.removed(place.parent, place.name, inode, atNs, isPending);
      return true;
    });
  }

  /** @param remove gets the inode that last had the name, if known. @returns it, with its last known attributes */
  async removeDirectory(
    place: Place,
    remove: (inode: number | undefined) => Promise<Result<'removeDirectory'>>,
  ): Promise<{ readonly inode: number | undefined; readonly last: Attributes | undefined }> {
    const { parent, name } = place;
    const cache = this.#cache;
    const inode = cache.inodeOf(parent, name);
    const last = inode === undefined ? undefined : cache.attributes.lastOf(inode);
    await this.#change(
      [place],
      () => remove(inode),
      ({ atNs }, since) => {
        if (atNs === undefined || inode === undefined) return false;
        cache.removedDirectory(parent, name, inode, atNs, since);
        return true;
      },
    );
    if (inode !== undefined) cache.attributes.drop(inode);
    return { inode, last };
  }

  async rename(
    from: Place,
    to: Place,
    { mode, whitens }: RenameKind,
    rename: () => Promise<Result<'rename'>>,
    isOpen: (inode: number) => boolean,
  ): Promise<{ readonly replaced: number | null; readonly last: Attributes | undefined }> {
    const cache = this.#cache;
    const [moved, target] = [from, to].map(({ parent, name }) => cache.inodeOf(parent, name));
    const kind = moved === undefined ? undefined : cache.attributes.lastOf(moved)?.kind;
    const targetLast = target === undefined ? undefined : cache.attributes.lastOf(target);
    // Both directories count a directory that moves.
    const isCounted = kind === undefined || kind === 'directory' || mode === 'exchange';
    let isKnown = false;
    const { replaced } = await this.#change([from, to], rename, ({ atNs }, since) => {
      if (moved === undefined || atNs === undefined || isCounted || whitens) return false;
      cache.renamed(from, to, moved, atNs, since);
      isKnown = true;
      return true;
    });
    // A rename changes ctime.
    for (const inode of mode === 'exchange' ? [moved, target] : [moved]) {
      if (inode === undefined) cache.voidPendingAnswers();
      else if (!isKnown || isOpen(inode)) cache.attributes.drop(inode);
    }
    cache.kernel.names.moved(from, to, mode === 'exchange');
    if (replaced === null) return { replaced, last: undefined };
    const last = replaced === target ? targetLast : cache.attributes.lastOf(replaced);
    cache.attributes.drop(replaced);
    return { replaced, last };
  }

  /** Changes names; drops the cached ones if that fails or `learn` returns false. @param learn caches the outcome */
  async #change<Outcome>(
    places: readonly Place[],
    change: () => Promise<Outcome>,
    learn: (outcome: Outcome, since: number) => boolean,
  ): Promise<Outcome> {
    const cache = this.#cache;
    const inodes = places.map(({ parent, name }) => cache.inodeOf(parent, name));
    for (const { parent, name } of places) cache.changingName(parent, name);
    const since = cache.request();
    let isKnown = false;
    try {
      const outcome = await change();
      isKnown = learn(outcome, since);
      return outcome;
    } catch (error) {
      // The outcome may be unknown: a change of a name also changes the inode that it names.
      for (const inode of inodes) if (inode !== undefined) cache.attributes.drop(inode);
      throw error;
    } finally {
      if (!isKnown) for (const { parent, name } of places) cache.forgetEntry(parent, name);
    }
  }
}
