import type { Epoch } from './epoch.ts';

/** The most that two clocks' rates differ, as a fraction; covers a clock slewed to its reference. */
export const DRIFT_MAX = 0.01;

/**
 * Keeps a replica from promising to a new primary while the old one may still answer reads. A replica that answers a
 * heartbeat promises nothing to another process for the heartbeat's `guardMs`. So a primary with recent answers of a
 * majority knows by the rates of clocks alone that there is no other; no readings of two clocks are compared.
 *
 * The guard binds the primary itself too, even after it stepped down: its read leases may still run.
 */
export class Guard {
  readonly #startUntilMs: number;
  #epoch: Epoch | null = null;
  #untilMs = -Infinity;

  /** @param startUntilMs no promise before this time: an earlier incarnation may have answered a heartbeat */
  constructor(startUntilMs: number) {
    this.#startUntilMs = startUntilMs;
  }

  /** Binds this replica to the process of `epoch` for `guardMs`. */
  bind(epoch: Epoch, nowMs: number, guardMs: number): void {
    const untilMs = nowMs + guardMs * (1 + DRIFT_MAX);
    this.#epoch = epoch;
    this.#untilMs = Math.max(this.#untilMs, untilMs);
  }

  /** Ends the guard of this epoch's process: neither the primary nor its read lease holders answer reads any more. */
  lift(epoch: Epoch): void {
    const bound = this.#epoch;
    if (bound === null || bound.counter !== epoch.counter || !isSameProcess(bound, epoch)) return;
    this.#epoch = null;
    this.#untilMs = -Infinity;
  }

  /** Until when no other server gets a promise; −Infinity without a guard. */
  get boundUntilMs(): number {
    return this.#untilMs;
  }

  /** @returns until when `candidate` gets no promise; a past time if it may get one */
  barsUntilMs(candidate: Epoch): number {
    const bound = this.#epoch;
    if (bound === null || isSameProcess(bound, candidate)) return this.#startUntilMs;
    return Math.max(this.#startUntilMs, this.#untilMs);
  }
}

function isSameProcess(a: Epoch, b: Epoch): boolean {
  return a.server === b.server && a.incarnation === b.incarnation;
}
