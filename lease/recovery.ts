import { type Ballot, ballotInterval } from './ballot.ts';
import type { LeaseParameters } from './parameters.ts';

/**
 * Registers are in memory only, so every start, after a crash or an orderly stop, is a loss of all promises. It is
 * harmless once everything forgotten is over: until then the server is silent as acceptor and as proposer. [Flease]
 * §3.5.
 *
 * Let the server start at its own clock x. The promises and accepts that it forgot have ballots drawn at clock ≤ x +
 * ε. Leases under them count from that reading, so they end by x + ε + t_max on their holder's clock. After W = t_max
 * + 2ε every clock shows at least x + t_max + ε: they have ended. New ballots are drawn at ≥ x + W − ε, and since L ≤
 * W − 2ε their interval is larger than that of x + ε: larger than all forgotten ones. The papers wait t_max or t_max
 * + ε, which is too short if clocks are slewed during the wait.
 *
 * If the clock was set back before the start, x is the previous incarnation's last reading, which the caller remembers
 * (`earlierClockMs`): the wait is longer, and ballots still rise.
 */
export interface Recovery {
  readonly untilMs: number;
  /** Ballots of this interval and earlier may be from before the start: they are void. */
  readonly floor: number;
}

/** When the recovery wait of a start at `nowMs` ends, and which ballots are void after it. */
export function recoveryStart(nowMs: number, parameters: LeaseParameters): Recovery {
  const lastMs = Math.max(nowMs, parameters.earlierClockMs);
  return {
    untilMs: lastMs + parameters.recoveryMs,
    floor: ballotInterval(lastMs + parameters.clockSkewMaxMs, parameters),
  };
}

/**
 * Whether a ballot's time is acceptable; beyond the paper.
 * - `old`: from before the start, or so old that its lease is over and the cell may have been removed since; a
 *   message delayed that long would find the register as after a restart.
 * - `future`: drawn by a clock more than ε ahead; accepting it could block the cell for as long as that clock likes.
 */
export function ballotRefusal(
  k: Ballot,
  floor: number,
  nowMs: number,
  parameters: LeaseParameters,
): 'old' | 'future' | null {
  const { ballotIntervalMs, leaseMs, clockSkewMaxMs } = parameters;
  if (k.interval <= floor) return 'old';
  if ((k.interval + 1) * ballotIntervalMs + leaseMs + clockSkewMaxMs < nowMs) return 'old';
  if (k.interval > ballotInterval(nowMs + clockSkewMaxMs, parameters)) return 'future';
  return null;
}
