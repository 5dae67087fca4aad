import type { ServerId } from '../base/ids.ts';
import { type Attempt, attemptDeadlineMs } from './attempt.ts';
import type { Ballot } from './ballot.ts';
import type { ClientBidder } from './client-bidder.ts';
import type { LeaseParameters } from './parameters.ts';

/** RELEASE(uid) is sent `left` more times, next at `atMs`. */
export interface Releasing {
  readonly uid: Ballot;
  readonly atMs: number;
  readonly left: number;
}

/** What is under way at one cell. An idle cell has no `CellWork`; its row has the time of the next attempt. */
export interface CellWork {
  attempt: Attempt | null;
  /** No attempt starts before this time. */
  attemptAtMs: number;
  backoffMs: number;
  handicapMs: number;
  releasing: Releasing | null;
  /** The holder that chose this server as the next and is about to release its lease. */
  predecessor: ServerId | null;
  /** Waiting clients; the attempt is for the first. */
  orders: ClientBidder[];
}

export function workBegin(attemptAtMs: number): CellWork {
  return {
    attempt: null,
    attemptAtMs,
    backoffMs: 0,
    handicapMs: 0,
    releasing: null,
    predecessor: null,
    orders: [],
  };
}

export function workIsDone(work: CellWork): boolean {
  const { attempt, backoffMs, handicapMs, releasing, predecessor, orders } = work;
  if (attempt !== null || releasing !== null || predecessor !== null) return false;
  return backoffMs === 0 && handicapMs === 0 && orders.length === 0;
}

/** When to repeat, start or abort something. `open`: this server competes for the cell. */
export function workDueMs(work: CellWork, open: boolean, parameters: LeaseParameters): number {
  const { attempt, attemptAtMs, releasing, orders } = work;
  let dueMs = Infinity;
  if (attempt !== null) dueMs = Math.min(attempt.repeatAtMs, attemptDeadlineMs(attempt, parameters));
  else if (open || orders.length > 0) dueMs = attemptAtMs;
  if (releasing !== null) dueMs = Math.min(dueMs, releasing.atMs);
  for (const { deadlineMs } of orders) dueMs = Math.min(dueMs, deadlineMs);
  return dueMs;
}
