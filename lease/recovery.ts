import { type Ballot, ballotInterval } from './ballot.ts';
import type { LeaseParameters } from './parameters.ts';

/**
 * Registers live in memory, so a start, be it after a crash or an orderly stop, means amnesia. It
 * does no harm once everything forgotten is over: the server keeps silent until then, as acceptor and
 * as proposer. [Flease] §3.5.
 *
 * Let it start at own clock x. What it promised or accepted before had ballots drawn at clock ≤ x + ε,
 * and leases under them are counted from that reading, so they end by x + ε + t_max on their holder's
 * clock. After W = t_max + 2ε every clock shows at least x + t_max + ε: they have ended. New ballots
 * are drawn at ≥ x + W − ε, and since L ≤ W − 2ε their interval is larger than that of x + ε: larger
 * than all forgotten ones. The papers wait t_max or t_max + ε, which clocks slewed during the wait defeat.
 *
 * Where the clock was set back before the start, x is the last reading of the life before, as the caller remembers it
 * (`formerClockMs`): the wait is longer, ballots rise all the same.
 */
export interface Recovery {
  readonly untilMs: number;
  /** Ballots of this interval and earlier may be from before the start: void. */
  readonly floor: number;
}

export function recoveryStart(nowMs: number, parameters: LeaseParameters): Recovery {
  const lastMs = Math.max(nowMs, parameters.formerClockMs);
  return {
    untilMs: lastMs + parameters.recoveryMs,
    floor: ballotInterval(lastMs + parameters.clockSkewMaxMs, parameters),
  };
}

/**
 * Whether a ballot is of this time. `old`: from before the start, or so long ago that its lease is
 * over and the cell may have been forgotten in between; a message delayed for that long finds the
 * register as after a restart. `future`: drawn by a clock that is ahead by more than ε; accepted, it
 * could block the cell for as long as that clock likes. Beyond the paper.
 */
export function ballotRefusal(
  k: Ballot,
  floor: number,
  nowMs: number,
  parameters: LeaseParameters,
): 'old' | 'future' | null {
  const { intervalMs, leaseMs, clockSkewMaxMs } = parameters;
  if (k.interval <= floor) return 'old';
  if ((k.interval + 1) * intervalMs + leaseMs + clockSkewMaxMs < nowMs) return 'old';
  if (k.interval > ballotInterval(nowMs + clockSkewMaxMs, parameters)) return 'future';
  return null;
}
