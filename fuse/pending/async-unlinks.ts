import { contentVersionCompare } from '../../wire/content-version.ts';
import type { ContentVersion, FencedName, FileSystemBackend } from '../backend.ts';
import type { Place } from '../place.ts';
import type { DirectoryOps, DirectoryParts } from './directory-ops.ts';

/** So many unlinks of a streak are executed at the cluster before others become pending. */
const SHOWN_COUNT = 2;
/** From this length on the directory's delegation is requested, which costs as much as two unlinks. */
const REMOVED_COUNT = 8;
const STICKY = 0o1000;

export class AsyncUnlinks {
  readonly #parts: DirectoryParts;
  readonly #ops: DirectoryOps;

  constructor(parts: DirectoryParts, ops: DirectoryOps) {
    this.#parts = parts;
    this.#ops = ops;
  }

  /** Removes a name, ahead of the cluster if only a failure of this mount could show the difference. */
  async unlink(
    place: Place,
    uid: number | undefined,
    isOpen: (inode: number) => boolean,
  ): ReturnType<FileSystemBackend['unlink']> {
    this.#ops.streaks.began(place.parent);
    try {
      return await this.#unlink(place, uid, isOpen);
    } catch (error) {
      this.#ops.streaks.end(place.parent);
      throw error;
    }
  }

  /** Makes the unlink pending if `#removable` allows it, else has the cluster execute it. Both count in the streak. */
  async #unlink(
    place: Place,
    uid: number | undefined,
    isOpen: (inode: number) => boolean,
  ): ReturnType<FileSystemBackend['unlink']> {
    const { parent, name } = place;
    await this.#ops.requests.requestEnded(parent);
    await this.#ops.flushName(place);
    await this.#ops.unlinks.waitForBudget();
    const removable = this.#removable(place, isOpen);
    if (removable !== null) {
      this.#parts.delegation.markUsed();
      this.#ops.streaks.removed(parent);
      this.#ops.changed(place, 'free');
      const atNs = this.#ops.unlinks.add(removable, uid);
      return { inode: removable.inode, links: 0, atNs, isPending: true };
    }
    const unlinked = await this.#ops.changing(
      [place],
      () => this.#parts.backend.unlink(parent, name, uid),
      () => ['free'],
    );
    if (unlinked.atNs !== undefined) this.#ops.unlinks.observeServerTime(unlinked.atNs);
    this.#removedAtCluster(parent);
    return unlinked;
  }

  /** The name with its fence, if its unlink may become pending; else null. */
  #removable(place: Place, isOpen: (inode: number) => boolean): FencedName | null {
    const { delegations } = this.#parts.cache;
    const directory = delegations.of(place.parent);
    if (directory === undefined || this.#ops.unlinks.isSlow) return null;
    const named = delegations.stateOf(place);
    if (typeof named === 'string' || named.kind !== 'file' || !delegations.hasOneName(named)) return null;
    const { inode } = named;
    if (isOpen(inode)) return null;
    const { mode, flags } = directory.attributes;
    const isPlain = (mode & STICKY) === 0 && flags === undefined;
    if (!isPlain || this.#ops.streaks.lengthOf(place.parent) < SHOWN_COUNT) return null;
    const contents = this.#ops.contents.of(inode);
    const fence = this.#parts.delegation.fenceOf(place.parent);
    if (contents === undefined || fence === null || this.#hasChanged(inode, contents)) return null;
    const { parent, name } = place;
    return { parent, name, inode, contents, fence };
  }

  /** Whether newer attributes show that the cluster would refuse the unlink, because of flags or other contents. */
  #hasChanged(inode: number, contents: ContentVersion): boolean {
    const last = this.#parts.cache.attributes.lastOf(inode);
    if (last === undefined) return false;
    return last.flags !== undefined || contentVersionCompare(last.contents, contents) > 0;
  }

  /** Counts an unlink in the streak. During a streak, gets what asynchronous unlinks need: names, or a delegation. */
  #removedAtCluster(parent: number): void {
    const count = this.#ops.streaks.removed(parent);
    if (count < SHOWN_COUNT) return;
    this.#parts.delegation.markUsed();
    const directory = this.#parts.cache.delegations.of(parent);
    if (directory !== undefined) void this.#ops.requests.learnMore(directory);
    else if (count >= REMOVED_COUNT) void this.#ops.requests.send(parent);
  }
}
