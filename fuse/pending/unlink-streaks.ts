import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';

/** Who removes one file after the other lets no more time pass between two. */
export const UNLINK_STREAK_MS = 100;
/** Directories of which it is remembered when something was removed in them, the latest last. */
const REMEMBERED_MAX = 1_000;

interface Row {
  readonly count: number;
  /** Unlinks that are asked for and not answered. */
  readonly underWay: number;
  readonly lastMs: number;
}

/**
 * Who removes one file of a directory after the other, and makes none between. One that is removed for itself may say something to others by being gone: a journal,
 * a lock, a mark. What counts is how long the program waits, and not how long the cluster takes to answer.
 */
export class UnlinkStreaks {
  readonly #world: World;
  readonly #streakMs: number;
  readonly #streaks = new BoundedMap<number, Row>(REMEMBERED_MAX);

  /** @param streakMs what is asked for later than this after another removal's answer, in milliseconds, is removed for itself; 0: whatever is removed */
  constructor(world: World, streakMs: number) {
    this.#world = world;
    this.#streakMs = streakMs;
  }

  /** A removal in the directory is asked for: `removed` or `end` follows. */
  began(directory: number): void {
    const row = this.#current(directory);
    this.#set(directory, { count: row?.count ?? 0, underWay: (row?.underWay ?? 0) + 1 });
  }

  /** A file of the directory was removed. @returns how many were so in a row, with this one */
  removed(directory: number): number {
    const row = this.#current(directory);
    const count = (row?.count ?? 0) + 1;
    this.#set(directory, { count, underWay: Math.max(0, (row?.underWay ?? 0) - 1) });
    return count;
  }

  /** Something else becomes of the directory, or a removal has failed. */
  end(directory: number): void {
    this.#streaks.delete(directory);
  }

  lengthOf(directory: number): number {
    return this.#current(directory)?.count ?? 0;
  }

  #current(directory: number): Row | undefined {
    const row = this.#streaks.get(directory);
    if (row === undefined || this.#streakMs === 0) return undefined;
    return row.underWay > 0 || this.#world.nowMs() - row.lastMs < this.#streakMs ? row : undefined;
  }

  #set(directory: number, row: Omit<Row, 'lastMs'>): void {
    this.#streaks.set(directory, { ...row, lastMs: this.#world.nowMs() });
  }
}
