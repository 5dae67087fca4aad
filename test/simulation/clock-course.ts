/**
 * How far a simulated lease clock is from true time, over the whole run: a chain of stretches in each of
 * which it runs a little fast or slow. Drawn from a seed. It never runs backwards.
 */
import { Prng } from '../../base/prng.ts';

/** What a random course keeps to. */
export interface ClockLimits {
  /** Farthest from true time. Infinity: only the rate is bounded, as it is for clocks that nobody sets. */
  readonly offsetMaxMs: number;
  /** Largest difference of the rate from that of true time, as a fraction. */
  readonly slewMax: number;
  /** Now and then it jumps forwards within its limits. True if absent. */
  readonly clocksJump?: boolean;
}

/** A clock that nobody sets may be this far off at the beginning of a run. */
const UNSET_OFFSET_MAX_MS = 500_000;

/** A jump is a stretch that nobody sees the inside of. */
const JUMP_MS = 0.001;

/** Clocks may be slowed, but every reading must be larger than the one before. */
const RATE_MIN = 0.1;

/** To a microsecond. */
export function microsecond(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

export class ClockCourse {
  readonly #limits: ClockLimits;
  readonly #prng: Prng;
  readonly #beganMs: number;
  /** The stretch that is running: offset at its beginning, slope, and when it ends. */
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

  /** How fast the clock runs besides true time, now. */
  get slew(): number {
    return this.#slew;
  }

  /** @returns what the clock shows at a moment of true time, not before the last one that was asked for */
  readMs(trueMs: number): number {
    while (trueMs >= this.#endMs) this.#advance();
    if (trueMs >= this.#reachedMs) this.#rest(this.#reachedMs);
    // Where one stretch meets the next, the last bits may say otherwise, but a clock does not go back.
    this.#shownMs = Math.max(this.#shownMs, trueMs + this.#offsetMs + this.#slew * (trueMs - this.#sinceMs));
    return this.#shownMs;
  }

  /** Sets the clock, at once and for good. */
  set(trueMs: number, offsetMs: number): void {
    this.#sinceMs = trueMs;
    this.#offsetMs = offsetMs;
    this.#slew = 0;
    this.#reachedMs = Infinity;
    this.#endMs = Infinity;
    this.#shownMs = -Infinity;
  }

  /** Sets the clock in motion towards an offset, over so long; there it stays. */
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

  /** Prefers the ends of what is allowed, where the protocols are tight. */
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
    // Now and then a clock jumps, which it may only do forwards.
    const jumps = goal > here && this.#prng.chance(0.2) && clocksJump;
    if (jumps) return { offsetMs: microsecond(goal), overMs: JUMP_MS };
    return {
      offsetMs: microsecond(goal),
      overMs: microsecond(Math.max(1, Math.abs(goal - here) / slew)),
    };
  }

  /** It is only made slower or faster, so that it goes forward. */
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
