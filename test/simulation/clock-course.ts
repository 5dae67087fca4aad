/**
 * The difference between a simulated lease clock and true time during a run: a sequence of parts in each of which it
 * runs a little fast or slow. Drawn from a seed. The clock never runs backwards.
 */
import { Prng } from '../../base/prng.ts';

/** The limits of a random course. */
export interface ClockLimits {
  /**
   * The most it may differ from true time. Infinity: only the rate is bounded, as of clocks that are not synchronized.
   */
  readonly offsetMaxMs: number;
  /** The largest difference of the rate from that of true time, as a fraction. */
  readonly slewMax: number;
  /** Whether it sometimes jumps forwards within its limits. True if absent. */
  readonly clocksJump?: boolean;
}

/** The most that an unsynchronized clock may be off at the begin of a run. */
const UNSET_OFFSET_MAX_MS = 500_000;

/** A jump is a very short part of fast running. */
const JUMP_MS = 0.001;

/** Clocks may be slowed, but each reading must be larger than the one before. */
const RATE_MIN = 0.1;

/** @returns the time rounded to a microsecond */
export function microsecond(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

export class ClockCourse {
  readonly #limits: ClockLimits;
  readonly #prng: Prng;
  readonly #beganMs: number;
  /** The present part: offset at its begin, slope, and end. */
  #sinceMs: number;
  #offsetMs = 0;
  #slew = 0;
  #reachedMs = Infinity;
  #endMs = Infinity;
  #shownMs = -Infinity;

  constructor(seed: number, limits: ClockLimits, beganMs: number) {
    this.#limits = limits;
    this.#prng = new Prng(seed);
    this.#beganMs = beganMs;
    this.#sinceMs = beganMs;
    if (limits.offsetMaxMs <= 0) return;
    this.#offsetMs = microsecond(
      (this.#prng.next() * 2 - 1) * Math.min(limits.offsetMaxMs, UNSET_OFFSET_MAX_MS),
    );
    if (limits.slewMax > 0) this.#endMs = beganMs;
  }

  /** The difference of the clock's rate from that of true time, now. */
  get slew(): number {
    return this.#slew;
  }

  /** @returns the clock at a moment of true time, which is not before the last one that was queried */
  readMs(trueMs: number): number {
    while (trueMs >= this.#endMs) this.#advance();
    if (trueMs >= this.#reachedMs) this.#rest(this.#reachedMs);
    // At the boundary of two parts rounding could make the clock go back.
    this.#shownMs = Math.max(this.#shownMs, trueMs + this.#offsetMs + this.#slew * (trueMs - this.#sinceMs));
    return this.#shownMs;
  }

  /** Sets the clock to an offset, at once and for good. */
  set(trueMs: number, offsetMs: number): void {
    this.#sinceMs = trueMs;
    this.#offsetMs = offsetMs;
    this.#slew = 0;
    this.#reachedMs = Infinity;
    this.#endMs = Infinity;
    this.#shownMs = -Infinity;
  }

  /** Moves the clock to an offset within `overMs`, where it stays. */
  moveTo(trueMs: number, offsetMs: number, overMs: number): void {
    this.readMs(trueMs);
    this.#endMs = Infinity;
    this.#move(trueMs, offsetMs, overMs);
  }

  #advance(): void {
    const startMs = this.#endMs;
    const { overMs, offsetMs } = this.#draw(startMs);
    this.#move(this.#beganMs + microsecond(startMs - this.#beganMs), offsetMs, overMs);
    this.#endMs = startMs + overMs;
  }

  /** Prefers the limits, where the protocols are most at risk. */
  #draw(startMs: number): { overMs: number; offsetMs: number } {
    const { offsetMaxMs, slewMax, clocksJump = true } = this.#limits;
    const here = this.#offsetMs + this.#slew * (startMs - this.#sinceMs);
    const draw = this.#prng.next();
    const rest = this.#prng.chance(0.3);
    const lengthMs = microsecond((0.2 + this.#prng.next()) * 20_000);
    if (offsetMaxMs === Infinity) {
      const slew = draw < 0.3 ? -slewMax : draw > 0.7 ? slewMax : (draw * 5 - 2.5) * slewMax;
      return { offsetMs: microsecond(here + slew * lengthMs), overMs: lengthMs };
    }
    if (rest) return { offsetMs: microsecond(here), overMs: lengthMs };
    const goal = draw < 0.3 ? -offsetMaxMs : draw > 0.7 ? offsetMaxMs : (draw * 5 - 2.5) * offsetMaxMs;
    const slew = slewMax * (0.2 + 0.8 * this.#prng.next());
    // Sometimes the clock jumps, only forwards.
    const jumps = goal > here && this.#prng.chance(0.2) && clocksJump;
    if (jumps) return { offsetMs: microsecond(goal), overMs: JUMP_MS };
    return {
      offsetMs: microsecond(goal),
      overMs: microsecond(Math.max(1, Math.abs(goal - here) / slew)),
    };
  }

  /** The clock is only slowed or sped up, so that it never goes back. */
  #move(startMs: number, offsetMs: number, forMs: number): void {
    const here = this.#offsetMs + this.#slew * (Math.min(startMs, this.#reachedMs) - this.#sinceMs);
    const away = offsetMs - here;
    const overMs = Math.max(forMs, away < 0 ? -away / (1 - RATE_MIN) : 0);
    this.#sinceMs = startMs;
    this.#offsetMs = overMs === 0 ? offsetMs : here;
    this.#slew = overMs === 0 ? 0 : away / overMs;
    this.#reachedMs = overMs === 0 ? Infinity : startMs + overMs;
  }

  #rest(reachedMs: number): void {
    this.#offsetMs += this.#slew * (reachedMs - this.#sinceMs);
    this.#sinceMs = reachedMs;
    this.#slew = 0;
    this.#reachedMs = Infinity;
  }
}
