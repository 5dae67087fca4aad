import type { World } from '../../base/world.ts';
import { type Answered, contentsName, type KernelCache } from '../answered.ts';
import type { Place } from '../place.ts';
import type { AbsentLists } from './absent-lists.ts';
import { CachedContents } from './cached-contents.ts';
import { CachedNames } from './cached-names.ts';
import { InFlight, UPTAKE_SLACK_MS } from './in-flight.ts';
import { RefusedOpens } from './refused-opens.ts';

/** How long the kernel may cache an answer, in whole milliseconds. */
export interface CacheTimes {
  readonly nameMs: number;
  readonly attributesMs: number;
}

/**
 * What the kernel may have cached of a mount: names by which it may open inodes, opens that it repeats, and, as the transport has
 * it, contents by inode or by path.
 */
export class KernelView {
  readonly names: CachedNames;
  readonly refusedOpens: RefusedOpens;
  readonly #nowMs: () => number;

  constructor(world: World) {
    this.#nowMs = () => world.nowMs();
    this.names = new CachedNames(world);
    this.refusedOpens = new RefusedOpens(world);
  }

  /** @see InodeView */
  byInode(cache: KernelCache, drop: (inode: number) => Promise<void>, absent: AbsentLists | null): InodeView {
    return new InodeView(cache, drop, absent, this.#nowMs);
  }

  /** @see PathView */
  byPath(cachedMs: number): PathView {
    return new PathView(this.#nowMs, cachedMs);
  }
}

/** What a kernel that knows inodes may have cached, over a transport that has it drop things. */
export class InodeView {
  readonly #nowMs: () => number;
  readonly #cache: KernelCache;
  readonly #drop: (inode: number) => Promise<void>;
  readonly #absent: AbsentLists | null;
  readonly #contents: CachedContents<number>;
  readonly #inFlight: InFlight;

  /**
   * @param drop has the kernel drop the attributes of an inode
   * @param absent inodes without access control lists, as the kernel may have cached them; null where it is never asked
   * @param nowMs a clock in milliseconds that never goes back
   */
  constructor(
    cache: KernelCache,
    drop: (inode: number) => Promise<void>,
    absent: AbsentLists | null,
    nowMs: () => number,
  ) {
    this.#nowMs = nowMs;
    this.#cache = cache;
    this.#drop = drop;
    this.#absent = absent;
    this.#contents = new CachedContents(nowMs, false);
    this.#inFlight = new InFlight(nowMs);
  }

  /**
   * The kernel counts from when it takes up the answer. Where this process was stopped before that, the answer is dropped.
   *
   * @param put sends the answer with its times
   * @param caller thread that asked; 0 where that is unknown
   * @param place the name that was looked up; absent where the kernel asked for attributes alone
   */
  answer(attributes: Answered, put: (times: CacheTimes) => void, caller: number, place?: Place): void {
    const { inode } = attributes;
    const beganMs = this.#nowMs();
    const times = this.#times(attributes, place);
    this.#note(attributes, times.attributesMs, caller);
    this.#noteAbsent(attributes, times);
    if (place !== undefined && times.attributesMs > 0) this.#inFlight.answered(inode);
    put(times);
    const isLate = this.#nowMs() - beganMs > UPTAKE_SLACK_MS;
    if (times.attributesMs > 0 && isLate) void this.#drop(inode);
  }

  /** @returns how long the kernel may cache an entry of a page of a directory that it is about to be answered */
  listed(attributes: Answered, place: Place): CacheTimes {
    const times = this.#times(attributes, place);
    this.#note(attributes, times.attributesMs, 0);
    this.#noteAbsent(attributes, times);
    return times;
  }

  /** The kernel takes the outcome of a change for the newest, whatever it was made to drop meanwhile. */
  answerChange(attributes: Answered, put: (times: CacheTimes) => void, caller: number): void {
    const { attributesMs } = this.#cache;
    this.#note(attributes, attributesMs, caller);
    put({ attributesMs, nameMs: 0 });
  }

  /** The kernel is about to learn that the file is open. @see CachedContents */
  async opening(inode: number, version: string | null): Promise<void> {
    if (this.#contents.mayDiffer(inode, version)) await this.dropAttributes(inode);
  }

  /** Resolves when the kernel has dropped the inode's attributes. */
  async dropAttributes(inode: number): Promise<void> {
    const cached = this.#contents.current(inode);
    if (cached === undefined) return;
    await this.#drop(inode);
    // Who comes meanwhile waits for the same.
    this.#contents.dropped(inode, cached);
  }

  /** @see CachedContents.opened */
  opened(inode: number, version: string | null): boolean {
    return this.#contents.opened(inode, version);
  }

  /** Whether the kernel may take up an answer about the inode, although it does not know it yet. */
  isInFlight(inode: number): boolean {
    return this.#inFlight.has(inode);
  }

  /** The kernel has freed the inode. */
  forget(inode: number): void {
    this.#contents.forget(inode);
    this.#inFlight.forget(inode);
  }

  #times(attributes: Answered, place?: Place): CacheTimes {
    const { validMs, nameValidMs } = this.#cache;
    const isNamed = place !== undefined && nameValidMs !== null;
    return {
      nameMs: isNamed ? whole(nameValidMs(place.parent, place.name, attributes.inode)) : 0,
      attributesMs: whole(validMs(attributes)),
    };
  }

  #note({ inode, contents }: Answered, forMs: number, caller: number): void {
    this.#contents.answered(inode, contentsName(inode, contents), forMs, caller);
  }

  /** What has no extended attributes has no access control lists. */
  #noteAbsent({ inode, xattrs }: Answered, { attributesMs }: CacheTimes): void {
    if (xattrs === 0 && attributesMs > 0) this.#absent?.told(inode, attributesMs);
  }
}

