import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';
import { epochCompare } from '../../replica/epoch.ts';
import type {
  LockBody,
  LockClaim,
  LockGrant,
  LockList,
  LockOrder,
  LockRenewal,
  LocksHeld,
  WishOfClient,
} from '../../wire/lock-api.ts';
import { LOCK_WAITERS_MAX, LOCKS_PER_CLIENT_MAX, LOCKS_PER_FILE_MAX } from '../../wire/lock-limits.ts';
import { rangeFromWire, rangeToWire } from '../../wire/lock-offsets.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileStore } from '../storage/store.ts';
import { wasOnlyCreated } from './file-with-contents.ts';
import {
  type Client,
  type FormerLocks,
  holderOf,
  type LockState,
  locked,
  placeOf,
  type Waiting,
  wishOf,
} from './lock-book.ts';
import type { LockEnding } from './lock-endings.ts';
import { type LockBounds, LockShares } from './lock-shares.ts';
import { LockTable, type LockWaiter } from './lock-table.ts';

/** Files whose locks at the end of their last epoch are known here; nearly all of them had none. */
const FORMER_MAX = 100_000;
/** A client whose wait ended keeps its place in the queue for this time, in milliseconds. */
const PLACE_KEPT_MS = 2_000;
const CLAIM_AGAIN_MS = 50;
/** Longest wait as a part of the operation time-out: the answer needs time, too. */
const WAIT_PART_MAX = 0.5;
/** The wait is also at most one of this many parts of the lock lease, so that the rest can cover a failover. */
const WAITS_PER_LEASE = 6;

export interface FileLocksParts {
  readonly self: ServerId;
  readonly store: Pick<FileStore, 'attributes'>;
  readonly world: World;
  readonly clock: Clock;
  readonly lease: LeaseDriver;
  /** How long locks outlive their client's last renewal, in milliseconds. */
  readonly lockLeaseMs: number;
  readonly operationTimeoutMs: number;
  readonly lockBounds?: LockBounds;
  /** Notifies the servers that may be the next primary that this one ended its epoch in good order, without locks. */
  endedUnlocked(ending: LockEnding, servers: readonly ServerId[]): void;
}

/**
 * Locks of the files that this server is primary of (decision 0015). They exist only in memory and belong to an epoch.
 * A client renews all its locks within a lock lease, and so claims them from a new primary, which grants nothing else
 * before one lock lease has passed: by then every lock is claimed, or its client knows that it is lost.
 */
export class FileLocks {
  readonly #parts: FileLocksParts;
  /** The lock lease, plus a margin for clocks that run at different rates. */
  readonly #spanMs: number;
  readonly #books = new Map<ReplicaDriver, LockState>();
  readonly #former = new LruMap<FileId, FormerLocks>(FORMER_MAX);
  readonly #shares: LockShares;

  constructor(parts: FileLocksParts) {
    this.#parts = parts;
    this.#shares = new LockShares(parts.lockBounds);
    this.#spanMs = parts.lockLeaseMs * (1 + 2 * CLOCK_DRIFT_MAX);
  }

  becamePrimary(driver: ReplicaDriver): void {
    if (driver.isPrimary) this.#bookOf(driver);
  }

