import type { ServerId } from '../base/ids.ts';
import { type Attempt, attemptDeadlineMs } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import type { ClientBidder } from './client-bidder.ts';
import type { LeaseParameters } from './parameters.ts';

/** A RELEASE being repeated. */
export interface Releasing {
  readonly uid: Ballot;
  readonly atMs: number;
  readonly left: number;
}

/** What is under way at one cell. A cell at rest has none: its row says when it begins again. */
export interface Work {
  attempt: Attempt | null;
  /** No attempt before this. */
  attemptAtMs: number;
  backoffMs: number;
  /** Extra delay before competing. */
  handicapMs: number;
  releasing: Releasing | null;
  /** The holder that has chosen this server to be the next, and is about to give the lease back. */
  succeeds: ServerId | null;
  /** Clients that wait; the attempt is for the first. */
  asks: ClientBidder[];
}

export function workBegin(attemptAtMs: number): Work {
  return {
    attempt: null,
    attemptAtMs,
    backoffMs: 0,
    handicapMs: 0,
    releasing: null,
    succeeds: null,
    asks: [],
  };
}

/** Whether all that is left is the time of the next attempt. */
export function workIsDone(work: Work): boolean {
  const { attempt, backoffMs, handicapMs, releasing, succeeds, asks } = work;
  if (attempt !== null || releasing !== null || succeeds !== null) return false;
  return backoffMs === 0 && handicapMs === 0 && asks.length === 0;
}

/** When something is to be repeated, begun or given up. `open`: this server wants the cell for itself. */
export function workDueMs(work: Work, open: boolean, parameters: LeaseParameters): number {
  const { attempt, attemptAtMs, releasing, asks } = work;
  let dueMs = Infinity;
  if (attempt !== null) dueMs = Math.min(attempt.repeatAtMs, attemptDeadlineMs(attempt, parameters));
  else if (open || asks.length > 0) dueMs = attemptAtMs;
  if (releasing !== null) dueMs = Math.min(dueMs, releasing.atMs);
  for (const { deadlineMs } of asks) dueMs = Math.min(dueMs, deadlineMs);
  return dueMs;
}
