import type { ServerId } from '../base/ids.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare, ballotMax } from './ballot.ts';
import type { Finding } from './finding.ts';
import { type Group, groupHasMajority, groupHasVeto } from './group.ts';
import type { Lease } from './lease.ts';
import type { LeaseParameters } from './parameters.ts';

/** Answers of one phase, a bit for each voter: a network that repeats an answer adds no vote. */
interface Tally {
  readonly acks: number;
  readonly nacks: number;
}

const TALLY_EMPTY: Tally = { acks: 0, nacks: 0 };

/** What to do with what a majority has answered. */
export type Bid =
  /** `reason`: for whom λ is written: a new holder, the one that has it, or another whose lease was found. */
  | {
      readonly kind: 'write';
      readonly lease: Lease;
      /** Length asked for; what PaxosLease sends in place of an end. */
      readonly spanMs: number;
      readonly reason: 'acquire' | 'renew' | 'help';
    }
  /** Nothing to be had before then: begin anew with a larger ballot. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  /** Nothing to write. */
  | { readonly kind: 'done' };

/** On whose behalf an attempt is made: this server's own, or a client's. */
export interface Bidder {
  /** An attempt that has not read a majority after so long is dropped, because its lease is counted from its start. */
  readonly readMaxMs: number;
  /** Whether a query is enough to begin with, given what the own acceptor holds. */
  queriesFirst(accepted: Lease | null, nowMs: number): boolean;
  /** Whether a lease that was found is one of those that the bidder can hold. */
  knows(lease: Lease): boolean;
  /** Whether a lease that was found is the bidder's. */
  isMine(lease: Lease): boolean;
  /** One reading of the clock, `nowMs`, serves every decision about what was found. */
  bid(finding: Finding, attempt: ReadingAttempt, nowMs: number): Bid;
}

interface AttemptBase {
  readonly bidder: Bidder;
  readonly ballot: Ballot;
  /** t0: own clock before the first READ left. The lease is counted from here, whenever it is decided. */
  readonly startedMs: number;
  readonly repeatAtMs: number;
  readonly tally: Tally;
  /** Bit per voter that was asked in this phase. */
  readonly asked: number;
}

/** READs are out. */
export interface ReadingAttempt extends AttemptBase {
  readonly phase: 'reading';
  /** What counts among the answers so far, and the ballot it was written with. */
  readonly written: Ballot;
  readonly lease: Lease | null;
  /** The largest ballot of all that was written. */
  readonly highest: Ballot;
  /** Every answer so far tells of the same WRITE: if they are a majority, it is decided. */
  readonly unanimous: boolean;
  /** Queries are out instead of READs: nobody has promised anything, so nothing can be written. */
  readonly query: boolean;
}

/** WRITEs are out. Whatever happens to the attempt now, its lease may be chosen. */
export interface WritingAttempt extends AttemptBase {
  readonly phase: 'writing';
  readonly lease: Lease;
  readonly spanMs: number;
  readonly reason: 'acquire' | 'renew' | 'help';
}

/** One attempt to get, renew or confirm a cell's lease. [Flease] Alg. 4, [PaxosLease] §4. */
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

/** When the attempt is given up. The deadline of a WRITE is looser: it only bounds a wait. */
export function attemptDeadlineMs(attempt: Attempt, parameters: LeaseParameters): number {
  const { startedMs, phase, bidder } = attempt;
  return startedMs + bidder.readMaxMs + (phase === 'reading' ? 0 : parameters.attemptMaxMs);
}

/** @returns the tally with the voter's vote, or null if it has voted already or is no voter */
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

/**
 * Nacks of a minority are ignored: only where too few can still acknowledge is the attempt lost. Once somebody has
 * refused, whoever is not connected counts as one who would: another attempt begins sooner.
 */
export function tallyLost(
  { acks, nacks }: Tally,
  group: Group,
  isAway: (voter: ServerId) => boolean,
): boolean {
  if (nacks === 0) return false;
  const away = group.voters.reduce((bits, voter, place) => (isAway(voter) ? bits | (1 << place) : bits), 0);
  return groupHasVeto(group, nacks | (away & ~acks));
}

/**
 * Takes one more answer to the READ.
 *
 * @param outranks whether it says more than those before
 */
export function readingMerge(
  attempt: ReadingAttempt,
  tally: Tally,
  written: Ballot,
  lease: Lease | null,
  outranks: boolean,
): ReadingAttempt {
  const first = attempt.tally.acks === 0;
  const same = first || ballotCompare(written, attempt.highest) === 0;
  const unanimous = attempt.unanimous && same;
  const highest = ballotMax(written, attempt.highest);
  return outranks
    ? { ...attempt, tally, written, lease, highest, unanimous }
    : { ...attempt, tally, highest, unanimous };
}

export function attemptWrite(
  attempt: ReadingAttempt,
  bid: Extract<Bid, { kind: 'write' }>,
  nowMs: number,
  parameters: LeaseParameters,
): WritingAttempt {
  const { bidder, ballot, startedMs } = attempt;
  const { lease, spanMs, reason } = bid;
  const repeatAtMs = nowMs + parameters.repeatMs;
  const base = { bidder, ballot, startedMs, repeatAtMs, tally: TALLY_EMPTY, asked: 0 };
  return { phase: 'writing', ...base, lease, spanMs, reason };
}