  /** Another primary ended its epoch without locks: this server needs no grace in the next epoch. */
  leftUnlocked({ file, counter }: LockEnding, driver: ReplicaDriver | null): void {
    const book = driver === null ? undefined : this.#books.get(driver);
    if (book === undefined) {
      if ((this.#former.get(file)?.counter ?? 0) < counter) this.#former.set(file, unlocked(counter));
      return;
    }
    // The notification is late. Claims made meanwhile stay valid.
    if (book.epoch.counter !== counter + 1 || this.#parts.clock.nowMs() >= book.graceUntilMs) return;
    book.graceUntilMs = -Infinity;
    for (const go of book.afterGrace) go();
  }

  /**
   * Sets or releases a lock.
   * @param holder token or certificate of the client; null without authentication
   * @throws ServiceError `locked` (also if a wait times out), `deadlock`, `lock-limit`, `not-primary`, or `busy` if too
   * many wait, or during the grace if `body` does not wait
   */
  async lock(driver: ReplicaDriver, body: LockOrder, holder: string | null = null): Promise<LockGrant> {
    const { clock, operationTimeoutMs, lockLeaseMs } = this.#parts;
    const waitMaxMs = Math.min(operationTimeoutMs * WAIT_PART_MAX, lockLeaseMs / WAITS_PER_LEASE);
    const deadlineMs = clock.nowMs() + Math.min(body.waitMs, waitMaxMs);
    let book = this.#present(driver);
    if (this.#isOutdated(book, body)) return { ...this.#grant(book), outdated: true };
    this.#admit(book, body, holder);
    const wish = wishOf(body);
    if (wish.type === 'unlock') {
      book.table.set(wish);
      this.#wake(driver, book);
      return this.#grant(book);
    }
    // A renewal may have shown meanwhile that the request is outdated.
    while (clock.nowMs() < book.graceUntilMs) {
      await this.#graceEnd(book, waitMaxMs);
      book = this.#present(driver);
      if (clock.nowMs() < book.graceUntilMs) throw this.#inGrace(driver.file, book, body.waitMs > 0);
      if (this.#isOutdated(book, body)) return { ...this.#grant(book), outdated: true };
      this.#admit(book, body, holder);
    }
    return this.#lockNow(driver, book, body, wish, deadlineMs);
  }

  /**
   * Renews all locks of a client, which lists them. During the grace this is how it claims them. @throws ServiceError
   * `not-primary`
   */
  renew(driver: ReplicaDriver, body: LockClaim, holder: string | null = null): LockRenewal {
    const book = this.#present(driver);
    const nowMs = this.#parts.clock.nowMs();
    // Only a message of this epoch was sent after all acknowledgments of the one before; the client sends it again.
    if (body.heard !== undefined && body.heard.epoch !== book.epoch.counter)
      return { ...this.#grant(book), lost: [] };
    const known = book.clients.get(body.client);
    if (known !== undefined && body.stamp < known.stamp) {
      // An older message does not claim a lock that was released since; the client sends it again.
      throw new ServiceError(
        'locked',
        `A newer lock message of client ${body.client} was received: send the current state again`,
      );
    }
    this.#admit(book, { ...body, number: body.stamp }, holder);
    const client = book.clients.get(body.client);
    const isClaim = !book.table.has(body.client);
    const sinceStamp = client?.sinceStamp ?? 0;
    if (client !== undefined) client.locksUntilMs = client.aliveUntilMs;
    const kept: WishOfClient[] = [];
    const lost = body.locks.flatMap((lock, place) => {
      const wish: WishOfClient = { ...lock, ...rangeFromWire(lock), client: body.client };
      if (!book.table.covers(wish)) {
        // Only a change of the primary makes locks of a living client unknown here.
        if (nowMs >= book.graceUntilMs || book.table.conflict(wish) !== null) return [place];
        book.table.set(wish);
      }
      kept.push(wish);
      return [];
    });
    if (client !== undefined && isClaim) client.sinceStamp = sinceStamp;
    // The client had no request in progress: it does not have locks that its newest message does not list.
    if (body.pending.length === 0) {
      book.table.keepOnly(body.client, kept);
      this.#wake(driver, book);
    }
    this.#schedule(driver, book);
    return { ...this.#grant(book), lost };
  }

  /**
   * Checks, before a change is ordered, that the locks under which the client made it still exclude others: late bytes
   * of a client that lost or released them must not overwrite later writes.
   * @throws ServiceError `busy` while they may still be claimed; `lease-lost`, also if this server orders without being
   * primary and cannot know
   */
  assertHeld(driver: ReplicaDriver, { client, stamp }: LocksHeld): void {
    if (driver.isPrimary) {
      const book = this.#present(driver);
      const isHeld = book.table.has(client);
      if (isHeld && (book.clients.get(client)?.sinceStamp ?? Infinity) <= stamp) return;
      if (!isHeld && this.#parts.clock.nowMs() < book.graceUntilMs) {
        const message =
          `Client ${client} has not yet claimed its locks on file ` +
          `${driver.file} from the new primary: claim them, and retry`;
        throw new ServiceError('busy', message, { retryAfterMs: CLAIM_AGAIN_MS });
      }
    }
    throw new ServiceError('lease-lost', `Client ${client} has lost its locks on file ${driver.file}`);
  }

  list(driver: ReplicaDriver): LockList {
    const book = this.#present(driver);
    return {
      primary: this.#parts.self,
      epoch: book.epoch.counter,
      locks: book.table.list().map((lock) => ({ ...lock, ...rangeToWire(lock) })),
      waiting: book.waiting.size,
      graceMs: Math.max(0, Math.ceil(book.graceUntilMs - this.#parts.clock.nowMs())),
    };
  }

  /**
   * Whether the client may have aborted the request although its stamp does not show it: stamps are lost when an epoch
   * or a client ends, and the request is from before. A late unlock does no harm: a later lock has a newer stamp.
   */
  #isOutdated(book: LockState, { client, type, heard }: LockOrder): boolean {
    if (heard === undefined || type === 'unlock') return false;
    const { epoch, lapses = 0 } = heard;
    const isOfEpoch = epoch === book.epoch.counter || (epoch === 0 && book.isFirst);
    return !isOfEpoch || lapses < (book.clients.get(client)?.lapses ?? book.lapses);
  }

  async #lockNow(
    driver: ReplicaDriver,
    book: LockState,
    body: LockBody,
    wish: WishOfClient,
    deadlineMs: number,
  ): Promise<LockGrant> {
    const { clock } = this.#parts;
    const { table } = book;
    const place = placeOf(book, body);
    table.beginFlock(wish);
    // A client that converted a lock on the whole file has released the old one.
    this.#wake(driver, book);
    if (table.conflict(wish) === null) {
      if (place !== null) this.#leave(book, place);
      const isFull =
        table.size >= LOCKS_PER_FILE_MAX || table.list(wish.client).length >= LOCKS_PER_CLIENT_MAX;
      if (isFull) throw new ServiceError('lock-limit', `Too many locks on file ${driver.file}: release some`);
      this.#shares.check(book.clients.get(wish.client)?.holder ?? holderOf(wish.client, null));
      table.set(wish);
      // A downgraded lock may be what others waited for.
      this.#wake(driver, book);
      return this.#grant(book);
    }
    if (body.waitMs > 0 && table.wouldDeadlock(wish)) {
      if (place !== null) this.#leave(book, place);
      throw new ServiceError(
        'deadlock',
        `Deadlock: the lock on file ${driver.file} waits for its own holder`,
      );
    }
    const leftMs = deadlineMs - clock.nowMs();
    if (leftMs <= 0) throw locked(driver.file, table, wish);
    if (place === null && book.waiting.size >= LOCK_WAITERS_MAX) {
      throw new ServiceError('busy', `Too many pending lock requests on file ${driver.file}: retry later`);
    }
    const at = table.wait(wish, place);
    const outcome = await this.#wait(driver, book, at, body, leftMs);
    // A lock that is not acknowledged is not held: a later primary would not know it.
    if (this.#present(driver) !== book) throw this.#deposed(driver);
    if (outcome === 'granted') return this.#grant(book);
    throw outcome === 'deposed' ? this.#deposed(driver) : locked(driver.file, table, wish);
  }

  #wait(
    driver: ReplicaDriver,
    book: LockState,
    place: number,
    { client, number }: LockBody,
    limitMs: number,
  ): Promise<'granted' | 'deposed' | 'over'> {
    // A repeated request takes the place of its first attempt, whose answer the client does not await.
    book.waiting.get(place)?.answer?.('over');
    return new Promise((resolve) => {
      const waiting: Waiting = { client, number, answer: null, keptUntilMs: Infinity };
      const timer = this.#parts.world.after(limitMs, () => {
        waiting.keptUntilMs = this.#parts.clock.nowMs() + PLACE_KEPT_MS;
        this.#schedule(driver, book);
        waiting.answer?.('over');
      });
      waiting.answer = (outcome) => {
        timer.cancel();
        waiting.answer = null;
        resolve(outcome);
      };
      book.waiting.set(place, waiting);
    });
  }

  #leave(book: LockState, place: number): void {
    book.table.leave(place);
    const waiting = book.waiting.get(place);
    book.waiting.delete(place);
    waiting?.answer?.('over');
  }

  #leaveAll(book: LockState, client: number): void {
    for (const [place, waiting] of book.waiting) if (waiting.client === client) this.#leave(book, place);
  }

  #wake(driver: ReplicaDriver, book: LockState): void {
    if (!this.#isPresent(driver, book)) return;
    const nowMs = this.#parts.clock.nowMs();
    const isThere = ({ place, client }: LockWaiter): boolean =>
      typeof book.waiting.get(place)?.answer === 'function' &&
      nowMs < (book.clients.get(client)?.aliveUntilMs ?? -Infinity);
    for (const { place } of book.table.wake(isThere)) {
      const waiting = book.waiting.get(place);
      book.waiting.delete(place);
      waiting?.answer?.('granted');
    }
  }

  /**
   * Records a message of a client: it is alive. Ends those of its waiting requests that the message does not list as
   * pending. @throws ServiceError `locked` if the message itself is outdated
   */
  #admit(
    book: LockState,
    message: Pick<LockOrder, 'client' | 'stamp' | 'pending' | 'number' | 'since'>,
    given: string | null,
  ): void {
    const { client, stamp, number, since = 0 } = message;
    const aliveUntilMs = this.#parts.clock.nowMs() + this.#spanMs;
    const known = book.clients.get(client);
    if (known === undefined || stamp > known.stamp) {
      const holder = holderOf(client, given);
      this.#pass(book, client, known?.holder ?? null, holder);
      const sinceStamp = Math.max(known?.sinceStamp ?? 0, since);
      const locksUntilMs = known?.locksUntilMs ?? aliveUntilMs;
      const pending = new Set(message.pending);
      const lapses = known?.lapses ?? book.lapses;
      book.clients.set(client, { holder, aliveUntilMs, locksUntilMs, sinceStamp, stamp, pending, lapses });
      for (const [place, waiting] of book.waiting) {
        const isOver = waiting.number < stamp && !message.pending.includes(waiting.number);
        if (waiting.client === client && isOver && waiting.number !== number) this.#leave(book, place);
      }
      return;
    }
    if (number < known.stamp && !known.pending.has(number)) {
      throw new ServiceError('locked', `Lock request ${number} of client ${client} has ended`);
    }
    known.sinceStamp = Math.max(known.sinceStamp, since);
    known.aliveUntilMs = Math.max(known.aliveUntilMs, aliveUntilMs);
  }

  #pass(book: LockState, client: number, from: string | null, to: string | null): void {
    if (from === to || from === null) return;
    const count = book.table.list(client).length;
    this.#shares.add(from, -count);
    if (to !== null) this.#shares.add(to, count);
  }

  #present(driver: ReplicaDriver): LockState {
    if (!driver.isPrimary) throw this.#deposed(driver);
    const book = this.#bookOf(driver);
    this.#expire(driver, book);
    return book;
  }

