import { type ContentVersion, contentVersionCompare } from '../backend.ts';
import { UPTAKE_MS_MAX, UPTAKE_SLACK_MS, Uptake } from '../kernel-view/uptake.ts';
import { type Answered, contentsName, type KernelCache, type NamePlace } from '../transport.ts';
import type { AbsentLists } from './absent-lists.ts';
import type { Validity } from './replies.ts';

interface Told {
  readonly contents: ContentVersion;
  readonly untilMs: number;
  /** Thread that was answered; 0 where that is not known, or there were several. */
  readonly caller: number;
  /**
   * The same of other contents, of which another caller was told: of two answers that are under way at a time the kernel throws away the one
   * that was asked for before it took up the other.
   */
  readonly othersUntilMs: number;
}

/** What the kernel was told of names, attributes and contents, and may still believe. */
export class KernelBelief {
  /** Entries that the kernel may be about to take up. */
  readonly uptake: Uptake;
  readonly #nowMs: () => number;
  readonly #cache: KernelCache;
  readonly #drop: (inode: number) => Promise<void>;
  readonly #absent: AbsentLists | null;
  /** Until when it may believe its attributes, and of which contents they are, by inode; what was told last at the end. */
  readonly #told = new Map<number, Told>();
  /** Version of the contents at the last open of each inode that the kernel knows: its pages may be of that. */
  readonly #opened = new Map<number, string>();

  /**
   * @param drop takes attributes back
   * @param absent notes of which inodes the kernel may believe that they have no access control lists; null where nobody asks it
   * @param nowMs a clock in milliseconds that never goes back
   */
  constructor(
    cache: KernelCache,
    drop: (inode: number) => Promise<void>,
    absent: AbsentLists | null,
    nowMs: () => number,
  ) {
    this.uptake = new Uptake(nowMs);
    this.#nowMs = nowMs;
    this.#cache = cache;
    this.#drop = drop;
    this.#absent = absent;
  }

  /**
   * The kernel counts from when it hears. Where this process was stopped before that, what it said is taken back.
   *
   * @param say tells the kernel for how long it may believe them
   * @param caller thread that asked; 0 where that is not known
   * @param place the name that the kernel asked for; absent where it has asked for attributes alone
   */
  tell(stored: Answered, say: (validity: Validity) => void, caller: number, place?: NamePlace): void {
    const beganMs = this.#nowMs();
    const validity = this.#validity(stored, place);
    this.#note(stored, validity.attributesMs, caller);
    this.#noteAbsent(stored, validity);
    if (place !== undefined && validity.attributesMs > 0) this.uptake.told(stored.inode);
    say(validity);
    const isLate = this.#nowMs() - beganMs > UPTAKE_SLACK_MS;
    if (validity.attributesMs > 0 && isLate) void this.#drop(stored.inode);
  }

  /** For how long the kernel may believe an entry of a page of a directory; it is about to be told. */
  listed(stored: Answered, place: NamePlace): Validity {
    const validity = this.#validity(stored, place);
    this.#note(stored, validity.attributesMs, 0);
    this.#noteAbsent(stored, validity);
    return validity;
  }

  /** The kernel takes the outcome of a change for the newest there is, whatever it was told to drop meanwhile. */
  tellChanged(stored: Answered, say: (validity: Validity) => void, caller: number): void {
    const { attributesMs } = this.#cache;
    this.#note(stored, attributesMs, caller);
    say({ attributesMs, nameMs: 0 });
  }

  /**
   * The kernel is about to be told that the file is open. Without asking again it would cut what it reads at the size that
   * it was told with earlier contents.
   */
  async opening(inode: number, version: string | null): Promise<void> {
    const told = this.#told.get(inode);
    if (told === undefined) return;
    const mayDiffer = told.othersUntilMs >= this.#nowMs();
    if (mayDiffer || contentsName(inode, told.contents) !== version) await this.drop(inode);
  }

  /** Resolves when the kernel believes nothing any more of what it was told of the inode's attributes. */
  async drop(inode: number): Promise<void> {
    const told = this.#told.get(inode);
    if (told === undefined || endMs(told) < this.#nowMs()) return;
    await this.#drop(inode);
    // Whoever comes meanwhile waits for the same.
    if (this.#told.get(inode) === told) this.#told.delete(inode);
  }

  /** @returns whether the kernel's pages are of these contents, if it has any */
  opened(inode: number, version: string | null): boolean {
    const isSame = version !== null && this.#opened.get(inode) === version;
    if (version === null) this.#opened.delete(inode);
    else this.#opened.set(inode, version);
    return isSame;
  }

  /** The kernel does not know the inode any more. */
  forget(inode: number): void {
    this.#opened.delete(inode);
    this.#told.delete(inode);
    this.uptake.forget(inode);
  }

  #validity(stored: Answered, place?: NamePlace): Validity {
    const { attributesMs, believedMs, nameBelievedMs } = this.#cache;
    const nameMs =
      place === undefined ? 0 : kept(nameBelievedMs?.(place.parent, place.name, stored.inode) ?? 0);
    return { nameMs, attributesMs: believedMs === undefined ? attributesMs : kept(believedMs(stored)) };
  }

  /** Who has no extended attributes has no access control lists. */
  #noteAbsent({ inode, xattrs }: Answered, { attributesMs }: Validity): void {
    if (xattrs === 0 && attributesMs > 0) this.#absent?.told(inode, attributesMs);
  }

  /** It is about to be told so, and may believe it for so long from when it takes that up. */
  #note({ inode, contents }: Answered, believedMs: number, caller: number): void {
    const nowMs = this.#nowMs();
    for (const [oldest, told] of this.#told) {
      if (endMs(told) >= nowMs) break;
      this.#told.delete(oldest);
    }
    const before = this.#told.get(inode);
    const isSame = before !== undefined && contentVersionCompare(before.contents, contents) === 0;
    const isOwn = caller !== 0 && (before === undefined || before.caller === caller);
    const sinceMs = believedMs > 0 ? nowMs + believedMs + UPTAKE_MS_MAX : 0;
    const beforeMs = before?.untilMs ?? 0;
    const told = {
      ...{ contents, caller: isOwn || !isSame ? caller : 0 },
      untilMs: Math.max(sinceMs, isSame ? beforeMs : 0),
      othersUntilMs: Math.max(before?.othersUntilMs ?? 0, isSame || isOwn ? 0 : beforeMs),
    };
    this.#told.delete(inode);
    if (endMs(told) > nowMs) this.#told.set(inode, told);
  }
}

function endMs({ untilMs, othersUntilMs }: Told): number {
  return Math.max(untilMs, othersUntilMs);
}

/** Whole milliseconds, and a little less: an answer may lie in the kernel for a moment. */
function kept(ms: number): number {
  return Math.max(0, Math.floor(ms - UPTAKE_SLACK_MS));
}
