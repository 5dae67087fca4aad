import { UPTAKE_MS_MAX } from './kernel/uptake.ts';
import { placeKey } from './place.ts';
import type { NamePlace } from './transport.ts';

interface Kept {
  readonly place: NamePlace;
  readonly inode: number;
  readonly toldMs: number;
  readonly untilMs: number;
}

/**
 * Names that the kernel may still take for an inode's, as the cluster has not just said so: by any of them it opens the inode. One inode can have several, the one that
 * another mount took from it, and the one that it got instead. What is kept here for too long costs a question; what is forgotten too soon
 * would have somebody write to a file that he does not mean.
 */
export class KeptNames {
  readonly #ageMaxMs: number;
  /** By place, those that were told last at the end. */
  readonly #kept = new Map<string, Kept>();
  readonly #byInode = new Map<number, Set<string>>();

  /** @param ageMaxMs for how long the kernel is told at the most to believe a name, in milliseconds */
  constructor(ageMaxMs: number) {
    this.#ageMaxMs = ageMaxMs;
  }

  /** The kernel is about to be told so, and counts from when it takes that up. */
  told(place: NamePlace, inode: number): void {
    const nowMs = performance.now();
    for (const { place: oldest, untilMs } of this.#kept.values()) {
      if (untilMs >= nowMs) break;
      this.gone(oldest);
    }
    this.#keep({ place, inode, toldMs: nowMs, untilMs: nowMs + this.#ageMaxMs + UPTAKE_MS_MAX });
  }

  /** The kernel has asked for the name, and is about to be told to ask the next time, too: what it was told before, it has taken up by now. */
  notKept(place: NamePlace): void {
    const kept = this.#kept.get(placeKey(place));
    if (kept !== undefined && performance.now() - kept.toldMs > UPTAKE_MS_MAX) this.gone(place);
  }

  /** @returns the names by which the kernel may open the inode */
  of(inode: number): readonly NamePlace[] {
    const nowMs = performance.now();
    const places: NamePlace[] = [];
    for (const key of this.#byInode.get(inode) ?? []) {
      const kept = this.#kept.get(key);
      if (kept !== undefined && kept.untilMs >= nowMs) places.push(kept.place);
    }
    return places;
  }

  /** What was renamed here the kernel knows by its new name, for as long as it knew the one before. */
  moved(from: NamePlace, to: NamePlace, isExchange: boolean): void {
    const [one, other] = [from, to].map((place) => this.#kept.get(placeKey(place)));
    for (const place of [from, to]) this.gone(place);
    if (one !== undefined) this.#keep({ ...one, place: to });
    if (isExchange && other !== undefined) this.#keep({ ...other, place: from });
  }

  /** The kernel has no such name any more: it was taken away here. */
  gone(place: NamePlace): void {
    const key = placeKey(place);
    const kept = this.#kept.get(key);
    if (kept === undefined) return;
    this.#kept.delete(key);
    const keys = this.#byInode.get(kept.inode);
    keys?.delete(key);
    if (keys?.size === 0) this.#byInode.delete(kept.inode);
  }

  #keep(kept: Kept): void {
    this.gone(kept.place);
    const key = placeKey(kept.place);
    this.#kept.set(key, kept);
    const keys = this.#byInode.get(kept.inode);
    if (keys === undefined) this.#byInode.set(kept.inode, new Set([key]));
    else keys.add(key);
  }
}
