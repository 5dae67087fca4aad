import type { ServerId } from '../base/ids.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare, ballotMax } from './ballot.ts';
import type { Finding } from './finding.ts';
import { type Group, groupHasMajority, groupHasVeto } from './group.ts';
import type { Lease } from './lease.ts';
import type { LeaseParameters } from './parameters.ts';

/** Answers of one phase, one bit per voter: a repeated answer adds no vote. */
interface Tally {
  readonly acks: number;
  readonly nacks: number;
}

const TALLY_EMPTY: Tally = { acks: 0, nacks: 0 };

export type Bid =
  /** `reason` names the lease's holder: a new one, the bidder that already holds it, or another server. */
  | {
      readonly kind: 'write';
      readonly lease: Lease;
      /** Requested length; PaxosLease sends it instead of an end. */
      readonly spanMs: number;
      readonly reason: 'acquire' | 'renew' | 'help';
    }
  /** Start again with a larger ballot at `untilMs`. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  | { readonly kind: 'done' };

/** The party of an attempt: this server, or a client. */
export interface Bidder {
  /** Time limit for reading a majority. A lease counts from the attempt's start, so a slower attempt is dropped. */
  readonly readMaxMs: number;
  /** Whether to start with a query, given the local acceptor's lease. */
  queriesFirst(accepted: Lease | null, nowMs: number): boolean;
  /** Whether the lease is of the bidder's kind (server or client). */
  isOwnKind(lease: Lease): boolean;
  isMine(lease: Lease): boolean;
  /** Decides after a majority answered. One clock reading, `nowMs`, serves every decision. */
  bid(finding: Finding, attempt: ReadingAttempt, nowMs: number): Bid;
}

interface AttemptBase {
  readonly bidder: Bidder;
  readonly ballot: Ballot;
  /** t0: local clock before the first READ. The lease counts from here, whenever it is decided. */
  readonly startedMs: number;
  repeatAtMs: number;
  tally: Tally;
  /** Voters that were asked in this phase, as bits. */
  asked: number;
}

export interface ReadingAttempt extends AttemptBase {
  readonly phase: 'reading';
  /** The newest write among the answers so far, and its ballot. */
  written: Ballot;
  lease: Lease | null;
  /** Largest write ballot of all answers, even of one whose lease does not count as the newest. */
  highest: Ballot;
  /** All answers so far report the same WRITE. If they are a majority, that WRITE is decided. */
  unanimous: boolean;
  /** Queries were sent instead of READs: without promises this attempt cannot write. */
  readonly query: boolean;
}

/** WRITEs were sent. From now on the lease may be chosen, whatever happens to the attempt. */
export interface WritingAttempt extends AttemptBase {
  readonly phase: 'writing';
  readonly lease: Lease;
  readonly spanMs: number;
  readonly reason: 'acquire' | 'renew' | 'help';
}

/** One attempt to acquire, renew or confirm a cell's lease; answers change it. [Flease] Alg. 4, [PaxosLease] §4. */
export type Attempt = ReadingAttempt | WritingAttempt;

export function attemptStart(
  bidder: Bidder,
  ballot: Ballot,
  query: boolean,
  nowMs: number,
  parameters: LeaseParameters,
): ReadingAttempt {
  return {
    phase: 'reading',
    query,
    bidder,
    ballot,
    startedMs: nowMs,
    repeatAtMs: nowMs + parameters.repeatMs,
    tally: TALLY_EMPTY,
    asked: 0,
    written: BALLOT_ZERO,
    lease: null,
    highest: BALLOT_ZERO,
    unanimous: true,
  };
}

/** When to abort the attempt. The deadline of a WRITE is looser: it only bounds a wait. */
export function attemptDeadlineMs(attempt: Attempt, parameters: LeaseParameters): number {
  const { startedMs, phase, bidder } = attempt;
  return startedMs + bidder.readMaxMs + (phase === 'reading' ? 0 : parameters.attemptMaxMs);
}

/** @returns the tally with the vote added, or null if `from` is no voter or has already voted */
export function tallyAdd(tally: Tally, group: Group, from: ServerId, vote: 'ack' | 'nack'): Tally | null {
  const index = group.voters.indexOf(from);
  if (index < 0) return null;
  const bit = 1 << index;
  if (((tally.acks | tally.nacks) & bit) !== 0) return null;
  return vote === 'ack'
    ? { acks: tally.acks | bit, nacks: tally.nacks }
    : { acks: tally.acks, nacks: tally.nacks | bit };
}

export function tallyWon(tally: Tally, group: Group): boolean {
  return groupHasMajority(group, tally.acks);
}

/** Whether a nack came and too few voters can still ack. Disconnected ones cannot, so that the retry starts sooner. */
export function tallyLost(
  { acks, nacks }: Tally,
  group: Group,
  isDisconnected: (voter: ServerId) => boolean,
): boolean {
  if (nacks === 0) return false;
  const disconnected = group.voters.reduce(
    (bits, voter, place) => (isDisconnected(voter) ? bits | (1 << place) : bits),
    0,
  );
  return groupHasVeto(group, nacks | (disconnected & ~acks));
}

/** Merges one more answer to the READ. @param outranks whether it is newer than the previous answers */
export function readingMerge(
  attempt: ReadingAttempt,
  tally: Tally,
  written: Ballot,
  lease: Lease | null,
  outranks: boolean,
): void {
  const first = attempt.tally.acks === 0;
  const same = first || ballotCompare(written, attempt.highest) === 0;
  attempt.tally = tally;
  attempt.unanimous &&= same;
  attempt.highest = ballotMax(written, attempt.highest);
  if (!outranks) return;
  attempt.written = written;
  attempt.lease = lease;
}

export function attemptWrite(
  attempt: ReadingAttempt,
  bid: Extract<Bid, { kind: 'write' }>,
  nowMs: number,
  parameters: LeaseParameters,
): WritingAttempt {
  const { bidder, ballot, startedMs } = attempt;
  const { lease, spanMs, reason } = bid;
  return {
    phase: 'writing',
    bidder,
    ballot,
    startedMs,
    repeatAtMs: nowMs + parameters.repeatMs,
    tally: TALLY_EMPTY,
    asked: 0,
    lease,
    spanMs,
    reason,
  };
}
