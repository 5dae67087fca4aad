import type { Timer, World } from '../../base/world.ts';
import type { OpenFile } from './open-file.ts';

/** Files are checked no more often than this, in milliseconds, however short the time is for which attributes are believed. */
const PERIOD_MS_MIN = 250;
/** Files that one period checks, those first that were confirmed the longest ago: so many questions to the cluster, at the most. */
const CHECKS_MAX = 64;

/**
 * A program that reads through a mapping, or by `sendfile`, finds the pages that the kernel has, and the kernel asks for no attributes then. So
 * files of which it may have pages are checked while they are open, and what others have changed is dropped.
 */
export class PageChecks {
  readonly #world: World;
  readonly #periodMs: number;
  readonly #files: () => Iterable<OpenFile>;
  readonly #check: (file: OpenFile) => Promise<void>;
  readonly #timer: Timer;
  #isRunning = false;

  /**
   * @param ageMaxMs for how long attributes are believed; 0 where each read asks
   * @param files that are open
   * @param check asks for the contents of one, and does not throw
   */
  constructor(
    world: World,
    ageMaxMs: number,
    files: () => Iterable<OpenFile>,
    check: (file: OpenFile) => Promise<void>,
  ) {
    this.#world = world;
    this.#periodMs = Math.max(ageMaxMs, PERIOD_MS_MIN);
    this.#files = files;
    this.#check = check;
    this.#timer = world.every(this.#periodMs, () => void this.#run()).unref();
  }

  stop(): void {
    this.#timer.cancel();
  }

  /** A check that takes longer than a period holds up the next one, so that questions do not pile up. */
  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Half a period: the kernel's own questions, which confirm a file, come at about the same pace.
    const beforeMs = this.#world.nowMs() - this.#periodMs / 2;
    const due = [...this.#files()].filter((file) => file.mayHavePages && file.known.confirmedMs < beforeMs);
    const first = due.toSorted((a, b) => a.known.confirmedMs - b.known.confirmedMs).slice(0, CHECKS_MAX);
    await Promise.all(first.map((file) => this.#check(file)));
    this.#isRunning = false;
  }
}
