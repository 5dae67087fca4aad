import type { ReadingAttempt } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import { ballotCompare, ballotIsSane } from './ballot.ts';
import type { Finding } from './finding.ts';
import { type Lease, leaseSameHolder } from './lease.ts';
import type { WriteMessage } from './messages.ts';
import { CLOCK_DRIFT_MAX, type LeaseParameters } from './parameters.ts';
import type { Recovery } from './recovery.ts';
import { type Register, registerStillValid } from './register.ts';
import type { LeaseRules } from './rules.ts';

/**
 * [PaxosLease] (Trencseni, Gazso, Reinhardt 2009): every server counts spans on its own clock, so
 * clocks need not agree; their rates may differ from true time by ρ (`CLOCK_DRIFT_MAX`), which the
 * paper does not say and needs.
 *
 * The proposer counts its lease from before the first prepare, an acceptor from when it accepts: so
 * the holder stops before any acceptor forgets. The price: an acceptor that knows of a lease cannot
 * tell others when it ends, a found lease cannot be written back, and who holds a cell is a hint.
 *
 * Departures: T is counted from before the first prepare, not from the propose (an acceptor may have
 * restarted in between); a running lease is not replaced by another's (`writeRefusal`); an answer is acted on once; the new end of an extension counts only once a
 * majority has accepted it; expiry is a comparison with the clock at each use, not a timer that might
 * clear a newer proposal.
 */
export class PaxosLeaseRules implements LeaseRules {
  readonly recovery: Recovery;
  readonly helps = false;
  readonly comparesClocks = false;
  readonly #parameters: LeaseParameters;

  /**
   * Silence of M(1 + ρ) after the start, with M = T + 2ε > T ([PaxosLease] §2): what was promised or accepted
   * before belongs to attempts that began before, and those are over after T of true time.
   */
  constructor(parameters: LeaseParameters, startedMs: number) {
    this.#parameters = parameters;
    this.recovery = { untilMs: startedMs + parameters.recoveryMs * (1 + CLOCK_DRIFT_MAX), floor: 0 };
  }

  /** The interval of a ballot is a number like the round: it says nothing about the time, but has its bounds. */
  ballotRefusal(k: Ballot): 'future' | null {
    return ballotIsSane(k) ? null : 'future';
  }

  /**
   * Beyond the paper, which loses exclusion here: an acceptor that restarted has forgotten that it
   * promised k. A propose with k that was under way all that time would overwrite the lease that the
   * acceptor has accepted since with a smaller ballot; its proposer would find "its own" proposal and
   * extend it. So an acceptor lets nobody's running lease be replaced by another's, whatever the ballots.
   */
  writeRefusal(register: Register, write: WriteMessage, nowMs: number): 'future' | 'still-valid' | null {
    if (this.isTooLong(write.lease)) return 'future';
    return registerStillValid(register, write.lease, nowMs) ? 'still-valid' : null;
  }

  isTooLong(lease: Lease): boolean {
    return !(lease.untilMs <= this.#parameters.leaseMs * (1 + 2 * CLOCK_DRIFT_MAX));
  }

  endMs(startedMs: number, spanMs: number): number {
    return startedMs + spanMs * (1 - CLOCK_DRIFT_MAX);
  }

  /** What was found is an acceptor's end, later than the holder's; an attempt that began later ends later. */
  extendedMs(_foundMs: number, untilMs: number): number {
    return untilMs;
  }

  asked(lease: Lease, spanMs: number): Lease {
    return { ...lease, untilMs: spanMs };
  }

  /** Never shorter than what the same holder had: it may not have heard that it asked for less. */
  kept(lease: Lease, before: Lease | null, nowMs: number): Lease {
    const untilMs = nowMs + lease.untilMs * (1 + CLOCK_DRIFT_MAX);
    const same = before !== null && !before.released && leaseSameHolder(before, lease);
    return { ...lease, untilMs: same ? Math.max(before.untilMs, untilMs) : untilMs };
  }

  told(lease: Lease, nowMs: number): Lease | null {
    if (lease.released || nowMs >= lease.untilMs) return null;
    return { ...lease, untilMs: lease.untilMs - nowMs };
  }

  heard(lease: Lease, nowMs: number): Lease {
    return { ...lease, untilMs: nowMs + lease.untilMs };
  }

  /** One proposal of somebody else among the answers, and the cell is not free: that one counts. */
  outranks(attempt: ReadingAttempt, written: Ballot, lease: Lease | null): boolean {
    if (lease === null) return false;
    if (attempt.lease === null) return true;
    const mine = attempt.bidder.isMine(lease);
    if (mine !== attempt.bidder.isMine(attempt.lease)) return !mine;
    return ballotCompare(written, attempt.written) > 0;
  }

  finding({ lease }: ReadingAttempt): Finding {
    return lease === null ? { kind: 'free' } : { kind: 'held', lease };
  }
}
