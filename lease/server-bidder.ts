import type { Bid, Bidder, ReadingAttempt } from './attempt.ts';
import type { Finding } from './finding.ts';
import type { Lease } from './lease.ts';
import type { LeaseParameters } from './parameters.ts';
import type { LeaseRules } from './rules.ts';

/** Bids for this server; [Flease] Alg. 4, lines 3 to 7. Always writes a valid lease back, as a minority may have it. */
export class ServerBidder implements Bidder {
  readonly readMaxMs: number;
  readonly #parameters: LeaseParameters;
  readonly #rules: LeaseRules;

  constructor(parameters: LeaseParameters, rules: LeaseRules) {
    this.readMaxMs = parameters.serverReadMaxMs;
    this.#parameters = parameters;
    this.#rules = rules;
  }

  queriesFirst(): boolean {
    return false;
  }

  isOwnKind(lease: Lease): boolean {
    return lease.claim === null;
  }

  isMine(lease: Lease): boolean {
    const { self, incarnation } = this.#parameters;
    return lease.holder === self && lease.incarnation === incarnation && lease.claim === null;
  }

  bid(finding: Finding, attempt: ReadingAttempt): Bid {
    const { self, incarnation, leaseMs } = this.#parameters;
    const { startedMs, ballot } = attempt;
    const untilMs = this.#rules.endMs(startedMs, leaseMs);
    const own = { holder: self, incarnation, untilMs, uid: ballot, released: false, claim: null };
    if (finding.kind === 'free') return { kind: 'write', lease: own, spanMs: leaseMs, reason: 'acquire' };
    const { lease } = finding;
    if (finding.kind === 'grace') return { kind: 'wait', untilMs: finding.untilMs };
    if (this.isMine(lease)) {
      const renewed = { ...own, untilMs: this.#rules.extendedMs(lease.untilMs, untilMs) };
      return { kind: 'write', lease: renewed, spanMs: leaseMs, reason: 'renew' };
    }
    if (!this.#rules.helps) return { kind: 'wait', untilMs: lease.untilMs };
    return { kind: 'write', lease, spanMs: 0, reason: 'help' };
  }
}
