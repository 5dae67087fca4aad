import { unreachable } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { ClaimedLease, LeaseEvent, LeaseOrder, LeaseOutcome } from './actions.ts';
import type { Bid, Bidder, ReadingAttempt } from './attempt.ts';
import { ballotToken } from './ballot.ts';
import type { Finding } from './finding.ts';
import type { Claim, Lease } from './lease.ts';
import { CLOCK_DRIFT_MAX, type LeaseParameters } from './parameters.ts';
import type { LeaseRules } from './rules.ts';

type AskEvent = Extract<LeaseEvent, { kind: 'ask' }>;

/**
 * Bids for a client (M. Fowler, *Patterns of Distributed Systems*, Lease). The holder is a session, a number that the
 * client draws: any server can execute its next order, and none has to keep running. The fencing token comes from
 * the ballot that acquired the lease. Departures: no leader, no log; a lease that is over is never refreshed, however
 * late the client learns that.
 */
export class ClientBidder implements Bidder {
  readonly ask: number;
  readonly view: number;
  readonly members: readonly ServerId[];
  readonly joint: readonly ServerId[] | undefined;
  readonly order: LeaseOrder;
  readonly deadlineMs: number;
  readonly readMaxMs: number;
  readonly #receivedMs: number;
  readonly #parameters: LeaseParameters;
  readonly #rules: LeaseRules;
  #queried = false;
  #outcome: LeaseOutcome = { kind: 'unknown' };

  /** @param receivedMs lease clock when the order arrived */
  constructor(event: AskEvent, receivedMs: number, parameters: LeaseParameters, rules: LeaseRules) {
    this.ask = event.ask;
    this.view = event.view;
    this.members = event.members;
    this.joint = event.joint;
    this.order = event.order;
    this.deadlineMs = event.deadlineMs;
    this.readMaxMs = parameters.attemptMaxMs;
    this.#receivedMs = receivedMs;
    this.#parameters = parameters;
    this.#rules = rules;
  }

