import { BoundedMap } from '../../base/bounded-map.ts';
import { RecentMap } from '../../base/recent-map.ts';
import { UPTAKE_MS_MAX } from './in-flight.ts';

interface Cached {
  readonly version: string;
  readonly untilMs: number;
  /** The thread that got the answer; 0 if unknown, or several did. */
  readonly caller: number;
  /** Until then the kernel may have cached the size of other contents instead, from an answer to another thread. */
  readonly otherVersionsUntilMs: number;
}

/**
 * The version of the size and the pages that the kernel may have cached. Rule for both transports: before it learns
 * that a file is open, it must drop attributes of other contents (`mayDiffer`), at whose size it would end reads. It
 * keeps pages only of the same contents (`opened`).
 */
export class CachedContents<Key> {
  readonly #nowMs: () => number;
  readonly #requestsBeforeOpen: boolean;
  readonly #cached = new RecentMap<Key, Cached>();
  /** Contents at the last open, to which the kernel's pages may belong. */
  readonly #opened: BoundedMap<Key, string>;

  /** @param requestsBeforeOpen the kernel requests the attributes before each open */
  constructor(nowMs: () => number, requestsBeforeOpen: boolean, openedMax = Number.POSITIVE_INFINITY) {
    this.#nowMs = nowMs;
    this.#requestsBeforeOpen = requestsBeforeOpen;
    this.#opened = new BoundedMap(openedMax);
  }

  /**
   * Records an answer with attributes of this version.
   * @param forMs how long the kernel may cache the answer after taking it up
   * @param caller thread that called; 0 if unknown
   */
  answered(key: Key, version: string, forMs: number, caller: number): void {
    const nowMs = this.#nowMs();
    this.#cached.takeWhile((cached) => endMs(cached) < nowMs);
    const before = this.#cached.get(key);
    const isSame = before?.version === version;
    const isOwn = caller !== 0 && (before === undefined || before.caller === caller);
    // Of two answers in flight, the kernel discards the one that was requested before it took up the other.
    const otherVersionsMs =
      isSame || isOwn ? 0 : this.#requestsBeforeOpen ? nowMs + UPTAKE_MS_MAX : (before?.untilMs ?? 0);
    const cached = {
      ...{ version, caller: isOwn || !isSame ? caller : 0 },
      untilMs: Math.max(forMs > 0 ? nowMs + forMs + UPTAKE_MS_MAX : 0, isSame ? before.untilMs : 0),
      otherVersionsUntilMs: Math.max(before?.otherVersionsUntilMs ?? 0, otherVersionsMs),
    };
    if (endMs(cached) > nowMs) this.#cached.set(key, cached);
    else this.#cached.delete(key);
  }

  /** Whether the kernel may have cached attributes of other contents. */
  mayDiffer(key: Key, version: string | null): boolean {
    const cached = this.#cached.get(key);
    if (cached === undefined || endMs(cached) < this.#nowMs()) return false;
    return cached.otherVersionsUntilMs >= this.#nowMs() || cached.version !== version;
  }

  /** Identifies what the kernel may have cached; undefined if nothing. */
  current(key: Key): object | undefined {
    const cached = this.#cached.get(key);
    return cached === undefined || endMs(cached) < this.#nowMs() ? undefined : cached;
  }

  /** The kernel has dropped attributes. @param dropped as of `current` before that: those of later answers stay */
  dropped(key: Key, dropped: object): void {
    if (this.#cached.get(key) === dropped) this.#cached.delete(key);
  }

  /** Records an open. @param version null if unknown. @returns whether the kernel's pages are of these contents */
  opened(key: Key, version: string | null): boolean {
    const isSame = version !== null && this.#opened.get(key) === version;
    if (version === null) this.#opened.delete(key);
    else this.#opened.set(key, version);
    return isSame;
  }

  forgetPages(key: Key): void {
    this.#opened.delete(key);
  }

  forget(key: Key): void {
    this.#opened.delete(key);
    this.#cached.delete(key);
  }
}

function endMs({ untilMs, otherVersionsUntilMs }: Cached): number {
  return Math.max(untilMs, otherVersionsUntilMs);
}
