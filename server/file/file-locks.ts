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
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { FileStore } from '../storage/store.ts';
import { wasBorneOnly } from './borne-file.ts';
import {
  type Book,
  type Client,
  type Former,
  holderOf,
  locked,
  placeOf,
  type Waiting,
  wishOf,
} from './lock-book.ts';
import type { LockEnding } from './lock-endings.ts';
import { type LockBounds, LockShares } from './lock-shares.ts';
import { LockTable, type LockWaiter } from './lock-table.ts';

/** Files of which it is remembered how the last epoch ended; nearly all left nothing. */
const FORMER_MAX = 100_000;
/** Who waited and asks again within this time has the place that it had, in milliseconds. */
const PLACE_KEPT_MS = 2_000;
/** A change under locks that are not claimed yet is sent again after so long, in milliseconds. */
const CLAIM_AGAIN_MS = 50;
/** Part of the operation time-out that a wait may take at the most: the answer needs time, too. */
const WAIT_PART_MAX = 0.5;
/** And of the lock lease: who gets a lock counts its lease from before the wait, and has to live through a fail-over with the rest. */
const WAITS_PER_LEASE = 6;

export interface FileLocksParts {
  readonly self: ServerId;
  readonly store: Pick<FileStore, 'attributes'>;
  readonly world: World;
  readonly clock: Clock;
  readonly lease: LeaseDriver;
  /** How long locks outlive the last renewal of their client, in milliseconds. */
  readonly lockLeaseMs: number;
  readonly operationTimeoutMs: number;
  /** Absent for the usual ones. */
  readonly lockBounds?: LockBounds;
  /** This server has led the file, ended in good order, and left no locks: those who may lead it next are told. */
  endedUnlocked(ending: LockEnding, servers: readonly ServerId[]): void;
}

/**
 * Locks of the files that this server is primary of (decision 0015). They are in memory only and belong to an epoch. A
 * client renews all it has within a lock lease, and claims it so from the next primary, which gives nothing else before
 * one lock lease has passed since its epoch began: by then every lock is claimed, or its client knows that it is lost.
 */
export class FileLocks {
  readonly #parts: FileLocksParts;
  /** Long enough for clocks that run at different rates. */
  readonly #spanMs: number;
  readonly #books = new Map<ReplicaDriver, Book>();
  readonly #former = new LruMap<FileId, Former>(FORMER_MAX);
  readonly #shares: LockShares;

  constructor(parts: FileLocksParts) {
    this.#parts = parts;
    this.#shares = new LockShares(parts.lockBounds);
    this.#spanMs = parts.lockLeaseMs * (1 + 2 * CLOCK_DRIFT_MAX);
  }

  /** This server leads the file from now on: the time in which locks are claimed begins. */
  led(driver: ReplicaDriver): void {
    if (driver.leads) this.#bookOf(driver);
  }

