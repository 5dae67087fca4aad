import type { World } from '../../base/world.ts';
import { placeKey } from '../place.ts';
import type { NamePlace } from '../transport.ts';
import { UPTAKE_MS_MAX, UPTAKE_SLACK_MS } from './in-flight.ts';

/** The kernel is told whole milliseconds, and rounds them by its own clock. */
const ROUNDING_MS = 5;

interface Kept {
  readonly place: NamePlace;
  readonly key: string;
  readonly inode: number;
  /** Until then it believes the name for sure, unless it had no room for it. */
  believedMs: number;
  /** From then on it does not, for sure. */
  untilMs: number;
}

/**
 * Names that the kernel may take for an inode's, as the cluster has not just said so: by any of them it opens the inode. One inode can have
 * several, the one that another mount took from it, and the one that it got instead. What is kept here for too long costs a question; what is
 * forgotten too soon would have somebody write to a file that he does not mean.
 */
export class KeptNames {
  readonly #world: World;
  /** What each name was told to stand for last. */
  readonly #current = new Map<string, Kept>();
  readonly #byInode = new Map<number, Kept[]>();
  /** All, in the order in which they were told. */
  readonly #all = new Set<Kept>();

  constructor(world: World) {
    this.#world = world;
  }

  /**
   * The kernel is about to be told so, and counts from when it takes that up.
   *
   * @param leftMs for how long it is to believe that, in milliseconds; 0: for what it does at the moment
   */
  told(place: NamePlace, inode: number, leftMs: number): void {
    const nowMs = this.#world.nowMs();
    this.#forgetPast(nowMs);
    const key = placeKey(place);
    const before = this.#current.get(key);
    if (before !== undefined && before.inode !== inode) this.notKept(place);
    const same = this.#byInode.get(inode)?.find((kept) => kept.key === key);
    const kept = same ?? { place, key, inode, believedMs: 0, untilMs: 0 };
    kept.believedMs = nowMs + leftMs - UPTAKE_SLACK_MS - ROUNDING_MS;
    kept.untilMs = Math.max(kept.untilMs, nowMs + leftMs + UPTAKE_MS_MAX);
    this.#keep(kept);
  }

  /**
   * The kernel has asked for the name, and is about to be told otherwise, or to ask the next time, too. What it was told before it may be about to take
   * up, and an open by that be on its way here.
   */
  notKept(place: NamePlace): void {
    const key = placeKey(place);
    const kept = this.#current.get(key);
    if (kept === undefined) return;
    this.#current.delete(key);
    kept.believedMs = 0;
    kept.untilMs = Math.min(kept.untilMs, this.#world.nowMs() + UPTAKE_MS_MAX);
  }

  /** @returns the names by which the kernel may open the inode */
  of(inode: number): readonly NamePlace[] {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.filter(({ untilMs }) => untilMs >= nowMs).map(({ place }) => place);
  }

  /** Whether all names by which the kernel may open the inode are this one, for which it has just asked, and which it was not to keep then. */
  isOnly(inode: number, key: string | undefined): boolean {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.every((kept) => kept.untilMs < nowMs || (kept.key === key && this.#current.get(key) !== kept));
  }

  /** Whether the kernel believes the name: where it asks for it all the same, somebody wants to know it for sure. */
  isBelieved(place: NamePlace): boolean {
    const kept = this.#current.get(placeKey(place));
    return kept !== undefined && kept.believedMs >= this.#world.nowMs();
  }

  /** What was renamed here the kernel knows by its new name, for as long as it knew the one before. */
  moved(from: NamePlace, to: NamePlace, isExchange: boolean): void {
    const [one, other] = [from, to].map((place) => this.#current.get(placeKey(place)));
    for (const place of [from, to]) this.gone(place);
    if (one !== undefined) this.#keep({ ...one, place: to, key: placeKey(to) });
    if (isExchange && other !== undefined) this.#keep({ ...other, place: from, key: placeKey(from) });
  }

  /** The kernel has no such name any more: it was taken away here. */
  gone(place: NamePlace): void {
    const kept = this.#current.get(placeKey(place));
    if (kept !== undefined) this.#forget(kept);
  }

  #keep(kept: Kept): void {
    this.#current.set(kept.key, kept);
    // As the latest.
    this.#all.delete(kept);
    this.#all.add(kept);
    const all = this.#byInode.get(kept.inode);
    if (all === undefined) this.#byInode.set(kept.inode, [kept]);
    else if (!all.includes(kept)) all.push(kept);
  }

  #forgetPast(nowMs: number): void {
    for (const kept of this.#all) {
      if (kept.untilMs >= nowMs) return;
      this.#forget(kept);
    }
  }

  #forget(kept: Kept): void {
    const { key, inode } = kept;
    this.#all.delete(kept);
    if (this.#current.get(key) === kept) this.#current.delete(key);
    const left = (this.#byInode.get(inode) ?? []).filter((one) => one !== kept);
    if (left.length === 0) this.#byInode.delete(inode);
    else this.#byInode.set(inode, left);
  }
}
