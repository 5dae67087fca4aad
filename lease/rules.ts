import type { ReadingAttempt } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import type { Finding } from './finding.ts';
import type { Lease } from './lease.ts';
import type { WriteMessage } from './messages.ts';
import type { Recovery } from './recovery.ts';
import type { Register } from './register.ts';

/** Why an acceptor refuses a request that its register would allow. */
export type Refusal = 'old' | 'future' | 'still-valid';

/** Where the two algorithms differ: the meaning of a lease's end, and the acceptable ballots. */
export interface LeaseRules {
  readonly recovery: Recovery;
  /** Whether another server's lease may be written back, so that it is certainly decided. */
  readonly helps: boolean;
  readonly comparesClocks: boolean;
  /** Why a ballot's time is not acceptable, or null. */
  ballotRefusal(k: Ballot, nowMs: number): 'old' | 'future' | null;
  /** Why the lease of a WRITE is not acceptable, or null. */
  writeRefusal(register: Register, write: WriteMessage, nowMs: number): Refusal | null;
  /** Whether the lease ends later than any server within bounds would set. */
  isTooLong(lease: Lease, nowMs: number): boolean;
  /** End of a lease for its holder, which asked for `spanMs` at `startedMs`. */
  endMs(startedMs: number, spanMs: number): number;
  /** The same for a holder that extends a lease found to end at `foundMs`. Never shortens it. */
  extendedMs(foundMs: number, untilMs: number): number;
  /** A lease as a WRITE carries it. */
  leaseToWrite(lease: Lease, spanMs: number): Lease;
  /** A WRITE's lease as the acceptor stores it instead of `before`. */
  leaseToStore(lease: Lease, before: Lease | null, nowMs: number): Lease;
  /** A stored lease as messages carry it; null if it is over. */
  leaseToSend(lease: Lease, nowMs: number): Lease | null;
  /** A received lease, on this server's clock. */
  leaseReceived(lease: Lease, nowMs: number): Lease;
  /** Whether the answer (`written`, `lease`) is newer than the previous ones of the attempt. */
  outranks(attempt: ReadingAttempt, written: Ballot, lease: Lease | null): boolean;
  finding(attempt: ReadingAttempt, nowMs: number): Finding;
}
