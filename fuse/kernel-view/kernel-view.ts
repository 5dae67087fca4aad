import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import { type Answered, contentsName, type KernelCache } from '../answered.ts';
import type { Place } from '../place.ts';
import { AttributeReaders } from './attribute-readers.ts';
import { CachedContents } from './cached-contents.ts';
import { CachedNames } from './cached-names.ts';
import { GrantedNames } from './granted-names.ts';
import { InFlight, UPTAKE_SLACK_MS } from './in-flight.ts';
import type { InodesWithoutAcls } from './inodes-without-acls.ts';
import { RefusedOpens } from './refused-opens.ts';

export interface CacheTimes {
  readonly nameMs: number;
  readonly attributesMs: number;
}

/** What the kernel may have cached over any transport; `InodeView` and `PathView` add the contents. */
export class KernelView {
  readonly names: CachedNames;
  readonly refusedOpens: RefusedOpens;

  constructor(world: World) {
    this.names = new CachedNames(world);
    this.refusedOpens = new RefusedOpens(world);
  }
}

export interface Notices {
  drop(inode: number): Promise<void>;
  expire(place: Place, isWanted: () => boolean): Promise<void>;
}

/** What a kernel that knows inodes may have cached; the transport can have it drop things. */
export class InodeView {
  readonly #nowMs: () => number;
  readonly #cache: KernelCache;
  readonly #notices: Notices;
  readonly #withoutAcls: InodesWithoutAcls | null;
  readonly #contents: CachedContents<number>;
  readonly #inFlight: InFlight;
  readonly #attributeReaders: AttributeReaders;
  /** Null if names are valid for their time only. */
  readonly #granted: GrantedNames | null;
  #canExpire = true;
  readonly #pageEntries: { readonly inode: number; readonly place: Place; readonly times: CacheTimes }[] = [];
  /** Entries accepted by the kernel and not returned; it knows an inode until it returns the last (`nlookup`). */
  readonly #lookups = new Map<number, number>();

  /** @param withoutAcls inodes without access control lists; null if the kernel never requests them */
  constructor(cache: KernelCache, notices: Notices, withoutAcls: InodesWithoutAcls | null, world: World) {
    const nowMs = (): number => world.nowMs();
    this.#nowMs = nowMs;
    this.#cache = cache;
    this.#notices = notices;
    const { isGranted } = cache;
    this.#granted =
      isGranted === null
        ? null
        : new GrantedNames({ world, isGranted, expire: (...which) => notices.expire(...which) });
    this.#withoutAcls = withoutAcls;
    this.#contents = new CachedContents(nowMs, false);
    this.#inFlight = new InFlight(nowMs);
    this.#attributeReaders = new AttributeReaders(nowMs);
  }

  /** The kernel cannot expire names: none are cached under grants. */
  cannotExpire(): void {
    this.#canExpire = false;
  }

  get cachesNames(): boolean {
    return this.#cache.nameValidMs !== null && (this.#granted === null || this.#canExpire);
  }

  /**
   * Sends an answer, and records what the kernel may cache of it. The kernel counts from when it takes up the answer:
   * if this process was stopped before, notices have it drop that again.
   * @param put sends the answer with its times. @returns whether the kernel has accepted it
   * @param place the name that was looked up or created; null: created unlinked; absent: only attributes were requested
   */
  answer(
    attributes: Answered,
    put: (times: CacheTimes) => boolean,
    caller: number,
    place?: Place | null,
    isLookup = true,
  ): void {
    const { inode } = attributes;
    const beganMs = this.#nowMs();
    const times = this.#times(attributes, place, isLookup);
    const isEntry = place !== undefined;
    this.#recordAnswer(attributes, times, caller, isEntry);
    if (put(times) && isEntry) this.#countEntry(inode);
    const isLate = this.#nowMs() - beganMs > UPTAKE_SLACK_MS;
    if (times.attributesMs > 0 && isLate) void this.#notices.drop(inode);
    if (times.nameMs > 0 && isLate && place != null) void this.#granted?.answeredLate(place);
  }

