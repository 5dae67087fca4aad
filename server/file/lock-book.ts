import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Timer } from '../../base/world.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { LockBody, LockOfClient, WishOfClient } from '../../wire/lock-api.ts';
import { rangeFromWire } from '../../wire/lock-offsets.ts';
import type { LockTable } from './lock-table.ts';

/** A client that has locks of a file, or waits for one. */
export interface Client {
  /** Whose locks they count as. @see LockShares */
  readonly holder: string;
  /** By this server's monotonic clock, from when the last message was received: until then its requests wait. */
  aliveUntilMs: number;
  /**
   * Until then it has its locks: from when the last renewal was received, which names them, or its first lock was asked for.
   * Other messages
   * do not count: a lock that the client does not know of, as after a loss that the server has not noticed, is to end while the
   * client waits for it.
   */
  locksUntilMs: number;
  /**
   * Changes under earlier stamps are late: the newest that a message of the client has said, but while it has locks no earlier than its newest
   * stamp when this server gave it the first of them.
   */
  sinceStamp: number;
  /** The newest message, and what of the ones before is not over. */
  stamp: number;
  pending: ReadonlySet<number>;
  /** `Book.lapses` when its locks ended last with their lease, or when it was new here: what it asked for before is late. */
  lapses: number;
}

/** A request that waits for its lock. */
export interface Waiting {
  readonly client: number;
  readonly number: number;
  /** Ends the wait; null while no request waits for the outcome. */
  answer: ((outcome: 'granted' | 'deposed' | 'over') => void) | null;
  /** When the place is forgotten. */
  keptUntilMs: number;
}

/** What the primary of one epoch knows of its file's locks. */
export interface Book {
  readonly epoch: Epoch;
  /** No primary had the file before: nothing was sent to one. */
  readonly isFirst: boolean;
  /** How often locks of a client, or what was known of one, have ended with their lease. */
  lapses: number;
  readonly table: LockTable;
  readonly clients: Map<number, Client>;
  /** By place in the table. */
  readonly waiting: Map<number, Waiting>;
  /** Until then, locks of an epoch before may be claimed, and no others are given. */
  graceUntilMs: number;
  readonly afterGrace: Set<() => void>;
  timer: Timer | null;
  timerAtMs: number;
  end(): void;
}

/** The locks with which the last epoch that is known here ended in good order; of another server's, that there were none. */
export interface Former {
  readonly counter: number;
  readonly locks: readonly LockOfClient[];
  /** What was known of those who have them. */
  readonly clients: ReadonlyMap<number, Pick<Client, 'sinceStamp' | 'stamp' | 'pending'>>;
}

/** Where clients do not identify themselves, each counts by itself. */
export function holderOf(client: number, given: string | null): string {
  return given ?? `client ${client}`;
}

export function wishOf({ client, owner, kind, type, start, end, pid }: LockBody): WishOfClient {
  return { client, owner, kind, type, ...rangeFromWire({ start, end }), pid };
}

export function placeOf(book: Book, { client, number }: LockBody): number | null {
  for (const [place, waiting] of book.waiting) {
    if (waiting.client === client && waiting.number === number) return place;
  }
  return null;
}

export function locked(file: FileId, table: LockTable, wish: WishOfClient): ServiceError {
  const holder = table.conflict(wish);
  assert(wish.type !== 'unlock', 'Nothing stands in the way of an unlock');
  const whose = holder === null ? 'somebody' : `owner ${holder.owner} of client ${holder.client}`;
  return new ServiceError('locked', `File ${file} is locked by ${whose}`);
}
