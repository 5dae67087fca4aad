import type { ReadingAttempt } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import type { Finding } from './finding.ts';
import type { Lease } from './lease.ts';
import type { WriteMessage } from './messages.ts';
import type { Recovery } from './recovery.ts';
import type { Register } from './register.ts';

/** Why an acceptor refuses a request that its register would allow. */
export type Refusal = 'old' | 'future' | 'still-valid';

/**
 * Where the two algorithms differ: what a lease's end means, and which ballots are of this time. All
 * else is the same: a register that promises, majorities, one attempt of two phases.
 */
export interface LeaseRules {
  /** The silence after this start. */
  readonly recovery: Recovery;
  /** Whether a lease of another that was found may be written back, so that it is certainly decided. */
  readonly helps: boolean;
  /** Whether peers' clocks matter. */
  readonly comparesClocks: boolean;
  /** Whether a ballot is not of this time. */
  ballotRefusal(k: Ballot, nowMs: number): 'old' | 'future' | null;
  /** Whether the lease of a WRITE cannot be right. */
  writeRefusal(register: Register, write: WriteMessage, nowMs: number): Refusal | null;
  /** Whether no server within bounds can have said that a lease lasts so long. */
  isTooLong(lease: Lease, nowMs: number): boolean;
  /** When a lease ends for its holder that asked for `spanMs` at `startedMs`. */
  endMs(startedMs: number, spanMs: number): number;
  /** The same for a holder that extends a lease that was found to end at `foundMs`. Never shortens. */
  extendedMs(foundMs: number, untilMs: number): number;
  /** A lease to be accepted, as it is sent in a WRITE. */
  asked(lease: Lease, spanMs: number): Lease;
  /** A lease of a WRITE, as an acceptor keeps it in the place of `before`. */
  kept(lease: Lease, before: Lease | null, nowMs: number): Lease;
  /** A lease that is kept here, as others are told of it; null if it is over. */
  told(lease: Lease, nowMs: number): Lease | null;
  /** A lease that others told of, on this server's clock. */
  heard(lease: Lease, nowMs: number): Lease;
  /** Whether the answer (`written`, `lease`) says more than those that the attempt has so far. */
  outranks(attempt: ReadingAttempt, written: Ballot, lease: Lease | null): boolean;
  finding(attempt: ReadingAttempt, nowMs: number): Finding;
}
