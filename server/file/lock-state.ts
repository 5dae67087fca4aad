import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Timer } from '../../base/world.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { LockBody, LockChangeOfClient, LockOfClient } from '../../wire/lock-api.ts';
import { rangeFromWire } from '../../wire/lock-offsets.ts';
import type { LockTable } from './lock-table.ts';

export interface LockClient {
  readonly holder: string;
  /** A lock lease after the last message was received, by this server's monotonic clock. */
  aliveUntilMs: number;
  /**
   * A lock lease after the last renewal, which lists its locks, or after the request for its first lock. Other messages
   * do not extend it: a lock that the client does not know of has to end while the client waits for it.
   */
  locksUntilMs: number;
  /**
   * Changes under earlier stamps are late: the newest bound in a message of the client, and while it has locks at least
   * its newest stamp when it was granted the first of them.
   */
  sinceStamp: number;
  /** The newest message, and the earlier requests that are still pending. */
  stamp: number;
  pending: ReadonlySet<number>;
  /** `LockState.lapses` when its locks last expired, or the client was new here: its earlier requests are late. */
  lapses: number;
}

export interface WaitingRequest {
  readonly client: number;
  readonly number: number;
  answer: ((outcome: 'granted' | 'deposed' | 'over') => void) | null;
  keptUntilMs: number;
}

/** The locks of a file, as the primary of one epoch knows them. */
export interface LockState {
  readonly epoch: Epoch;
  /** The file has had no earlier primary, so no request was sent to one. */
  readonly isFirst: boolean;
  /** How often the locks of a client expired in this epoch. */
  lapses: number;
  readonly table: LockTable;
  readonly clients: Map<number, LockClient>;
  readonly waiting: Map<number, WaitingRequest>;
  /** Until then, locks of an earlier epoch may be claimed, and no others are granted. */
  graceUntilMs: number;
  readonly afterGrace: Set<() => void>;
  timer: Timer | null;
  timerAtMs: number;
  end(): void;
}

/** The locks at the end of the last epoch whose end is known here; that of another server ended without locks. */
export interface EarlierLocks {
  readonly counter: number;
  readonly locks: readonly LockOfClient[];
  readonly clients: ReadonlyMap<number, Pick<LockClient, 'sinceStamp' | 'stamp' | 'pending'>>;
}

/** Whose locks count together: those of an authenticated holder; without authentication, each client's by itself. */
export function holderOf(client: number, authenticated: string | null): string {
  return authenticated ?? `client ${client}`;
}

export function requestedLock({ client, owner, kind, type, start, end, pid }: LockBody): LockChangeOfClient {
  return { client, owner, kind, type, ...rangeFromWire({ start, end }), pid };
}

export function placeOf(state: LockState, { client, number }: LockBody): number | null {
  for (const [place, waiting] of state.waiting) {
    if (waiting.client === client && waiting.number === number) return place;
  }
  return null;
}

export function lockedError(file: FileId, table: LockTable, wish: LockChangeOfClient): ServiceError {
  const holder = table.conflict(wish);
  assert(wish.type !== 'unlock', 'Nothing stands in the way of an unlock');
  const whose = holder === null ? 'another client' : `owner ${holder.owner} of client ${holder.client}`;
  return new ServiceError('locked', `File ${file} is locked by ${whose}`);
}
