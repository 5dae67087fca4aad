import { assert } from '../base/assert.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare, ballotMax } from './ballot.ts';
import { type Lease, leaseAge, leaseSameHolder } from './lease.ts';

/**
 * One acceptor's memory of one cell: the round-based register of [Register], kept in memory only.
 * A restart empties it; `recovery.ts` says why that is safe.
 */
export interface Register {
  /** Smaller READs and WRITEs are refused. Never moves back. */
  readonly readBallot: Ballot;
  /** Ballot of the last WRITE accepted. May exceed `readBallot`, where a READ was lost. */
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
  | { readonly kind: 'nack-read'; readonly ballot: Ballot; readonly standing: Ballot };

export type WriteReply =
  | { readonly kind: 'ack-write'; readonly ballot: Ballot }
  | { readonly kind: 'nack-write'; readonly ballot: Ballot; readonly standing: Ballot };

/** The largest ballot promised or accepted. */
export function registerStanding(register: Register): Ballot {
  return ballotMax(register.readBallot, register.writeBallot);
}

/**
 * READ(k): promise to refuse every smaller ballot from now on, and tell what was written last.
 * [Flease] Alg. 1, "upon receive (READ, k)"; gives lemmas R1 and R3.
 *
 * Beyond the paper: a nack names the ballot that stands in the way, so that the proposer can overtake
 * it in one round. A nack promises nothing, so the lemmas are untouched. And a READ may be repeated:
 * as long as nothing was written since, the second answer promises what the first one did.
 */
export function registerRead(register: Register, k: Ballot): [Register, ReadReply] {
  assert(ballotCompare(k, BALLOT_ZERO) > 0, 'The codec lets no zero ballot in');
  const { readBallot, writeBallot, lease } = register;
  const repeated = ballotCompare(k, readBallot) === 0 && ballotCompare(writeBallot, k) < 0;
  if (repeated) return [register, { kind: 'ack-read', ballot: k, written: writeBallot, lease }];
  const standing = registerStanding(register);
  if (ballotCompare(standing, k) >= 0) return [register, { kind: 'nack-read', ballot: k, standing }];
  const next = { readBallot: k, writeBallot, lease };
  return [next, { kind: 'ack-read', ballot: k, written: writeBallot, lease }];
}

/**
 * WRITE(k, λ): accept unless a larger ballot was promised or written. [Flease] Alg. 1, "upon receive
 * (WRITE, k)"; gives lemmas R2 and R5. A repeated WRITE is accepted again.
 */
export function registerWrite(register: Register, k: Ballot, lease: Lease): [Register, WriteReply] {
  assert(ballotCompare(k, BALLOT_ZERO) > 0, 'The codec lets no zero ballot in');
  const standing = registerStanding(register);
  // > and not ≥: the proposer that read with k writes with the same k. R3 as printed would forbid
  // that (k'' ≤ k); we follow Alg. 1 and [Register].
  if (ballotCompare(standing, k) > 0) return [register, { kind: 'nack-write', ballot: k, standing }];
  // A RELEASE that came between a WRITE and its repetition is not undone by the latter.
  const again = ballotCompare(register.writeBallot, k) === 0;
  if (again) return [register, { kind: 'ack-write', ballot: k }];
  // Not below: a WRITE may arrive where its READ was lost, so write > read is legal. Sharing the
  // object where they are equal halves what a quiet cell costs.
  const readBallot = ballotCompare(register.readBallot, k) === 0 ? k : register.readBallot;
  return [
    { readBallot, writeBallot: k, lease },
    { kind: 'ack-write', ballot: k },
  ];
}

/**
 * Whether accepting λ would take the cell from somebody whose lease is valid on this clock too. A
 * proposer whose clock is right never asks for that once a majority told it the lease; one whose
 * clock runs ahead then needs a majority of acceptors whose clocks do. Beyond the paper.
 */
export function registerStillValid(register: Register, acquired: Lease, nowMs: number): boolean {
  const held = register.lease;
  if (held === null || leaseSameHolder(held, acquired)) return false;
  return leaseAge(held, nowMs, 0) === 'valid';
}

/**
 * RELEASE(uid): the holder has stopped. Everything it wrote up to `uid` is void; a lease it acquired
 * later is not, so a delayed RELEASE harms nobody. Never matched by holder alone.
 */
export function registerRelease(register: Register, uid: Ballot): Register {
  const { lease } = register;
  if (lease === null || lease.released) return register;
  const { server, incarnation } = uid;
  if (lease.holder !== server || lease.incarnation !== incarnation) return register;
  if (ballotCompare(lease.uid, uid) > 0) return register;
  return { ...register, lease: { ...lease, released: true } };
}
