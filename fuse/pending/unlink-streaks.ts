import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';

/** The longest pause within a streak. */
export const UNLINK_STREAK_MS = 100;
const REMEMBERED_MAX = 1_000;

interface Streak {
  readonly count: number;
  readonly underWay: number;
  readonly lastMs: number;
}

/**
 * Successive unlinks in a directory, without a create in between. A single removed file may be a message to others: a
 * journal, a lock, a mark. The pauses of the program count, not the time of the answers.
 */
export class UnlinkStreaks {
  readonly #world: World;
  readonly #streakMs: number;
  readonly #streaks = new BoundedMap<number, Streak>(REMEMBERED_MAX);

  /** @param streakMs the longest pause, from an answer to the next call, in milliseconds; 0: there are no streaks */
  constructor(world: World, streakMs: number) {
    this.#world = world;
    this.#streakMs = streakMs;
  }

  /** Called before an unlink; `removed` or `end` follows. */
  began(directory: number): void {
    const streak = this.#current(directory);
    this.#set(directory, { count: streak?.count ?? 0, underWay: (streak?.underWay ?? 0) + 1 });
  }

  /** Called when an unlink is pending or executed. @returns the length of the streak */
  removed(directory: number): number {
    const streak = this.#current(directory);
    const count = (streak?.count ?? 0) + 1;
    this.#set(directory, { count, underWay: Math.max(0, (streak?.underWay ?? 0) - 1) });
    return count;
  }

  /** Called when a name is created in the directory, or an unlink in it fails. */
  end(directory: number): void {
    this.#streaks.delete(directory);
  }

  lengthOf(directory: number): number {
    return this.#current(directory)?.count ?? 0;
  }

  #current(directory: number): Streak | undefined {
    const streak = this.#streaks.get(directory);
    if (streak === undefined || this.#streakMs === 0) return undefined;
    return streak.underWay > 0 || this.#world.nowMs() - streak.lastMs < this.#streakMs ? streak : undefined;
  }

  #set(directory: number, streak: Omit<Streak, 'lastMs'>): void {
    this.#streaks.set(directory, { ...streak, lastMs: this.#world.nowMs() });
  }
}