  /** As `answer`, for a page of a directory. @param put sends it, and calls `listed` for entries with attributes */
  page(put: () => boolean): void {
    const beganMs = this.#nowMs();
    this.#pageEntries.length = 0;
    if (put()) for (const { inode } of this.#pageEntries) this.#countEntry(inode);
    if (this.#nowMs() - beganMs <= UPTAKE_SLACK_MS) return;
    for (const { inode, place, times } of this.#pageEntries) {
      if (times.attributesMs > 0) void this.#notices.drop(inode);
      if (times.nameMs > 0) void this.#granted?.answeredLate(place);
    }
  }

  /** Records an entry of the page that is being sent. @returns how long the kernel may cache it */
  listed(attributes: Answered, place: Place): CacheTimes {
    const times = this.#times(attributes, place, false);
    this.#recordAnswer(attributes, times, 0, true);
    this.#pageEntries.push({ inode: attributes.inode, place, times });
    return times;
  }

  async renaming(from: Place, to: Place, isExchange: boolean): Promise<void> {
    await this.#granted?.renaming(from, to, isExchange);
  }

  async recalled(inodes: readonly number[]): Promise<void> {
    await this.#granted?.recalled(inodes);
  }

  /** As `answer`, after a change of attributes: the kernel takes these as the newest, even after a later notice. */
  answerChange(attributes: Answered, put: (times: CacheTimes) => void, caller: number): void {
    const { attributesMs } = this.#cache;
    this.#recordContents(attributes, attributesMs, caller);
    put({ attributesMs, nameMs: 0 });
  }

  /** Called before an open is answered: drops attributes in the kernel that may be of other contents. */
  async opening(inode: number, version: string | null): Promise<void> {
    if (this.#contents.mayDiffer(inode, version)) await this.dropAttributes(inode);
  }

  /** Resolves when the kernel has dropped the attributes that it may have cached. */
  async dropAttributes(inode: number): Promise<void> {
    const cached = this.#contents.current(inode);
    if (cached === undefined) return;
    await this.#notices.drop(inode);
    // Only now, so that concurrent callers wait for the same notice.
    this.#contents.dropped(inode, cached);
  }

  /**
   * Called before a change of a name is answered, when the kernel drops the directory's attributes. Resolves when it
   * can take up no older answer to another thread. With `ttl` one may be as old as its validity.
   */
  async changedName(directory: number, thread: number): Promise<void> {
    if (this.#granted !== null && this.#attributeReaders.hasOther(directory, thread))
      await this.dropAttributes(directory);
  }

  opened(inode: number, version: string | null): boolean {
    return this.#contents.opened(inode, version);
  }

  /** Whether the kernel may still take up an answer about the inode, although it does not know it yet. */
  isInFlight(inode: number): boolean {
    return this.#inFlight.has(inode);
  }

  /** The kernel drops `lookups` entries (FORGET). An entry that was sent meanwhile keeps the inode known. */
  forget(inode: number, lookups: number): void {
    const remaining = (this.#lookups.get(inode) ?? 0) - lookups;
    if (remaining > 0) {
      this.#lookups.set(inode, remaining);
      return;
    }
    this.#lookups.delete(inode);
    this.#contents.forget(inode);
    this.#inFlight.forget(inode);
  }

  /** The kernel counts each entry with a node: of look-ups, creations and listings, except `.` and `..` of listings. */
  #countEntry(inode: number): void {
    this.#lookups.set(inode, (this.#lookups.get(inode) ?? 0) + 1);
  }

  #times(attributes: Answered, place: Place | null | undefined, isLookup: boolean): CacheTimes {
    const attributesMs = wholeMsLeft(this.#cache.validMs(attributes));
    return { nameMs: place == null ? 0 : this.#nameMs(attributes, place, isLookup), attributesMs };
  }

  #nameMs({ inode }: Answered, place: Place, isLookup: boolean): number {
    const { nameValidMs } = this.#cache;
    if (nameValidMs === null || !this.cachesNames) return 0;
    const leftMs = nameValidMs(place.parent, place.name, inode);
    return this.#granted === null ? wholeMsLeft(leftMs) : this.#granted.answered(place, leftMs, isLookup);
  }

  #recordContents({ inode, contents }: Answered, forMs: number, caller: number): void {
    this.#contents.answered(inode, contentsName(inode, contents), forMs, caller);
  }

  /** Records what an answer lets the kernel cache. @param isEntry the kernel may not know the inode yet */
  #recordAnswer(attributes: Answered, { attributesMs }: CacheTimes, caller: number, isEntry: boolean): void {
    const { inode, kind, xattrs } = attributes;
    this.#recordContents(attributes, attributesMs, caller);
    if (attributesMs === 0) return;
    // Without extended attributes there are no access control lists.
    if (xattrs === 0) this.#withoutAcls?.add(inode, attributesMs);
    if (isEntry) this.#inFlight.answered(inode);
    if (kind === 'directory' && this.#granted !== null) this.#attributeReaders.answered(inode, caller);
  }
}

/** Subtracts the time that an answer may wait in the kernel, and rounds down to whole milliseconds. */
function wholeMsLeft(ms: number): number {
  return Math.max(0, Math.floor(ms - UPTAKE_SLACK_MS));
}

const OPENED_MAX = 50_000;

/**
 * What a kernel that knows paths may have cached; the transport cannot have it drop anything. It looks up each path
 * before an open, so the open can be refused to make it look up again.
 */
export class PathView {
  readonly #world: World;
  readonly #cachedMs: number;
  readonly #contents: CachedContents<string>;
  /** By thread: the path to look up again, and until when its next open may be the repetition. */
  readonly #refused = new RecentMap<number, { readonly path: string; readonly untilMs: number }>();

  /** @param cachedMs how long the kernel caches attributes */
  constructor(world: World, cachedMs: number) {
    this.#world = world;
    this.#cachedMs = cachedMs;
    this.#contents = new CachedContents(() => world.nowMs(), true, OPENED_MAX);
  }

  answered(path: string, { inode, kind, contents }: Answered, caller: number): void {
    if (kind !== 'file' || this.#cachedMs === 0) return;
    this.#contents.answered(path, contentsName(inode, contents), this.#cachedMs, caller);
  }

  /**
   * Called before an open is answered: refuses it if the kernel may have attributes of other contents. The thread then
   * looks the path up and opens it again; contents that have changed even since then are opened.
   * @param caller thread that opens it; 0 for all those of other containers, which have no number here
   * @returns whether it has to look the path up again
   */
  refuses(path: string, version: string, caller: number): boolean {
    const nowMs = this.#world.nowMs();
    const refused = this.#refused.get(caller);
    if (caller !== 0) this.#refused.delete(caller);
    if (!this.#contents.mayDiffer(path, version)) return false;
    if (refused?.path === path && refused.untilMs >= nowMs) return false;
    this.#refused.takeWhile(({ untilMs }) => untilMs < nowMs);
    this.#refused.set(caller, { path, untilMs: nowMs + this.#cachedMs });
    return true;
  }

  opened(path: string, version: string | null): boolean {
    return this.#contents.opened(path, version);
  }

  /** The path refers to another inode now, or to none. */
  forgetPages(path: string): void {
    this.#contents.forgetPages(path);
  }
}