/** Whole milliseconds, and a little less: an answer may lie in the kernel for a moment. */
function whole(ms: number): number {
  return Math.max(0, Math.floor(ms - UPTAKE_SLACK_MS));
}

/** Paths whose last open is remembered. */
const OPENED_MAX = 50_000;

/**
 * What a kernel that knows paths may have cached, over a transport that cannot have it drop anything. It looks up each path
 * before it opens it, so that an open can be refused until it has.
 */
export class PathView {
  readonly #nowMs: () => number;
  readonly #cachedMs: number;
  readonly #contents: CachedContents<string>;
  /** Which path each thread has to look up once more, and until when its next open can be the repetition. */
  readonly #refused = new Map<number, { readonly path: string; readonly untilMs: number }>();

  /** @param cachedMs how long the kernel caches attributes */
  constructor(nowMs: () => number, cachedMs: number) {
    this.#nowMs = nowMs;
    this.#cachedMs = cachedMs;
    this.#contents = new CachedContents(nowMs, true, OPENED_MAX);
  }

  /** The kernel is about to be answered. @param caller thread that asked; 0 where that is unknown */
  answered(path: string, { inode, kind, contents }: Answered, caller: number): void {
    if (kind !== 'file' || this.#cachedMs === 0) return;
    this.#contents.answered(path, contentsName(inode, contents), this.#cachedMs, caller);
  }

  /**
   * Asked before the kernel learns that the path is open (@see CachedContents). A thread that is refused looks the path up and
   * opens it again: what differs then was changed meanwhile, and is opened as it was before that.
   *
   * @param version names the contents that are opened
   * @param caller thread that opens it; 0 for all those of other containers, which have no number here
   * @returns whether it has to look the path up once more
   */
  refuses(path: string, version: string, caller: number): boolean {
    const nowMs = this.#nowMs();
    const refused = this.#refused.get(caller);
    if (caller !== 0) this.#refused.delete(caller);
    if (!this.#contents.mayDiffer(path, version)) return false;
    if (refused?.path === path && refused.untilMs >= nowMs) return false;
    for (const [oldest, { untilMs }] of this.#refused) {
      if (untilMs >= nowMs) break;
      this.#refused.delete(oldest);
    }
    this.#refused.delete(caller);
    this.#refused.set(caller, { path, untilMs: nowMs + this.#cachedMs });
    return true;
  }

  /** @see CachedContents.opened */
  opened(path: string, version: string | null): boolean {
    return this.#contents.opened(path, version);
  }

  /** The path has another inode, or none. */
  forgetPages(path: string): void {
    this.#contents.forgetPages(path);
  }
}
