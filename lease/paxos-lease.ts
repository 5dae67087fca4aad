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
 * [PaxosLease] (Trencseni, Gazso, Reinhardt 2009): each server counts spans on its own clock, so clocks need not
 * agree. Their rates may differ from true time by ρ (`CLOCK_DRIFT_MAX`); the paper needs this bound but does not
 * state it.
 *
 * The proposer counts its lease from before the first prepare, an acceptor from its accept, so the holder stops
 * before any acceptor forgets. The price: an acceptor cannot tell others when a lease ends, a found lease cannot be
 * written back, and a known holder is only a hint.
 *
 * Departures from the paper:
 * - T counts from before the first prepare, not from the propose: an acceptor may have restarted in between.
 * - A running lease is not replaced by another holder's (`writeRefusal`).
 * - A proposer acts on an answer once.
 * - The new end of an extension counts only after a majority accepted it.
 * - Expiry is a comparison with the clock at each use, not a timer that might clear a newer proposal.
 */
export class PaxosLeaseRules implements LeaseRules {
  readonly recovery: Recovery;
  readonly helps = false;
  readonly comparesClocks = false;
  readonly #parameters: LeaseParameters;

  /** Silent for M(1 + ρ), M = T + 2ε > T ([PaxosLease] §2): attempts from before are over after T of true time. */
  constructor(parameters: LeaseParameters, startedMs: number) {
    this.#parameters = parameters;
    this.recovery = { untilMs: startedMs + parameters.recoveryMs * (1 + CLOCK_DRIFT_MAX), floor: 0 };
  }

  /** A ballot's interval is a bounded number like the round; it says nothing about the time. */
  ballotRefusal(k: Ballot): 'future' | null {
    return ballotIsSane(k) ? null : 'future';
  }

  /**
   * Beyond the paper, which loses exclusion here. A restarted acceptor has forgotten its promise of k. A propose with
   * k, delayed since then, would overwrite a lease that the acceptor accepted later with a smaller ballot; the
   * proposer of k would then find "its own" proposal and extend it. So an acceptor never replaces a running lease by
   * another holder's, whatever the ballots.
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

  /** An acceptor's end is later than the holder's; the end of a later attempt is later too. */
  extendedMs(_foundMs: number, untilMs: number): number {
    return untilMs;
  }

  leaseToWrite(lease: Lease, spanMs: number): Lease {
    return { ...lease, untilMs: spanMs };
  }

  /** The span as an end by this clock, but not before the holder's last end: it may not know that it asked for less. */
  leaseToStore(lease: Lease, before: Lease | null, nowMs: number): Lease {
    const untilMs = nowMs + lease.untilMs * (1 + CLOCK_DRIFT_MAX);
    const same = before !== null && !before.released && leaseSameHolder(before, lease);
    return { ...lease, untilMs: same ? Math.max(before.untilMs, untilMs) : untilMs };
  }

  leaseToSend(lease: Lease, nowMs: number): Lease | null {
    if (lease.released || nowMs >= lease.untilMs) return null;
    return { ...lease, untilMs: lease.untilMs - nowMs };
  }

  leaseReceived(lease: Lease, nowMs: number): Lease {
    return { ...lease, untilMs: nowMs + lease.untilMs };
  }

  /** Any lease outranks none, another bidder's an own one, else the larger ballot: one answer makes the cell taken. */
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
