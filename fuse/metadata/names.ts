import type { World } from '../../base/world.ts';
import type { Answered } from '../answered.ts';
import type { FileSystemBackend, ListedPage } from '../backend.ts';
import { ErrnoError, isNotFound } from '../errno.ts';
import type { ListedName } from './delegated-directories.ts';
import type { Inodes } from './inodes.ts';
import { LookAhead } from './look-ahead.ts';

/** Look-ups that are further apart are not one walk, if listings are cached until a recall. */
const CACHED_WINDOW_MS = 1_000;

type NamesBackend = Pick<FileSystemBackend, 'lookup' | 'list' | 'caches' | 'isCached' | 'granted'>;

/** Look-ups and listings: from caches or the cluster, one by one or a page at a time. */
export class Names {
  readonly #backend: NamesBackend;
  readonly #inodes: Inodes;
  readonly #lookAhead: LookAhead;

  constructor(world: World, backend: NamesBackend, inodes: Inodes) {
    this.#backend = backend;
    this.#inodes = inodes;
    const windowMs = backend.caches ? CACHED_WINDOW_MS : inodes.cache.ttlMs;
    this.#lookAhead = new LookAhead(
      world,
      async (parent, after, countMax) => {
        const { entries, more } = await this.#requestPage(parent, after, countMax);
        return { count: entries.length, more };
      },
      windowMs,
    );
  }

  /** Looks a name up, here unless the cluster must answer. @param thread of the calling program; 0 if unknown */
  async lookup(parent: number, name: string, thread: number): Promise<Answered> {
    const { cache } = this.#inodes;
    const { names, refusedOpens } = cache.kernel;
    const place = { parent, name };
    const isRepetition = refusedOpens.repeatsLookup(thread, place);
    // A look-up of a cached name: the program creates it or needs a current answer, or the kernel lacked memory.
    const isForced = names.isCached(place) && !cache.isCertain(place);
    const mustRequest = isRepetition || isForced;
    try {
      const found = await (mustRequest ? this.#requestName(parent, name) : this.#find(parent, name));
      if (isRepetition) refusedOpens.lookupAnswered(thread, place, found);
      return await this.#inodes.present(found);
    } catch (error) {
      if (isRepetition) refusedOpens.lookupAnswered(thread, place, null);
      throw error;
    }
  }

  /** Finds a name for an open, by a look-up of the last 50 ms or the cluster. @throws ErrnoError `ESTALE` if missing */
  async lookupToOpen(parent: number, name: string): Promise<Answered> {
    const { cache } = this.#inodes;
    try {
      const found = cache.lookedUpAt(parent, name) ?? (await this.#requestName(parent, name));
      return await this.#inodes.present(found);
    } catch (error) {
      if (!isNotFound(error)) throw error;
      const place = { parent, name };
      cache.dropStaleName(place, cache.inodeOf(parent, name) ?? 0);
      throw new ErrnoError('ESTALE', `There is no "${name}" any more`);
    }
  }

  async list(
    parent: number,
    after: string,
    countMax: number,
  ): Promise<{ readonly entries: readonly ListedName[]; readonly more: boolean }> {
    const known = after === '' ? this.#inodes.cache.delegations.listing(parent, countMax) : null;
    if (known !== null) return { entries: known, more: false };
    const { entries, more } = await this.#requestPage(parent, after, countMax);
    return {
      entries: entries.map(({ name, attributes: { inode, kind } }) => ({ name, inode, kind })),
      more,
    };
  }

  async #requestPage(parent: number, after: string, countMax: number): Promise<ListedPage> {
    const { cache } = this.#inodes;
    const requestedAt = cache.request();
    const listedAt = cache.delegations.request();
    const page = await this.#backend.list(parent, after, countMax);
    cache.learnPage(parent, page, requestedAt);
    if (after === '' && !page.more) cache.delegations.learnAll(parent, page, listedAt);
    return page;
  }

  async #find(parent: number, name: string): Promise<Answered> {
    const known = this.#known(parent, name);
    if (known !== undefined) return known;
    if (await this.#lookAhead.prefetch(parent, name)) {
      const reached = this.#known(parent, name);
      if (reached !== undefined) return reached;
    }
    const attributes = await this.#requestName(parent, name);
    this.#lookAhead.found(parent, name);
    return attributes;
  }

  async #requestName(parent: number, name: string): Promise<Answered> {
    const { cache } = this.#inodes;
    const requestedAt = cache.request();
    return cache.learnEntry(parent, name, await this.#backend.lookup(parent, name), requestedAt);
  }

  #known(parent: number, name: string): Answered | Promise<Answered> | undefined {
    const attributes = this.#inodes.cache.entry(parent, name) ?? this.#granted(parent, name);
    if (attributes === undefined && !this.#backend.isCached(parent, name)) return undefined;
    this.#lookAhead.used(parent);
    return attributes ?? this.#requestName(parent, name);
  }

  /** From the client library's grants, which are current: no request is sent. */
  #granted(parent: number, name: string): Answered | undefined {
    const attributes = this.#backend.granted(parent, name);
    const { cache } = this.#inodes;
    return attributes && cache.learnEntry(parent, name, attributes, cache.request());
  }
}