  /**
   * Another server led the file, ended in good order, and left no locks: if this one is next, there is nothing to claim.
   *
   * @param driver of the file, where it is loaded
   */
  leftUnlocked({ file, counter }: LockEnding, driver: ReplicaDriver | null): void {
    const book = driver === null ? undefined : this.#books.get(driver);
    if (book === undefined) {
      if ((this.#former.get(file)?.counter ?? 0) < counter) this.#former.set(file, unlocked(counter));
      return;
    }
    // The word has come late. What was claimed meanwhile is as good as it was.
    if (book.epoch.counter !== counter + 1 || this.#parts.clock.nowMs() >= book.graceUntilMs) return;
    book.graceUntilMs = -Infinity;
    for (const go of book.afterGrace) go();
  }

  /**
   * Sets a lock, or gives it back.
   *
   * @param holder token or certificate of the client; null where nobody is asked who he is
   * @throws ServiceError `locked` (also where a wait is over before the lock is free), `deadlock`, `lock-limit`,
   *   `not-primary`, or `busy` where too many wait, and while those of the former primary are claimed and `body` does not wait
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
    // A renewal may have shown meanwhile that the request is over.
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
   * The client is alive and has these locks. In the time after a change of the primary, that is how it claims them.
   *
   * @throws ServiceError `not-primary`
   */
  renew(driver: ReplicaDriver, body: LockClaim, holder: string | null = null): LockRenewal {
    const book = this.#present(driver);
    const nowMs = this.#parts.clock.nowMs();
    // Only what was sent in this epoch was sent after all that the one before has acknowledged; the client sends it anew.
    if (body.heard !== undefined && body.heard.epoch !== book.epoch.counter)
      return { ...this.#grant(book), lost: [] };
    const known = book.clients.get(body.client);
    if (known !== undefined && body.stamp < known.stamp) {
      // What was given back since is not claimed by an older word: the client says it anew.
      throw new ServiceError('locked', `A newer message of client ${body.client} came first`);
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
        // Nothing but a change of the primary makes a living client's locks unknown here.
        if (nowMs >= book.graceUntilMs || book.table.conflict(wish) !== null) return [place];
        book.table.set(wish);
      }
      kept.push(wish);
      return [];
    });
    if (client !== undefined && isClaim) client.sinceStamp = sinceStamp;
    // No request was under way: what the newest message does not name the client does not know of.
    if (body.pending.length === 0) {
      book.table.keepOnly(body.client, kept);
      this.#wake(driver, book);
    }
    this.#schedule(driver, book);
    return { ...this.#grant(book), lost };
  }

  /**
   * A change that is about to be ordered is made under locks of its client that still exclude others: bytes that come late, from a client that has lost
   * them or given them back, replace nothing that was written since. A new primary takes no such change before the locks are claimed.
   *
   * @throws ServiceError `busy` where they may still be claimed; `lease-lost`, also where this server does not know, because it orders
   *   without being the primary
   */
  assertHeld(driver: ReplicaDriver, { client, stamp }: LocksHeld): void {
    if (driver.leads) {
      const book = this.#present(driver);
      const isHeld = book.table.has(client);
      if (isHeld && (book.clients.get(client)?.sinceStamp ?? Infinity) <= stamp) return;
      if (!isHeld && this.#parts.clock.nowMs() < book.graceUntilMs) {
        const message = `Client ${client} has not claimed its locks on file ${driver.file} from a new primary`;
        throw new ServiceError('busy', message, { retryAfterMs: CLAIM_AGAIN_MS });
      }
    }
    throw new ServiceError('lease-lost', `Client ${client} has lost its locks on file ${driver.file}`);
  }

  /** @throws ServiceError `not-primary` */
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
   * Whether the client may have given the request up without the stamps showing it: they are forgotten with the epoch and with the client. An unlock
   * needs no such rule: a lock that is newer than it came with a newer stamp, which is known for as long as the lock is.
   */
  #isOutdated(book: Book, { client, type, heard }: LockOrder): boolean {
    if (heard === undefined || type === 'unlock') return false;
    const { epoch, lapses = 0 } = heard;
    const isOfEpoch = epoch === book.epoch.counter || (epoch === 0 && book.isFirst);
    return !isOfEpoch || lapses < (book.clients.get(client)?.lapses ?? book.lapses);
  }

  async #lockNow(
    driver: ReplicaDriver,
    book: Book,
    body: LockBody,
    wish: WishOfClient,
    deadlineMs: number,
  ): Promise<LockGrant> {
    const { clock } = this.#parts;
    const { table } = book;
    const place = placeOf(book, body);
    table.beginFlock(wish);
    // Whoever changed a lock of the whole file has given the old one back.
    this.#wake(driver, book);
    if (table.conflict(wish) === null) {
      if (place !== null) this.#leave(book, place);
      const isFull =
        table.size >= LOCKS_PER_FILE_MAX || table.list(wish.client).length >= LOCKS_PER_CLIENT_MAX;
      if (isFull) throw new ServiceError('lock-limit', `File ${driver.file} has too many locks`);
      this.#shares.check(book.clients.get(wish.client)?.holder ?? holderOf(wish.client, null));
      table.set(wish);
      // A lock that became a lesser one may be what others waited for.
      this.#wake(driver, book);
      return this.#grant(book);
    }
    if (body.waitMs > 0 && table.wouldDeadlock(wish)) {
      if (place !== null) this.#leave(book, place);
      throw new ServiceError(
        'deadlock',
        `A lock on file ${driver.file} would be waited for by its own holder`,
      );
    }
    const leftMs = deadlineMs - clock.nowMs();
    if (leftMs <= 0) throw locked(driver.file, table, wish);
    if (place === null && book.waiting.size >= LOCK_WAITERS_MAX) {
      throw new ServiceError('busy', `Too many wait for locks on file ${driver.file}`);
    }
    const at = table.wait(wish, place);
    const outcome = await this.#wait(driver, book, at, body, leftMs);
    // What is not acknowledged is no lock yet: a later primary will not hear of it.
    if (this.#present(driver) !== book) throw this.#deposed(driver);
    if (outcome === 'granted') return this.#grant(book);
    throw outcome === 'deposed' ? this.#deposed(driver) : locked(driver.file, table, wish);
  }

  #wait(
    driver: ReplicaDriver,
    book: Book,
    place: number,
    { client, number }: LockBody,
    limitMs: number,
  ): Promise<'granted' | 'deposed' | 'over'> {
    // A request that was sent again takes the place of its first attempt, whose answer nobody awaits.
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

  #leave(book: Book, place: number): void {
    book.table.leave(place);
    const waiting = book.waiting.get(place);
    book.waiting.delete(place);
    waiting?.answer?.('over');
  }

  #leaveAll(book: Book, client: number): void {
    for (const [place, waiting] of book.waiting) if (waiting.client === client) this.#leave(book, place);
  }