  /**
   * A READ would void the holder's refreshes, so orders `query`, and `acquire` of a taken cell, first send queries. If
   * answers differ, or the cell is free, the next attempt uses READ.
   */
  queriesFirst(accepted: Lease | null, nowMs: number): boolean {
    if (this.#queried) return false;
    this.#queried = true;
    if (this.order.kind === 'query') return true;
    if (this.order.kind !== 'acquire' || accepted === null || this.isMine(accepted)) return false;
    return !accepted.released && nowMs < accepted.untilMs;
  }

  isOwnKind(lease: Lease): boolean {
    return lease.claim !== null;
  }

  get outcome(): LeaseOutcome {
    return this.#outcome;
  }

  isMine(lease: Lease): boolean {
    return this.order.kind !== 'query' && lease.claim?.session === this.order.session;
  }

  bid(finding: Finding, attempt: ReadingAttempt, nowMs: number): Bid {
    if (attempt.query) return this.#reportQuery(finding, attempt, nowMs);
    const { order } = this;
    const mine = finding.kind !== 'free' && this.isMine(finding.lease);
    switch (order.kind) {
      case 'acquire':
        if (finding.kind === 'free') return this.#acquire(order, attempt, nowMs);
        if (finding.kind === 'held' && mine) return this.#extend(order.spanMs, null, finding.lease, attempt);
        return this.#report(finding, attempt, nowMs);
      case 'refresh':
        if (finding.kind !== 'held' || !mine || this.#hasChanged(order, finding.lease))
          return this.#report(finding, attempt, nowMs);
        return this.#extend(order.spanMs, order.note?.text ?? null, finding.lease, attempt);
      case 'release':
        if (!mine) return this.#report(finding, attempt, nowMs);
        this.#outcome = { kind: 'free', lease: null };
        return this.#write({ ...finding.lease, released: true }, attempt, 'renew', 0);
      case 'query':
        return this.#report(finding, attempt, nowMs);
      default:
        return unreachable(order);
    }
  }

  /** Reports a query's finding if all answers agree and nothing has to be written. */
  #reportQuery(finding: Finding, attempt: ReadingAttempt, nowMs: number): Bid {
    const useful = this.order.kind === 'query' || (finding.kind !== 'free' && !this.isMine(finding.lease));
    if (!useful || !attempt.unanimous) return { kind: 'wait', untilMs: nowMs };
    return this.#report(finding, attempt, nowMs);
  }

  #acquire(order: Extract<LeaseOrder, { kind: 'acquire' }>, attempt: ReadingAttempt, nowMs: number): Bid {
    const token = ballotToken(attempt.ballot, this.#parameters);
    // Ballots may differ in the server only, but tokens must rise.
    if (token <= ballotToken(attempt.highest, this.#parameters)) return { kind: 'wait', untilMs: nowMs };
    const { session, note, spanMs } = order;
    const lease = this.#newLease({ session, token, note }, spanMs, attempt);
    this.#setGranted(lease);
    return this.#write(lease, attempt, 'acquire', spanMs);
  }

  /** An earlier attempt of the same order may have written its note. */
  #hasChanged({ note }: Extract<LeaseOrder, { kind: 'refresh' }>, { claim }: Lease): boolean {
    return note !== null && claim?.note !== note.before && claim?.note !== note.text;
  }

  /** @param note null: as it is */
  #extend(spanMs: number, note: string | null, found: Lease, attempt: ReadingAttempt): Bid {
    const claim = found.claim as Claim;
    const fresh = this.#newLease({ ...claim, note: note ?? claim.note }, spanMs, attempt);
    const lease = { ...fresh, untilMs: this.#rules.extendedMs(found.untilMs, fresh.untilMs) };
    this.#setGranted(lease);
    return this.#write(lease, attempt, 'renew', spanMs);
  }

  /** Changes nothing, but writes back a lease that only some answers have, so that later queries report the same. */
  #report(finding: Finding, attempt: ReadingAttempt, nowMs: number): Bid {
    const lease = finding.kind === 'free' ? null : this.#claimedLease(finding.lease, finding, nowMs);
    const { order } = this;
    if (order.kind === 'acquire' && lease !== null) this.#outcome = { kind: 'taken', lease };
    else if (order.kind === 'query' && lease !== null) this.#outcome = { kind: 'seen', lease };
    else if (
      order.kind === 'refresh' &&
      lease !== null &&
      finding.kind === 'held' &&
      this.isMine(finding.lease)
    )
      this.#outcome = { kind: 'changed', lease };
    else this.#outcome = { kind: 'free', lease };
    const open = finding.kind === 'held' && !attempt.unanimous && this.#rules.helps;
    if (!open) return { kind: 'done' };
    return { kind: 'write', lease: finding.lease, spanMs: 0, reason: 'help' };
  }

  #newLease(claim: Claim, spanMs: number, attempt: ReadingAttempt): Lease {
    const { self: holder, incarnation } = this.#parameters;
    const untilMs = this.#rules.endMs(attempt.startedMs, spanMs);
    return { holder, incarnation, untilMs, uid: attempt.ballot, released: false, claim };
  }

  #write(lease: Lease, attempt: ReadingAttempt, reason: 'acquire' | 'renew', spanMs: number): Bid {
    const { self: holder, incarnation } = this.#parameters;
    const written = { ...lease, holder, incarnation, uid: attempt.ballot };
    return { kind: 'write', lease: written, spanMs, reason };
  }

  #setGranted(lease: Lease): void {
    const { session, token, note } = lease.claim as Claim;
    const remainingMs = Math.max(0, (lease.untilMs - this.#receivedMs) * (1 - CLOCK_DRIFT_MAX));
    this.#outcome = { kind: 'granted', lease: { session, token, note, remainingMs } };
  }

  #claimedLease(lease: Lease, finding: Finding, nowMs: number): ClaimedLease {
    const { session, token, note } = lease.claim as Claim;
    const untilMs = finding.kind === 'grace' ? finding.untilMs : lease.untilMs;
    return { session, token, note, remainingMs: Math.max(0, untilMs - nowMs) };
  }
}
