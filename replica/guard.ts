import type { Epoch } from './epoch.ts';

/**
 * How much the rates of two clocks may differ, as a fraction. Generous: it covers a clock that is slewed to
 * meet its reference, too.
 */
export const DRIFT_MAX = 0.01;

/**
 * What keeps a replica from helping a new primary while the old one may still answer reads. Who answers a
 * heartbeat promises nothing to another process for as long as the heartbeat asks; so a primary that a majority
 * answered a while ago knows that there is no other, by the rates of clocks alone. Nothing here compares
 * readings of two servers' clocks.
 *
 * It binds the primary itself too, also when it has stepped down: its read leases may still run.
 */
export class Guard {
  readonly #startUntilMs: number;
  #epoch: Epoch | null = null;
  #untilMs = -Infinity;

  /** @param startUntilMs nobody is promised anything before: an earlier life may have answered a heartbeat */
  constructor(startUntilMs: number) {
    this.#startUntilMs = startUntilMs;
  }

  /** A heartbeat of `epoch`, heard at `nowMs`, asks for `guardMs`. */
  hold(epoch: Epoch, nowMs: number, guardMs: number): void {
    const untilMs = nowMs + guardMs * (1 + DRIFT_MAX);
    this.#epoch = epoch;
    this.#untilMs = Math.max(this.#untilMs, untilMs);
  }

  /** The primary of `epoch` has stopped, and so have its holders of read leases. */
  lift(epoch: Epoch): void {
    const held = this.#epoch;
    if (held === null || held.counter !== epoch.counter || !isSameLife(held, epoch)) return;
    this.#epoch = null;
    this.#untilMs = -Infinity;
  }

  /** Until when anybody at all is promised nothing; −Infinity where nobody asked for it. */
  get heldUntilMs(): number {
    return this.#untilMs;
  }

  /** @returns until when `candidate` is promised nothing; the past where it may be */
  barsUntilMs(candidate: Epoch): number {
    const held = this.#epoch;
    if (held === null || isSameLife(held, candidate)) return this.#startUntilMs;
    return Math.max(this.#startUntilMs, this.#untilMs);
  }
}

function isSameLife(a: Epoch, b: Epoch): boolean {
  return a.server === b.server && a.incarnation === b.incarnation;
}
