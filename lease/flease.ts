import type { ReadingAttempt } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import { ballotCompare } from './ballot.ts';
import type { Finding } from './finding.ts';
import { type Lease, leaseAge } from './lease.ts';
import type { WriteMessage } from './messages.ts';
import type { LeaseParameters } from './parameters.ts';
import { ballotRefusal, type Recovery, recoveryStart } from './recovery.ts';
import { type Register, registerStillValid } from './register.ts';
import type { LeaseRules, Refusal } from './rules.ts';

/** [Flease]: leases end at a moment of clocks within ε of each other, so every server can tell when a lease is over. */
export class FleaseRules implements LeaseRules {
  readonly recovery: Recovery;
  readonly helps = true;
  readonly comparesClocks = true;
  readonly #parameters: LeaseParameters;

  constructor(parameters: LeaseParameters, startedMs: number) {
    this.#parameters = parameters;
    this.recovery = recoveryStart(startedMs, parameters);
  }

  ballotRefusal(k: Ballot, nowMs: number): 'old' | 'future' | null {
    return ballotRefusal(k, this.recovery.floor, nowMs, this.#parameters);
  }

  /** @returns why this acceptor refuses a WRITE that its register would allow; null if it does not */
  writeRefusal(register: Register, write: WriteMessage, nowMs: number): Refusal | null {
    const { lease, acquires } = write;
    if (this.isTooLong(lease, nowMs)) return 'future';
    if (acquires && registerStillValid(register, lease, nowMs)) return 'still-valid';
    return null;
  }

  /** No clock within bounds sets such an end; accepting it would block the cell until then. */
  isTooLong(lease: Lease, nowMs: number): boolean {
    const { leaseMs, clockSkewMaxMs } = this.#parameters;
    return lease.untilMs > nowMs + leaseMs + clockSkewMaxMs;
  }

  /**
   * Departure: a lease counts from before the READ, in the paper from after it. There it could end t_max after an
   * arbitrarily late WRITE, and an acceptor restarted in between would have forgotten a promise that still mattered.
   */
  endMs(startedMs: number, spanMs: number): number {
    return startedMs + spanMs;
  }

  /** Never earlier: read leases may run to the old end, and a clock may have been behind when this attempt started. */
  extendedMs(foundMs: number, untilMs: number): number {
    return Math.max(foundMs, untilMs);
  }

  leaseToWrite(lease: Lease): Lease {
    return lease;
  }

  leaseToStore(lease: Lease): Lease {
    return lease;
  }

  leaseToSend(lease: Lease): Lease {
    return lease;
  }

  leaseReceived(lease: Lease): Lease {
    return lease;
  }

  /** The write with the largest ballot counts; between equal ballots, the released lease. */
  outranks(attempt: ReadingAttempt, written: Ballot, lease: Lease | null): boolean {
    const order = ballotCompare(written, attempt.written);
    return order > 0 || (order === 0 && lease !== null && lease.released);
  }

  finding(attempt: ReadingAttempt, nowMs: number): Finding {
    const { lease } = attempt;
    const { clockSkewMaxMs } = this.#parameters;
    const age = leaseAge(lease, nowMs, clockSkewMaxMs);
    if (lease === null || age === 'expired') return { kind: 'free' };
    if (age === 'grace') return { kind: 'grace', lease, untilMs: lease.untilMs + clockSkewMaxMs };
    return { kind: 'held', lease };
  }
}
