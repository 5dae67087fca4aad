import type { Timer, World } from '../../base/world.ts';
import type { OpenFile } from './open-file.ts';

/** However short the validity of attributes is. */
const PERIOD_MS_MIN = 250;
/** Bounds the requests of one period; the files confirmed longest ago come first. */
const CHECKS_MAX = 64;

/**
 * Drops pages of open files that another client has changed: reads through a mapping or by `sendfile` use them without
 * a request for attributes.
 */
export class StalePageChecks {
  readonly #world: World;
  readonly #periodMs: number;
  readonly #files: () => Iterable<OpenFile>;
  readonly #check: (file: OpenFile) => Promise<void>;
  readonly #timer: Timer;
  #isRunning = false;

  /** @param ageMaxMs how long attributes are valid; 0 if each read requests them */
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

  /** Checks files with pages that were not confirmed lately. Does nothing while the last run has not finished. */
  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Half: a file confirmed shortly after the last run would otherwise wait for almost two periods.
    const beforeMs = this.#world.nowMs() - this.#periodMs / 2;
    const due = [...this.#files()].filter((file) => file.mayHavePages && file.known.confirmedMs < beforeMs);
    const first = due.toSorted((a, b) => a.known.confirmedMs - b.known.confirmedMs).slice(0, CHECKS_MAX);
    await Promise.all(first.map((file) => this.#check(file)));
    this.#isRunning = false;
  }
}
