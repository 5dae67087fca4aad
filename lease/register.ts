import { assert } from '../base/assert.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare, ballotMax } from './ballot.ts';
import { type Lease, leaseAge, leaseSameHolder } from './lease.ts';

/** An acceptor's memory of a cell: the register of [Register]. In memory only; `recovery.ts` says why that is safe. */
export interface Register {
  /** Smaller READs and WRITEs are refused. Never decreases. */
  readonly readBallot: Ballot;
  /** Ballot of the last accepted WRITE. Exceeds `readBallot` if a READ was lost. */
  readonly writeBallot: Ballot;
  readonly lease: Lease | null;
}

export const REGISTER_EMPTY: Register = { readBallot: BALLOT_ZERO, writeBallot: BALLOT_ZERO, lease: null };

export type ReadReply =
  | {
      readonly kind: 'ack-read';
      readonly ballot: Ballot;
      readonly written: Ballot;
      readonly lease: Lease | null;
    }
  | { readonly kind: 'nack-read'; readonly ballot: Ballot; readonly largestBallot: Ballot };

export type WriteReply =
  | { readonly kind: 'ack-write'; readonly ballot: Ballot }
  | { readonly kind: 'nack-write'; readonly ballot: Ballot; readonly largestBallot: Ballot };

export function registerBallotMax(register: Register): Ballot {
  return ballotMax(register.readBallot, register.writeBallot);
}

/**
 * READ(k): promise to refuse every smaller ballot from now on, and return the last write. [Flease] Alg. 1, "upon
 * receive (READ, k)"; gives lemmas R1 and R3.
 *
 * Beyond the paper: a nack carries the larger ballot, so that the proposer can overtake it in one round. A nack
 * promises nothing, so the lemmas still hold. A READ may also be repeated: if nothing was written since, the second
 * answer promises the same as the first.
 */
export function registerRead(register: Register, k: Ballot): [Register, ReadReply] {
  assert(ballotCompare(k, BALLOT_ZERO) > 0, 'The codec lets no zero ballot in');
  const { readBallot, writeBallot, lease } = register;
  const repeated = ballotCompare(k, readBallot) === 0 && ballotCompare(writeBallot, k) < 0;
  if (repeated) return [register, { kind: 'ack-read', ballot: k, written: writeBallot, lease }];
  const largestBallot = registerBallotMax(register);
  if (ballotCompare(largestBallot, k) >= 0)
    return [register, { kind: 'nack-read', ballot: k, largestBallot }];
  const next = { readBallot: k, writeBallot, lease };
  return [next, { kind: 'ack-read', ballot: k, written: writeBallot, lease }];
}

/**
 * WRITE(k, λ): accept unless a larger ballot was promised or written. [Flease] Alg. 1, "upon receive (WRITE, k)";
 * gives lemmas R2 and R5. A repeated WRITE is acknowledged again.
 */
export function registerWrite(register: Register, k: Ballot, lease: Lease): [Register, WriteReply] {
  assert(ballotCompare(k, BALLOT_ZERO) > 0, 'The codec lets no zero ballot in');
  const largestBallot = registerBallotMax(register);
  // > and not ≥: the proposer that read with k writes with the same k. R3 as printed would forbid that (k'' ≤ k); we
  // follow Alg. 1 and [Register].
  if (ballotCompare(largestBallot, k) > 0)
    return [register, { kind: 'nack-write', ballot: k, largestBallot }];
  // A repeated WRITE does not undo a RELEASE that came in between.
  const again = ballotCompare(register.writeBallot, k) === 0;
  if (again) return [register, { kind: 'ack-write', ballot: k }];
  // Not raised to k: a WRITE may arrive where its READ was lost, so write > read is legal. Sharing the object if they
  // are equal halves the memory of an idle cell.
  const readBallot = ballotCompare(register.readBallot, k) === 0 ? k : register.readBallot;
  return [
    { readBallot, writeBallot: k, lease },
    { kind: 'ack-write', ballot: k },
  ];
}

/**
 * Whether λ would replace another holder's lease that is valid on this clock. With a correct clock no proposer asks
 * that after a majority reported the lease; one with a fast clock needs a majority of fast acceptors. Beyond the paper.
 */
export function registerStillValid(register: Register, acquired: Lease, nowMs: number): boolean {
  const held = register.lease;
  if (held === null || leaseSameHolder(held, acquired)) return false;
  return leaseAge(held, nowMs, 0) === 'valid';
}

/** RELEASE(uid): voids the holder's writes up to `uid`, but no later lease. Never matched by holder alone. */
export function registerRelease(register: Register, uid: Ballot): Register {
  const { lease } = register;
  if (lease === null || lease.released) return register;
  const { server, incarnation } = uid;
  if (lease.holder !== server || lease.incarnation !== incarnation) return register;
  if (ballotCompare(lease.uid, uid) > 0) return register;
  return { ...register, lease: { ...lease, released: true } };
}
