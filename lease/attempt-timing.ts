import type { CellContext, CellCursor } from './cell-cursor.ts';
import type { Work } from './work.ts';

/** When a cell begins its next attempt; spread at random, so that servers do not collide in step. */
export class AttemptTiming {
  readonly #context: CellContext;
  readonly #cursor: CellCursor;

  constructor(context: CellContext, cursor: CellCursor) {
    this.#context = context;
    this.#cursor = cursor;
  }

  /** When to renew: spread, so that leases acquired together are not renewed together for ever. */
  renewalMs(untilMs: number): number {
    const { renewBeforeMs, jitterMaxMs } = this.#context.parameters;
    return untilMs - renewBeforeMs - this.#context.prng.next() * jitterMaxMs;
  }

  /**
   * When to compete for a lease of another server: after its end on every clock, the lagging ones later.
   * The server whose clock is ahead would always come first, so it waits for the slowest: all begin together,
   * and chance decides.
   */
  afterEndMs(untilMs: number, nowMs: number): number {
    const { parameters, rules, monitor } = this.#context;
    const aheadMs = rules.comparesClocks ? monitor.aheadMs(nowMs) : 0;
    const handicapMs = this.#cursor.work?.handicapMs ?? 0;
    return untilMs + parameters.clockSkewMaxMs + aheadMs + this.jitterMs() + handicapMs;
  }

  jitterMs(): number {
    return 1 + this.#context.prng.next() * this.#context.parameters.jitterMaxMs;
  }

  /** Doubles while attempts fail, with a random part: two that collide must not collide again in step. */
  nextBackoffMs(work: Work): number {
    const { backoffMinMs, backoffMaxMs } = this.#context.parameters;
    work.backoffMs = Math.min(Math.max(backoffMinMs, work.backoffMs * 2), backoffMaxMs);
    return work.backoffMs * (1 + 2 * this.#context.prng.next());
  }
}
