import { performance } from 'node:perf_hooks';

/**
 * The one reader of time in the server. The lease clock is the wall clock at process start plus
 * elapsed monotonic time: it never steps, and two servers' lease clocks differ by what their wall
 * clocks differed at start, plus drift.
 */
export class Clock {
  readonly #baseWallMs = Date.now();
  readonly #baseMonotonicMs = performance.now();
  #lastWallNs = 0n;

  /** Lease clock, in milliseconds since 1970, with fractions. Never goes back. */
  nowMs(): number {
    return this.#baseWallMs + (performance.now() - this.#baseMonotonicMs);
  }

  /** How far the wall clock has moved away from the lease clock since start, in milliseconds. */
  wallDriftMs(): number {
    return Date.now() - this.nowMs();
  }

  /** Wall clock for timestamps that people see, in nanoseconds since 1970; no two readings are equal. */
  wallNs(): bigint {
    const nowNs = BigInt(Date.now()) * 1_000_000n;
    this.#lastWallNs = nowNs > this.#lastWallNs ? nowNs : this.#lastWallNs + 1n;
    return this.#lastWallNs;
  }
}
