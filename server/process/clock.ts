import type { World } from '../../base/world.ts';

/** Two clocks that are read within this time count as read at one moment. */
const READ_SPAN_MS = 0.5;
const READINGS_MAX = 5;

interface Reading {
  readonly wallMs: number;
  readonly monotonicMs: number;
}

/**
 * The only reader of time in the server. The lease clock is the wall clock at process start plus elapsed monotonic
 * time: it never steps, and two servers' lease clocks differ by what their wall clocks differed at start, plus drift.
 */
export class Clock {
  readonly #world: World;
  readonly #base: Reading;
  /** How far the clock that includes sleep was ahead of the monotonic clock, at the start. */
  readonly #bootAheadMs: number;
  #lastWallNs = 0n;

  constructor(world: World) {
    this.#world = world;
    this.#base = readClocks(world);
    this.#bootAheadMs = bootAheadMs(world);
  }

  /** Lease clock, in milliseconds since 1970, with fractions. It never decreases. */
  nowMs(): number {
    return this.#base.wallMs + (this.#world.nowMs() - this.#base.monotonicMs);
  }

  /** How far the wall clock has moved from the lease clock since the start, in milliseconds. */
  wallDriftMs(): number {
    const { wallMs, monotonicMs } = readClocks(this.#world);
    return wallMs - (this.#base.wallMs + (monotonicMs - this.#base.monotonicMs));
  }

  /** How long the machine has slept since the start, in milliseconds, to within some ten of them. */
  sleptMs(): number {
    return bootAheadMs(this.#world) - this.#bootAheadMs;
  }

  /** Wall clock for timestamps, in nanoseconds since 1970; no two readings are equal. */
  wallNs(): bigint {
    const nowNs = BigInt(this.#world.wallMs()) * 1_000_000n;
    this.#lastWallNs = nowNs > this.#lastWallNs ? nowNs : this.#lastWallNs + 1n;
    return this.#lastWallNs;
  }
}

function bootAheadMs(world: World): number {
  return readAtOnce(world, () => world.bootMs() - world.nowMs());
}

function readClocks(world: World): Reading {
  return readAtOnce(world, () => ({ wallMs: world.wallMs(), monotonicMs: world.nowMs() }));
}

/** Calls `read`, which reads two clocks, until it takes at most `READ_SPAN_MS`. @returns the quickest reading */
function readAtOnce<Value>(world: World, read: () => Value): Value {
  let best = read();
  let bestSpanMs = Infinity;
  for (let reading = 0; reading < READINGS_MAX && bestSpanMs > READ_SPAN_MS; reading++) {
    const beforeMs = world.nowMs();
    const value = read();
    const spanMs = world.nowMs() - beforeMs;
    if (spanMs >= bestSpanMs) continue;
    bestSpanMs = spanMs;
    best = value;
  }
  return best;
}
