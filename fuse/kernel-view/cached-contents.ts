import { BoundedMap } from '../../base/bounded-map.ts';
import { RecentMap } from '../../base/recent-map.ts';
import { UPTAKE_MS_MAX } from './in-flight.ts';

interface Cached {
  /** Names the contents. */
  readonly version: string;
  readonly untilMs: number;
  /** Thread that was answered; 0 where that is unknown, or there were several. */
  readonly caller: number;
  /** Until then the kernel may have cached the size of other contents instead, which another thread was answered. */
  readonly othersUntilMs: number;
}

/**
 * Of which contents the size and the pages are that the kernel may have cached, by inode or by path. The rule for both
 * transports: before the kernel learns that a file is open, it drops attributes of other contents (`mayDiffer`); it would end
 * reads of the opened contents at their size. Pages are kept only of the same contents (`opened`).
 */
export class CachedContents<Key> {
  readonly #nowMs: () => number;
  readonly #looksUp: boolean;
  readonly #cached = new RecentMap<Key, Cached>();
  /** Contents at the last open: the kernel's pages may be of these. */
  readonly #opened: BoundedMap<Key, string>;

  /**
   * @param nowMs a clock in milliseconds that never goes back
   * @param looksUp the kernel asks for the attributes anew before each open
   * @param openedMax keys whose last open is remembered
   */
  constructor(nowMs: () => number, looksUp: boolean, openedMax = Number.POSITIVE_INFINITY) {
    this.#nowMs = nowMs;
    this.#looksUp = looksUp;
    this.#opened = new BoundedMap(openedMax);
  }

  /**
   * The kernel is about to be answered attributes of these contents.
   *
   * @param forMs how long it may cache them after it has taken up the answer
   * @param caller thread that asked; 0 where that is unknown
   */
  answered(key: Key, version: string, forMs: number, caller: number): void {
    const nowMs = this.#nowMs();
    this.#cached.takeWhile((cached) => endMs(cached) < nowMs);
    const before = this.#cached.get(key);
    const isSame = before?.version === version;
    const isOwn = caller !== 0 && (before === undefined || before.caller === caller);
    // Of two answers in flight the kernel discards the one that was requested before it took up the other.
    const othersMs = isSame || isOwn ? 0 : this.#looksUp ? nowMs + UPTAKE_MS_MAX : (before?.untilMs ?? 0);
    const cached = {
      ...{ version, caller: isOwn || !isSame ? caller : 0 },
      untilMs: Math.max(forMs > 0 ? nowMs + forMs + UPTAKE_MS_MAX : 0, isSame ? before.untilMs : 0),
      othersUntilMs: Math.max(before?.othersUntilMs ?? 0, othersMs),
    };
    if (endMs(cached) > nowMs) this.#cached.set(key, cached);
    else this.#cached.delete(key);
  }

  /** Whether the kernel may have cached attributes of other contents than these. */
  mayDiffer(key: Key, version: string | null): boolean {
    const cached = this.#cached.get(key);
    if (cached === undefined || endMs(cached) < this.#nowMs()) return false;
    return cached.othersUntilMs >= this.#nowMs() || cached.version !== version;
  }

  /** @returns names what the kernel may have cached; undefined where that is nothing */
  current(key: Key): object | undefined {
    const cached = this.#cached.get(key);
    return cached === undefined || endMs(cached) < this.#nowMs() ? undefined : cached;
  }

  /** The kernel has dropped attributes. @param dropped as `current` named them before; those of later answers stay */
  dropped(key: Key, dropped: object): void {
    if (this.#cached.get(key) === dropped) this.#cached.delete(key);
  }

  /** @param version null where it is unknown. @returns whether the kernel's pages are of these contents, if it has any */
  opened(key: Key, version: string | null): boolean {
    const isSame = version !== null && this.#opened.get(key) === version;
    if (version === null) this.#opened.delete(key);
    else this.#opened.set(key, version);
    return isSame;
  }

  /** No pages are kept at the next open. */
  forgetPages(key: Key): void {
    this.#opened.delete(key);
  }

  /** The kernel has freed it. */
  forget(key: Key): void {
    this.#opened.delete(key);
    this.#cached.delete(key);
  }
}

function endMs({ untilMs, othersUntilMs }: Cached): number {
  return Math.max(untilMs, othersUntilMs);
}
