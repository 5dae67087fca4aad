import { performance } from 'node:perf_hooks';

/**
 * The one reader of time in the server. The lease clock is the wall clock at process start plus
 * elapsed monotonic time: it never steps, and two servers' lease clocks differ by what their wall
 * clocks differed at start, plus drift.
 */
export class Clock {
  readonly #startedWallMs = Date.now();
  readonly #startedMonotonicMs = performance.now();

  /** Lease clock, in milliseconds since 1970, with fractions. Never goes back. */
  nowMs(): number {
    return this.#startedWallMs + (performance.now() - this.#startedMonotonicMs);
  }

  /** How far the wall clock has moved away from the lease clock since start, in milliseconds. */
  wallDriftMs(): number {
    return Date.now() - this.nowMs();
  }

  /** Wall clock for timestamps that people see, in nanoseconds since 1970. */
  wallNs(): bigint {
    return BigInt(Math.round((Date.now() + (performance.now() % 1)) * 1000)) * 1000n;
  }
}
