import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare } from './ballot.ts';
import { type Lease, leaseAge } from './lease.ts';
import type { LeaseParameters } from './parameters.ts';

/** Answers of one phase, at most one per server: a network that repeats an answer adds no voter. */
interface Tally {
  /** Bit per member that has answered, so that nobody is counted twice. */
  readonly answered: number;
  readonly acks: number;
  readonly nacks: number;
}

const TALLY_EMPTY: Tally = { answered: 0, acks: 0, nacks: 0 };

/** Members fit the bits of `answered`. */
export const MEMBERS_MAX = 30;

interface AttemptBase {
  readonly ballot: Ballot;
  /** t0: own clock before the first READ left. The lease is counted from here, whenever it is decided. */
  readonly startedMs: number;
  readonly repeatAtMs: number;
  readonly tally: Tally;
}

/** READs are out. */
export interface ReadingAttempt extends AttemptBase {
  readonly phase: 'reading';
  /** What was written with the largest ballot among the answers so far. */
  readonly written: Ballot;
  readonly lease: Lease | null;
}

/** WRITEs are out. Whatever happens to the attempt now, its lease may be chosen. */
export interface WritingAttempt extends AttemptBase {
  readonly phase: 'writing';
  readonly lease: Lease;
  readonly acquires: boolean;
}

/** One attempt to get, renew or confirm a cell's lease. [Flease] Alg. 4. */
export type Attempt = ReadingAttempt | WritingAttempt;

/** What a majority's answers ask for. */
export type Proposal =
  /** The lease found is over here but perhaps not at its holder: start again after `untilMs`. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  | {
      readonly kind: 'write';
      readonly lease: Lease;
      readonly acquires: boolean;
      readonly reason: 'acquire' | 'renew' | 'help';
    };

export function attemptStart(ballot: Ballot, nowMs: number, parameters: LeaseParameters): ReadingAttempt {
  return {
    phase: 'reading',
    ballot,
    startedMs: nowMs,
    repeatAtMs: nowMs + parameters.repeatMs,
    tally: TALLY_EMPTY,
    written: BALLOT_ZERO,
    lease: null,
  };
}

/** When the attempt is given up. The deadline of a WRITE is looser: it only bounds a wait. */
export function attemptDeadlineMs(attempt: Attempt, parameters: LeaseParameters): number {
  return attempt.startedMs + (attempt.phase === 'reading' ? 1 : 2) * parameters.attemptMaxMs;
}

/** @returns the tally with the member's vote, or null if it has voted already or is no member */
export function tallyAdd(
  tally: Tally,
  members: readonly ServerId[],
  from: ServerId,
  vote: 'ack' | 'nack',
): Tally | null {
  const index = members.indexOf(from);
  if (index < 0) return null;
  const bit = 1 << index;
  if ((tally.answered & bit) !== 0) return null;
  const answered = tally.answered | bit;
  return vote === 'ack'
    ? { answered, acks: tally.acks + 1, nacks: tally.nacks }
    : { answered, acks: tally.acks, nacks: tally.nacks + 1 };
}

/** Whether a member has not answered yet, so that the request is repeated to it. */
export function tallyAwaits(tally: Tally, index: number): boolean {
  return (tally.answered & (1 << index)) === 0;
}

export function tallyWon(tally: Tally, memberCount: number): boolean {
  return tally.acks >= majority(memberCount);
}

/** Nacks of a minority are ignored: only where too few can still acknowledge is the attempt lost. */
export function tallyLost(tally: Tally, memberCount: number): boolean {
  return tally.nacks > memberCount - majority(memberCount);
}

/** Keeps what was written with the largest ballot; of two answers with one ballot, the released lease. */
export function readingMerge(
  attempt: ReadingAttempt,
  tally: Tally,
  written: Ballot,
  lease: Lease | null,
): ReadingAttempt {
  const order = ballotCompare(written, attempt.written);
  const newer = order > 0 || (order === 0 && lease !== null && lease.released);
  return newer ? { ...attempt, tally, written, lease } : { ...attempt, tally };
}

/**
 * A majority has answered: what to write. [Flease] Alg. 4, lines 3 to 7, with one reading of the clock.
 *
 * A valid lease is always written back, the own one too: it may sit on a minority only, and then the
 * next majority would not see it.
 *
 * Departure: the new end is t0 + t_max. The paper counts from after the READ; then a lease could end
 * t_max after an arbitrarily late WRITE, and an acceptor that restarted and waited in between would
 * have forgotten a promise that still mattered.
 */
export function proposalChoose(
  attempt: ReadingAttempt,
  nowMs: number,
  parameters: LeaseParameters,
): Proposal {
  const { lease, startedMs, ballot } = attempt;
  const { self, incarnation, leaseMs, clockSkewMaxMs } = parameters;
  assert(nowMs >= startedMs, 'Answers come after questions');
  const age = leaseAge(lease, nowMs, clockSkewMaxMs);
  const own = { holder: self, incarnation, untilMs: startedMs + leaseMs, uid: ballot, released: false };
  if (lease === null || age === 'expired') {
    return { kind: 'write', lease: own, acquires: true, reason: 'acquire' };
  }
  if (age === 'grace') return { kind: 'wait', untilMs: lease.untilMs + clockSkewMaxMs };
  const mine = lease.holder === self && lease.incarnation === incarnation;
  if (!mine) return { kind: 'write', lease, acquires: false, reason: 'help' };
  // A renewal never shortens: read leases may run to the old end.
  const untilMs = Math.max(lease.untilMs, own.untilMs);
  return { kind: 'write', lease: { ...own, untilMs }, acquires: false, reason: 'renew' };
}

export function attemptWrite(
  attempt: ReadingAttempt,
  lease: Lease,
  acquires: boolean,
  nowMs: number,
  parameters: LeaseParameters,
): WritingAttempt {
  const { ballot, startedMs } = attempt;
  const repeatAtMs = nowMs + parameters.repeatMs;
  return { phase: 'writing', ballot, startedMs, repeatAtMs, tally: TALLY_EMPTY, lease, acquires };
}
