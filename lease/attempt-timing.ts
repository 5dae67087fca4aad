import type { CellContext, CellCursor } from './cell-cursor.ts';
import type { CellWork } from './work.ts';

/** Times of a cell's next attempt, with random parts so that servers do not collide repeatedly. */
export class AttemptTiming {
  readonly #context: CellContext;
  readonly #cursor: CellCursor;

  constructor(context: CellContext, cursor: CellCursor) {
    this.#context = context;
    this.#cursor = cursor;
  }

  /**
   * When to renew. Random, so that leases acquired together are not all renewed together: there may be very many. Cells
   * that renew together do so at multiples of the period, at first a sixth to a half of a lease after its start, so
   * that the messages of all cells to one server share frames.
   */
  renewalMs(untilMs: number): number {
    const { leaseMs, renewBeforeMs, renewsTogether, jitterMaxMs } = this.#context.parameters;
    if (renewsTogether(this.#cursor.id)) {
      const periodMs = leaseMs - renewBeforeMs;
      return Math.floor((untilMs - leaseMs / 2) / periodMs) * periodMs;
    }
    return untilMs - renewBeforeMs - this.#context.prng.next() * jitterMaxMs;
  }

  /** When to compete: after the lease's end on every clock. The fastest clock waits longest, so that chance decides. */
  afterEndMs(untilMs: number, nowMs: number): number {
    const { parameters, rules, monitor } = this.#context;
    const aheadMs = rules.comparesClocks ? monitor.aheadMs(nowMs) : 0;
    const handicapMs = this.#cursor.work?.handicapMs ?? 0;
    return untilMs + parameters.clockSkewMaxMs + aheadMs + this.jitterMs() + handicapMs;
  }

  jitterMs(): number {
    return 1 + this.#context.prng.next() * this.#context.parameters.jitterMaxMs;
  }

  /** Pause after a failed attempt: doubles while attempts fail; a random part keeps servers from colliding again. */
  nextBackoffMs(work: CellWork): number {
    const { backoffMinMs, backoffMaxMs } = this.#context.parameters;
    work.backoffMs = Math.min(Math.max(backoffMinMs, work.backoffMs * 2), backoffMaxMs);
    return work.backoffMs * (1 + 2 * this.#context.prng.next());
  }
}