  #isPresent(driver: ReplicaDriver, book: LockState): boolean {
    return (
      driver.isPrimary && this.#books.get(driver) === book && epochCompare(driver.epoch, book.epoch) === 0
    );
  }

  #expire(driver: ReplicaDriver, book: LockState): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const [place, waiting] of book.waiting) if (waiting.keptUntilMs <= nowMs) this.#leave(book, place);
    for (const [client, known] of book.clients) {
      if (nowMs < known.aliveUntilMs) {
        if (nowMs >= known.locksUntilMs && book.table.has(client)) {
          book.table.removeLocks(client);
          known.lapses = ++book.lapses;
          // Changes under those locks may have been sent after the waiting requests: the client asks again, with a
          // newer stamp.
          this.#leaveAll(book, client);
        }
        continue;
      }
      this.#leaveAll(book, client);
      book.table.remove(client);
      book.clients.delete(client);
      book.lapses++;
    }
    this.#wake(driver, book);
    this.#schedule(driver, book);
  }

  #schedule(driver: ReplicaDriver, book: LockState): void {
    const nowMs = this.#parts.clock.nowMs();
    let atMs = book.afterGrace.size > 0 ? book.graceUntilMs : Infinity;
    for (const [client, { aliveUntilMs, locksUntilMs }] of book.clients)
      atMs = Math.min(atMs, book.table.has(client) ? locksUntilMs : aliveUntilMs);
    for (const { keptUntilMs } of book.waiting.values()) atMs = Math.min(atMs, keptUntilMs);
    // A renewal delays the expiry: a timer that fires too early sets itself again.
    if (book.timer !== null && book.timerAtMs <= atMs) return;
    book.timer?.cancel();
    book.timer = null;
    if (atMs === Infinity) return;
    book.timerAtMs = atMs;
    book.timer = this.#parts.world.after(Math.max(1, atMs - nowMs), () => {
      book.timer = null;
      if (!this.#isPresent(driver, book)) return this.#end(driver, book);
      if (this.#parts.clock.nowMs() >= book.graceUntilMs) for (const go of book.afterGrace) go();
      this.#expire(driver, book);
    });
    book.timer.unref();
  }

  #graceEnd(book: LockState, limitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        book.afterGrace.delete(done);
        resolve();
      };
      const leftMs = book.graceUntilMs - this.#parts.clock.nowMs();
      const timer = this.#parts.world.after(Math.max(1, Math.min(limitMs, leftMs)), done);
      book.afterGrace.add(done);
    });
  }

  #bookOf(driver: ReplicaDriver): LockState {
    const known = this.#books.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    if (known !== undefined) this.#end(driver, known);
    const { epoch, file } = driver;
    const nowMs = this.#parts.clock.nowMs();
    const former = this.#former.get(file);
    this.#former.delete(file);
    // No two epochs with a primary have the same counter, so no other server was primary in between.
    const isNext = former !== undefined && former.counter + 1 === epoch.counter;
    const isFirst = driver.isFirstPrimary || wasOnlyCreated(driver, this.#parts.store);
    const needsNoGrace = isFirst || isNext;
    const stopListening = driver.onRole(() => {
      if (!this.#isPresent(driver, book)) this.#end(driver, book);
    });
    const clients = new Map<number, Client>();
    const book: LockState = {
      epoch,
      isFirst,
      lapses: 0,
      table: new LockTable((client, more) => {
        const known = clients.get(client);
        // The time of its first lock counts from the request for it.
        if (known !== undefined && more > 0 && !book.table.has(client)) {
          known.locksUntilMs = known.aliveUntilMs;
          known.sinceStamp = known.stamp;
        }
        this.#shares.add(known?.holder ?? holderOf(client, null), more);
      }),
      clients,
      waiting: new Map(),
      graceUntilMs: needsNoGrace ? -Infinity : nowMs + this.#spanMs,
      afterGrace: new Set(),
      timer: null,
      timerAtMs: Infinity,
      end: () => {
        stopListening();
        book.timer?.cancel();
        book.timer = null;
        for (const go of book.afterGrace) go();
        for (const { answer } of book.waiting.values()) answer?.('deposed');
        book.waiting.clear();
      },
    };
    if (isNext) {
      for (const lock of former.locks) {
        const holder = holderOf(lock.client, null);
        const untilMs = nowMs + this.#spanMs;
        const ends = { aliveUntilMs: untilMs, locksUntilMs: untilMs };
        clients.set(lock.client, { holder, ...ends, sinceStamp: 0, stamp: 0, pending: new Set(), lapses: 0 });
        book.table.set(lock);
      }
      for (const [client, known] of clients) Object.assign(known, former.clients.get(client));
    }
    this.#books.set(driver, book);
    this.#schedule(driver, book);
    return book;
  }

  /** The epoch ended here. If this server still has the lease, its locks are final, and kept for the next epoch. */
  #end(driver: ReplicaDriver, book: LockState): void {
    if (this.#books.get(driver) !== book) return;
    this.#books.delete(driver);
    book.end();
    for (const [client, { holder }] of book.clients) this.#pass(book, client, holder, null);
    const { lease, clock } = this.#parts;
    const held = lease.view(driver.file);
    // During its own grace this primary does not know yet which locks the epoch before left.
    if (!held.own || held.remainingMs <= 0 || clock.nowMs() < book.graceUntilMs) return;
    const { counter } = book.epoch;
    const locks = book.table.list();
    const clients = new Map(
      [...book.clients].map(([client, { sinceStamp, stamp, pending }]) => [
        client,
        { sinceStamp, stamp, pending },
      ]),
    );
    if (locks.length > 0) this.#former.set(driver.file, { counter, locks, clients });
    else this.endedUnlocked(driver, counter);
  }

  /** No lock of the epoch with this counter exists, or will: the primary of the next epoch needs no grace. */
  endedUnlocked({ file, view }: ReplicaDriver, counter: number): void {
    const { self, endedUnlocked } = this.#parts;
    this.#former.set(file, unlocked(counter));
    endedUnlocked(
      { file, counter },
      view.members.filter((member) => member !== self),
    );
  }

  #grant(book: LockState): LockGrant {
    const { self, lockLeaseMs } = this.#parts;
    return { primary: self, epoch: book.epoch.counter, lapses: book.lapses, leaseMs: lockLeaseMs };
  }

  #deposed(driver: ReplicaDriver): ServiceError {
    return new ServiceError('not-primary', `This server is no longer the primary of file ${driver.file}`);
  }

  /**
   * A waiting request gets the error of any other time-out; one that does not wait has to learn that this is no
   * refusal.
   */
  #inGrace(file: FileId, book: LockState, waits: boolean): ServiceError {
    const retryAfterMs = Math.max(1, Math.ceil(book.graceUntilMs - this.#parts.clock.nowMs()));
    const message = `File ${file} has a new primary: locks can be claimed now and set after the grace time; retry`;
    return waits ? new ServiceError('locked', message) : new ServiceError('busy', message, { retryAfterMs });
  }
}

function unlocked(counter: number): FormerLocks {
  return { counter, locks: [], clients: new Map() };
}
