import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';
import { epochCompare } from '../../replica/epoch.ts';
import type {
  LockBody,
  LockChangeOfClient,
  LockClaim,
  LockGrant,
  LockList,
  LockOrder,
  LockRenewal,
  LocksHeld,
} from '../../wire/lock-api.ts';
import { LOCK_WAITERS_MAX, LOCKS_PER_CLIENT_MAX, LOCKS_PER_FILE_MAX } from '../../wire/lock-limits.ts';
import { rangeFromWire, rangeToWire } from '../../wire/lock-offsets.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileStore } from '../storage/store.ts';
import { hadNoPrimary } from './creation-operations.ts';
import { type LockBounds, LockCounts } from './lock-counts.ts';
import {
  type EarlierLocks,
  holderOf,
  type LockClient,
  type LockState,
  lockedError,
  placeOf,
  requestedLock,
  type WaitingRequest,
} from './lock-state.ts';
import { LockTable, type LockWaiter } from './lock-table.ts';
import type { UnlockedEnd } from './unlocked-ends.ts';

/** Files whose locks at the end of their last epoch are known here; nearly all of them had none. */
const EARLIER_MAX = 100_000;
/** A client whose wait ended keeps its place in the queue for this time, in milliseconds. */
const QUEUE_PLACE_KEPT_MS = 2_000;
const CLAIM_RETRY_MS = 50;
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
  notifyUnlockedEnd(ending: UnlockedEnd, servers: readonly ServerId[]): void;
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
  readonly #states = new Map<ReplicaDriver, LockState>();
  readonly #earlier = new LruMap<FileId, EarlierLocks>(EARLIER_MAX);
  readonly #counts: LockCounts;

  constructor(parts: FileLocksParts) {
    this.#parts = parts;
    this.#counts = new LockCounts(parts.lockBounds);
    this.#spanMs = parts.lockLeaseMs * (1 + 2 * CLOCK_DRIFT_MAX);
  }

  /** Begins the lock state of the epoch, and with it the grace, at once. */
  becamePrimary(driver: ReplicaDriver): void {
    if (driver.isPrimary) this.#stateOf(driver);
  }

  /** Another primary ended its epoch without locks: this server needs no grace in the next epoch. */
  epochEndedUnlocked({ file, counter }: UnlockedEnd, driver: ReplicaDriver | null): void {
    const state = driver === null ? undefined : this.#states.get(driver);
    if (state === undefined) {
      if ((this.#earlier.get(file)?.counter ?? 0) < counter) this.#earlier.set(file, unlocked(counter));
      return;
    }
    // The notification is late. Claims made meanwhile stay valid.
    if (state.epoch.counter !== counter + 1 || this.#parts.clock.nowMs() >= state.graceUntilMs) return;
    state.graceUntilMs = -Infinity;
    for (const go of state.afterGrace) go();
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
    let state = this.#currentState(driver);
    if (this.#isOutdated(state, body)) return { ...this.#grant(state), outdated: true };
    this.#noteMessage(state, body, holder);
    const wish = requestedLock(body);
    if (wish.type === 'unlock') {
      state.table.set(wish);
      this.#grantWaiting(driver, state);
      return this.#grant(state);
    }
    // A renewal may have shown meanwhile that the request is outdated.
    while (clock.nowMs() < state.graceUntilMs) {
      await this.#waitForGraceEnd(state, waitMaxMs);
      state = this.#currentState(driver);
      if (clock.nowMs() < state.graceUntilMs) throw this.#graceError(driver.file, state, body.waitMs > 0);
      if (this.#isOutdated(state, body)) return { ...this.#grant(state), outdated: true };
      this.#noteMessage(state, body, holder);
    }
    return this.#lockOrWait(driver, state, body, wish, deadlineMs);
  }

  /** Renews all locks of a client, which lists them; in the grace, claims them. @throws ServiceError `not-primary` */
  renew(driver: ReplicaDriver, body: LockClaim, holder: string | null = null): LockRenewal {
    const state = this.#currentState(driver);
    const nowMs = this.#parts.clock.nowMs();
    // Only a message of this epoch was sent after all acknowledgments of the one before; the client sends it again.
    if (body.heard !== undefined && body.heard.epoch !== state.epoch.counter)
      return { ...this.#grant(state), lost: [] };
    const known = state.clients.get(body.client);
    if (known !== undefined && body.stamp < known.stamp) {
      // An older message does not claim a lock that was released since; the client sends it again.
      throw new ServiceError(
        'locked',
        `A newer lock message of client ${body.client} was received: send the current state again`,
      );
    }
    this.#noteMessage(state, { ...body, number: body.stamp }, holder);
    const client = state.clients.get(body.client);
    const isClaim = !state.table.hasLocks(body.client);
    const sinceStamp = client?.sinceStamp ?? 0;
    if (client !== undefined) client.locksUntilMs = client.aliveUntilMs;
    const kept: LockChangeOfClient[] = [];
    const lost = body.locks.flatMap((lock, index) => {
      const wish: LockChangeOfClient = { ...lock, ...rangeFromWire(lock), client: body.client };
      if (!state.table.covers(wish)) {
        // Only a change of the primary makes locks of a living client unknown here.
        if (nowMs >= state.graceUntilMs || state.table.conflict(wish) !== null) return [index];
        state.table.set(wish);
      }
      kept.push(wish);
      return [];
    });
    if (client !== undefined && isClaim) client.sinceStamp = sinceStamp;
    // The client had no request in progress: it does not have locks that its newest message does not list.
    if (body.pending.length === 0) {
      state.table.keepOnly(body.client, kept);
      this.#grantWaiting(driver, state);
    }
    this.#schedule(driver, state);
    return { ...this.#grant(state), lost };
  }

  /**
   * Checks, before a change is ordered, that the locks under which the client made it still exclude others: late bytes
   * of a client that lost or released them must not overwrite later writes.
   * @throws ServiceError `busy` while they may still be claimed; `lease-lost`, also if this server is not primary
   */
  assertHeld(driver: ReplicaDriver, { client, stamp }: LocksHeld): void {
    if (driver.isPrimary) {
      const state = this.#currentState(driver);
      const isHeld = state.table.hasLocks(client);
      if (isHeld && (state.clients.get(client)?.sinceStamp ?? Infinity) <= stamp) return;
      if (!isHeld && this.#parts.clock.nowMs() < state.graceUntilMs) {
        const message =
          `Client ${client} has not yet claimed its locks on file ` +
          `${driver.file} from the new primary: claim them, and retry`;
        throw new ServiceError('busy', message, { retryAfterMs: CLAIM_RETRY_MS });
      }
    }
    throw new ServiceError('lease-lost', `Client ${client} has lost its locks on file ${driver.file}`);
  }

  list(driver: ReplicaDriver): LockList {
    const state = this.#currentState(driver);
    return {
      primary: this.#parts.self,
      epoch: state.epoch.counter,
      locks: state.table.list().map((lock) => ({ ...lock, ...rangeToWire(lock) })),
      waiting: state.waiting.size,
      graceMs: Math.max(0, Math.ceil(state.graceUntilMs - this.#parts.clock.nowMs())),
    };
  }

  /**
   * Whether the client may have aborted the request although its stamp does not show it: stamps are lost when an epoch
   * or a client ends, and the request is from before. A late unlock does no harm: a later lock has a newer stamp.
   */
  #isOutdated(state: LockState, { client, type, heard }: LockOrder): boolean {
    if (heard === undefined || type === 'unlock') return false;
    const { epoch, lapses = 0 } = heard;
    const isOfEpoch = epoch === state.epoch.counter || (epoch === 0 && state.isFirst);
    return !isOfEpoch || lapses < (state.clients.get(client)?.lapses ?? state.lapses);
  }

  /** Sets the lock, or waits for it until `deadlineMs`. @throws ServiceError as `lock` */
  async #lockOrWait(
    driver: ReplicaDriver,
    state: LockState,
    body: LockBody,
    wish: LockChangeOfClient,
    deadlineMs: number,
  ): Promise<LockGrant> {
    const { clock } = this.#parts;
    const { table } = state;
    const place = placeOf(state, body);
    table.beginFlock(wish);
    // A client that converted a lock on the whole file has released the old one.
    this.#grantWaiting(driver, state);
    if (table.conflict(wish) === null) {
      if (place !== null) this.#endWaiting(state, place);
      const isFull =
        table.size >= LOCKS_PER_FILE_MAX || table.list(wish.client).length >= LOCKS_PER_CLIENT_MAX;
      if (isFull) throw new ServiceError('lock-limit', `Too many locks on file ${driver.file}: release some`);
      this.#counts.assertBelowBounds(state.clients.get(wish.client)?.holder ?? holderOf(wish.client, null));
      table.set(wish);
      // A downgraded lock may be what others waited for.
      this.#grantWaiting(driver, state);
      return this.#grant(state);
    }
    if (body.waitMs > 0 && table.wouldDeadlock(wish)) {
      if (place !== null) this.#endWaiting(state, place);
      throw new ServiceError(
        'deadlock',
        `Deadlock: the lock on file ${driver.file} waits for its own holder`,
      );
    }
    const leftMs = deadlineMs - clock.nowMs();
    if (leftMs <= 0) throw lockedError(driver.file, table, wish);
    if (place === null && state.waiting.size >= LOCK_WAITERS_MAX) {
      throw new ServiceError('busy', `Too many pending lock requests on file ${driver.file}: retry later`);
    }
    const at = table.addWaiter(wish, place);
    const outcome = await this.#wait(driver, state, at, body, leftMs);
    // A lock that is not acknowledged is not held: a later primary would not know it.
    if (this.#currentState(driver) !== state) throw this.#deposedError(driver);
    if (outcome === 'granted') return this.#grant(state);
    throw outcome === 'deposed' ? this.#deposedError(driver) : lockedError(driver.file, table, wish);
  }

  /** Queues a request at `place`, for at most `limitMs`. @returns `over` if it times out, or ends for another reason */
  #wait(
    driver: ReplicaDriver,
    state: LockState,
    place: number,
    { client, number }: LockBody,
    limitMs: number,
  ): Promise<'granted' | 'deposed' | 'over'> {
    // A repeated request takes the place of its first attempt, whose answer the client does not await.
    state.waiting.get(place)?.answer?.('over');
    return new Promise((resolve) => {
      const waiting: WaitingRequest = { client, number, answer: null, keptUntilMs: Infinity };
      const timer = this.#parts.world.after(limitMs, () => {
        waiting.keptUntilMs = this.#parts.clock.nowMs() + QUEUE_PLACE_KEPT_MS;
        this.#schedule(driver, state);
        waiting.answer?.('over');
      });
      waiting.answer = (outcome) => {
        timer.cancel();
        waiting.answer = null;
        resolve(outcome);
      };
      state.waiting.set(place, waiting);
    });
  }

  /** Removes a lock request from the queue: it got its lock, would deadlock, was withdrawn or has expired. */
  #endWaiting(state: LockState, place: number): void {
    state.table.removeWaiter(place);
    const waiting = state.waiting.get(place);
    state.waiting.delete(place);
    waiting?.answer?.('over');
  }

  #endAllWaiting(state: LockState, client: number): void {
    for (const [place, waiting] of state.waiting)
      if (waiting.client === client) this.#endWaiting(state, place);
  }

  /** Grants queued requests that have no conflict any more, if their clients are alive and still wait. */
  #grantWaiting(driver: ReplicaDriver, state: LockState): void {
    if (!this.#isCurrent(driver, state)) return;
    const nowMs = this.#parts.clock.nowMs();
    const isThere = ({ place, client }: LockWaiter): boolean =>
      typeof state.waiting.get(place)?.answer === 'function' &&
      nowMs < (state.clients.get(client)?.aliveUntilMs ?? -Infinity);
    for (const { place } of state.table.grantWaiting(isThere)) {
      const waiting = state.waiting.get(place);
      state.waiting.delete(place);
      waiting?.answer?.('granted');
    }
  }

  /**
   * Records a message of a client: it is alive. Ends those of its waiting requests that the message does not list as
   * pending. @throws ServiceError `locked` if the message itself is outdated
   */
  #noteMessage(
    state: LockState,
    message: Pick<LockOrder, 'client' | 'stamp' | 'pending' | 'number' | 'since'>,
    authenticated: string | null,
  ): void {
    const { client, stamp, number, since = 0 } = message;
    const aliveUntilMs = this.#parts.clock.nowMs() + this.#spanMs;
    const known = state.clients.get(client);
    if (known === undefined || stamp > known.stamp) {
      const holder = holderOf(client, authenticated);
      this.#moveCount(state, client, known?.holder ?? null, holder);
      const sinceStamp = Math.max(known?.sinceStamp ?? 0, since);
      const locksUntilMs = known?.locksUntilMs ?? aliveUntilMs;
      const pending = new Set(message.pending);
      const lapses = known?.lapses ?? state.lapses;
      state.clients.set(client, { holder, aliveUntilMs, locksUntilMs, sinceStamp, stamp, pending, lapses });
      for (const [place, waiting] of state.waiting) {
        const isOver = waiting.number < stamp && !message.pending.includes(waiting.number);
        if (waiting.client === client && isOver && waiting.number !== number) this.#endWaiting(state, place);
      }
      return;
    }
    if (number < known.stamp && !known.pending.has(number)) {
      throw new ServiceError('locked', `Lock request ${number} of client ${client} has ended`);
    }
    known.sinceStamp = Math.max(known.sinceStamp, since);
    known.aliveUntilMs = Math.max(known.aliveUntilMs, aliveUntilMs);
  }

  #moveCount(state: LockState, client: number, from: string | null, to: string | null): void {
    if (from === to || from === null) return;
    const count = state.table.list(client).length;
    this.#counts.add(from, -count);
    if (to !== null) this.#counts.add(to, count);
  }

  #currentState(driver: ReplicaDriver): LockState {
    if (!driver.isPrimary) throw this.#deposedError(driver);
    const state = this.#stateOf(driver);
    this.#expire(driver, state);
    return state;
  }

  #isCurrent(driver: ReplicaDriver, state: LockState): boolean {
    return (
      driver.isPrimary && this.#states.get(driver) === state && epochCompare(driver.epoch, state.epoch) === 0
    );
  }

  /** Removes clients that sent nothing, and locks not renewed, for a lock lease; and requests too long in the queue. */
  #expire(driver: ReplicaDriver, state: LockState): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const [place, waiting] of state.waiting)
      if (waiting.keptUntilMs <= nowMs) this.#endWaiting(state, place);
    for (const [client, known] of state.clients) {
      if (nowMs < known.aliveUntilMs) {
        if (nowMs >= known.locksUntilMs && state.table.hasLocks(client)) {
          state.table.removeLocks(client);
          known.lapses = ++state.lapses;
          // Changes under those locks may have been sent after the waiting requests: the client repeats these later.
          this.#endAllWaiting(state, client);
        }
        continue;
      }
      this.#endAllWaiting(state, client);
      state.table.removeClient(client);
      state.clients.delete(client);
      state.lapses++;
    }
    this.#grantWaiting(driver, state);
    this.#schedule(driver, state);
  }

  /** Sets the timer for the next expiry, or for the end of the grace if requests wait for it. */
  #schedule(driver: ReplicaDriver, state: LockState): void {
    const nowMs = this.#parts.clock.nowMs();
    let atMs = state.afterGrace.size > 0 ? state.graceUntilMs : Infinity;
    for (const [client, { aliveUntilMs, locksUntilMs }] of state.clients)
      atMs = Math.min(atMs, state.table.hasLocks(client) ? locksUntilMs : aliveUntilMs);
    for (const { keptUntilMs } of state.waiting.values()) atMs = Math.min(atMs, keptUntilMs);
    // A renewal delays the expiry: a timer that fires too early sets itself again.
    if (state.timer !== null && state.timerAtMs <= atMs) return;
    state.timer?.cancel();
    state.timer = null;
    if (atMs === Infinity) return;
    state.timerAtMs = atMs;
    state.timer = this.#parts.world.after(Math.max(1, atMs - nowMs), () => {
      state.timer = null;
      if (!this.#isCurrent(driver, state)) return this.#end(driver, state);
      if (this.#parts.clock.nowMs() >= state.graceUntilMs) for (const go of state.afterGrace) go();
      this.#expire(driver, state);
    });
    state.timer.unref();
  }

  /** Called for a new lock while clients of the last primary may still renew theirs; waits at most `limitMs`. */
  #waitForGraceEnd(state: LockState, limitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        state.afterGrace.delete(done);
        resolve();
      };
      const leftMs = state.graceUntilMs - this.#parts.clock.nowMs();
      const timer = this.#parts.world.after(Math.max(1, Math.min(limitMs, leftMs)), done);
      state.afterGrace.add(done);
    });
  }

  /** The lock state of the replica's epoch. A new epoch begins with a grace, unless no client can claim locks. */
  #stateOf(driver: ReplicaDriver): LockState {
    const known = this.#states.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    if (known !== undefined) this.#end(driver, known);
    const { epoch, file } = driver;
    const nowMs = this.#parts.clock.nowMs();
    const earlier = this.#earlier.get(file);
    this.#earlier.delete(file);
    // No two epochs with a primary have the same counter, so no other server was primary in between.
    const isNext = earlier !== undefined && earlier.counter + 1 === epoch.counter;
    const isFirst = driver.isFirstPrimary || hadNoPrimary(driver, this.#parts.store);
    const needsNoGrace = isFirst || isNext;
    const stopListening = driver.onRole(() => {
      if (!this.#isCurrent(driver, state)) this.#end(driver, state);
    });
    const clients = new Map<number, LockClient>();
    const state: LockState = {
      epoch,
      isFirst,
      lapses: 0,
      table: new LockTable((client, more) => {
        const known = clients.get(client);
        // The time of its first lock counts from the request for it.
        if (known !== undefined && more > 0 && !state.table.hasLocks(client)) {
          known.locksUntilMs = known.aliveUntilMs;
          known.sinceStamp = known.stamp;
        }
        this.#counts.add(known?.holder ?? holderOf(client, null), more);
      }),
      clients,
      waiting: new Map(),
      graceUntilMs: needsNoGrace ? -Infinity : nowMs + this.#spanMs,
      afterGrace: new Set(),
      timer: null,
      timerAtMs: Infinity,
      end: () => {
        stopListening();
        state.timer?.cancel();
        state.timer = null;
        for (const go of state.afterGrace) go();
        for (const { answer } of state.waiting.values()) answer?.('deposed');
        state.waiting.clear();
      },
    };
    if (isNext) {
      for (const lock of earlier.locks) {
        const holder = holderOf(lock.client, null);
        const untilMs = nowMs + this.#spanMs;
        const ends = { aliveUntilMs: untilMs, locksUntilMs: untilMs };
        clients.set(lock.client, { holder, ...ends, sinceStamp: 0, stamp: 0, pending: new Set(), lapses: 0 });
        state.table.set(lock);
      }
      for (const [client, known] of clients) Object.assign(known, earlier.clients.get(client));
    }
    this.#states.set(driver, state);
    this.#schedule(driver, state);
    return state;
  }

  /** The epoch ended here. If this server still has the lease, its locks are final, and kept for the next epoch. */
  #end(driver: ReplicaDriver, state: LockState): void {
    if (this.#states.get(driver) !== state) return;
    this.#states.delete(driver);
    state.end();
    for (const [client, { holder }] of state.clients) this.#moveCount(state, client, holder, null);
    const { lease, clock } = this.#parts;
    const held = lease.view(driver.file);
    // During its own grace this primary does not know yet which locks the epoch before left.
    if (!held.own || held.remainingMs <= 0 || clock.nowMs() < state.graceUntilMs) return;
    const { counter } = state.epoch;
    const locks = state.table.list();
    const clients = new Map(
      [...state.clients].map(([client, { sinceStamp, stamp, pending }]) => [
        client,
        { sinceStamp, stamp, pending },
      ]),
    );
    if (locks.length > 0) this.#earlier.set(driver.file, { counter, locks, clients });
    else this.reportUnlockedEnd(driver, counter);
  }

  /** No lock of the epoch with this counter exists, or will: the primary of the next epoch needs no grace. */
  reportUnlockedEnd({ file, view }: ReplicaDriver, counter: number): void {
    const { self, notifyUnlockedEnd } = this.#parts;
    this.#earlier.set(file, unlocked(counter));
    notifyUnlockedEnd(
      { file, counter },
      view.members.filter((member) => member !== self),
    );
  }

  #grant(state: LockState): LockGrant {
    const { self, lockLeaseMs } = this.#parts;
    return { primary: self, epoch: state.epoch.counter, lapses: state.lapses, leaseMs: lockLeaseMs };
  }

  #deposedError(driver: ReplicaDriver): ServiceError {
    return new ServiceError('not-primary', `This server is no longer the primary of file ${driver.file}`);
  }

  /** A request that waits gets the error of a time-out; one that does not has to learn that this is no refusal. */
  #graceError(file: FileId, state: LockState, waits: boolean): ServiceError {
    const retryAfterMs = Math.max(1, Math.ceil(state.graceUntilMs - this.#parts.clock.nowMs()));
    const message = `File ${file} has a new primary: locks can be claimed now and set after the grace time; retry`;
    return waits ? new ServiceError('locked', message) : new ServiceError('busy', message, { retryAfterMs });
  }
}

function unlocked(counter: number): EarlierLocks {
  return { counter, locks: [], clients: new Map() };
}