  /** Locks whose way became free are given, if this server is still the one to give them. */
  #wake(driver: ReplicaDriver, book: Book): void {
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
   * A message of a client: it lives. What its newest message calls over is over, and changes that its client calls over are so
   * before the message gives a lock back.
   *
   * @throws ServiceError `locked` where the message itself is over
   */
  #admit(
    book: Book,
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
      throw new ServiceError('locked', `Request ${number} of client ${client} is over`);
    }
    known.sinceStamp = Math.max(known.sinceStamp, since);
    known.aliveUntilMs = Math.max(known.aliveUntilMs, aliveUntilMs);
  }

  /** What the client has in this book counts for another from now on, or for nobody. */
  #pass(book: Book, client: number, from: string | null, to: string | null): void {
    if (from === to || from === null) return;
    const count = book.table.list(client).length;
    this.#shares.add(from, -count);
    if (to !== null) this.#shares.add(to, count);
  }

  /** @returns the book of the present epoch, without those whose time is over */
  #present(driver: ReplicaDriver): Book {
    if (!driver.leads) throw this.#deposed(driver);
    const book = this.#bookOf(driver);
    this.#expire(driver, book);
    return book;
  }

  #isPresent(driver: ReplicaDriver, book: Book): boolean {
    return driver.leads && this.#books.get(driver) === book && epochCompare(driver.epoch, book.epoch) === 0;
  }

  #expire(driver: ReplicaDriver, book: Book): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const [place, waiting] of book.waiting) if (waiting.keptUntilMs <= nowMs) this.#leave(book, place);
    for (const [client, known] of book.clients) {
      if (nowMs < known.aliveUntilMs) {
        if (nowMs >= known.locksUntilMs && book.table.has(client)) {
          book.table.removeLocks(client);
          known.lapses = ++book.lapses;
          // Changes under those may have been sent after what waits: the client asks anew, by a newer stamp than theirs.
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

  /** Looks again when the next client's time is over, or the grace. */
  #schedule(driver: ReplicaDriver, book: Book): void {
    const nowMs = this.#parts.clock.nowMs();
    let atMs = book.afterGrace.size > 0 ? book.graceUntilMs : Infinity;
    for (const [client, { aliveUntilMs, locksUntilMs }] of book.clients)
      atMs = Math.min(atMs, book.table.has(client) ? locksUntilMs : aliveUntilMs);
    for (const { keptUntilMs } of book.waiting.values()) atMs = Math.min(atMs, keptUntilMs);
    // A client that renews moves its end away: the timer that finds nothing sets itself anew.
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

  #graceEnd(book: Book, limitMs: number): Promise<void> {
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

  #bookOf(driver: ReplicaDriver): Book {
    const known = this.#books.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    if (known !== undefined) this.#end(driver, known);
    const { epoch, file } = driver;
    const nowMs = this.#parts.clock.nowMs();
    const former = this.#former.get(file);
    this.#former.delete(file);
    // No two epochs that were led have one counter, so nobody else led in between.
    const isNext = former !== undefined && former.counter + 1 === epoch.counter;
    const isFirst = driver.isFirstLed || wasBorneOnly(driver, this.#parts.store);
    const needsNoGrace = isFirst || isNext;
    const stopListening = driver.onRole(() => {
      if (!this.#isPresent(driver, book)) this.#end(driver, book);
    });
    const clients = new Map<number, Client>();
    const book: Book = {
      epoch,
      isFirst,
      lapses: 0,
      table: new LockTable((client, more) => {
        const known = clients.get(client);
        // Its first lock lasts from when it was asked for.
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

  /** The epoch is over here. What it ended with is known for certain, if it ended before the lease did. */
  #end(driver: ReplicaDriver, book: Book): void {
    if (this.#books.get(driver) !== book) return;
    this.#books.delete(driver);
    book.end();
    for (const [client, { holder }] of book.clients) this.#pass(book, client, holder, null);
    const { lease, clock } = this.#parts;
    const held = lease.view(driver.file);
    // In its own grace it does not know yet what the epoch before has left behind.
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

  /** Nobody has a lock that was given in the epoch of this counter, and none will be: who leads by the next one need not wait for claims. */
  endedUnlocked({ file, view }: ReplicaDriver, counter: number): void {
    const { self, endedUnlocked } = this.#parts;
    this.#former.set(file, unlocked(counter));
    endedUnlocked(
      { file, counter },
      view.members.filter((member) => member !== self),
    );
  }

  #grant(book: Book): LockGrant {
    const { self, lockLeaseMs } = this.#parts;
    return { primary: self, epoch: book.epoch.counter, lapses: book.lapses, leaseMs: lockLeaseMs };
  }

  #deposed(driver: ReplicaDriver): ServiceError {
    return new ServiceError('not-primary', `This server is not the primary of file ${driver.file} any more`);
  }

  /** Whoever waits is told what ends any other wait that was in vain; who does not has to know that this is no refusal. */
  #inGrace(file: FileId, book: Book, waits: boolean): ServiceError {
    const retryAfterMs = Math.max(1, Math.ceil(book.graceUntilMs - this.#parts.clock.nowMs()));
    const message = `Locks of file ${file} are claimed from a new primary`;
    return waits ? new ServiceError('locked', message) : new ServiceError('busy', message, { retryAfterMs });
  }
}

/** An epoch that ended without locks. */
function unlocked(counter: number): Former {
  return { counter, locks: [], clients: new Map() };
}
