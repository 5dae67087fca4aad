import type { World } from '../base/world.ts';

/** Two readings that are this close together, in milliseconds, count as one. */
const TOGETHER_MS = 0.5;
const READINGS_MAX = 5;

/** Both clocks at one moment. */
interface Reading {
  readonly wallMs: number;
  readonly monotonicMs: number;
}

/**
 * The one reader of time in the server. The lease clock is the wall clock at process start plus
 * elapsed monotonic time: it never steps, and two servers' lease clocks differ by what their wall
 * clocks differed at start, plus drift.
 */
export class Clock {
  readonly #world: World;
  readonly #base: Reading;
  /** What the clock that runs on while the machine sleeps was ahead of the one that stops, at the start. */
  readonly #bootAheadMs: number;
  #lastWallNs = 0n;

  constructor(world: World) {
    this.#world = world;
    this.#base = readTogether(world);
    this.#bootAheadMs = bootAheadMs(world);
  }

  /** Lease clock, in milliseconds since 1970, with fractions. Never goes back. */
  nowMs(): number {
    return this.#base.wallMs + (this.#world.nowMs() - this.#base.monotonicMs);
  }

  /** How far the wall clock has moved away from the lease clock since start, in milliseconds. */
  wallDriftMs(): number {
    const { wallMs, monotonicMs } = readTogether(this.#world);
    return wallMs - (this.#base.wallMs + (monotonicMs - this.#base.monotonicMs));
  }

  /** How long the machine has slept since the start, in milliseconds, to within some ten of them. */
  sleptMs(): number {
    return bootAheadMs(this.#world) - this.#bootAheadMs;
  }

  /** Wall clock for timestamps that people see, in nanoseconds since 1970; no two readings are equal. */
  wallNs(): bigint {
    const nowNs = BigInt(this.#world.wallMs()) * 1_000_000n;
    this.#lastWallNs = nowNs > this.#lastWallNs ? nowNs : this.#lastWallNs + 1n;
    return this.#lastWallNs;
  }
}

function bootAheadMs(world: World): number {
  return together(world, () => world.bootMs() - world.nowMs());
}

function readTogether(world: World): Reading {
  return together(world, () => ({ wallMs: world.wallMs(), monotonicMs: world.nowMs() }));
}

/** The process may be interrupted between reading one clock and the other: then it looks again. */
function together<Value>(world: World, read: () => Value): Value {
  let best = read();
  let bestSpanMs = Infinity;
  for (let reading = 0; reading < READINGS_MAX && bestSpanMs > TOGETHER_MS; reading++) {
    const beforeMs = world.nowMs();
    const value = read();
    const spanMs = world.nowMs() - beforeMs;
    if (spanMs >= bestSpanMs) continue;
    bestSpanMs = spanMs;
    best = value;
  }
  return best;
}
