import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import { LOCK_END } from '../../base/lock-end.ts';
import type { Timer } from '../../base/world.ts';
import type {
  LockBody,
  LockChange,
  LockGrant,
  LockHeld,
  LockKind,
  LockList,
  LockOfClient,
  LockPrimaryState,
  LockRenewal,
  LockRenewalBody,
  LocksHeld,
} from '../../wire/lock-api.ts';
import { LOCK_REQUESTS_PENDING_MAX } from '../../wire/lock-limits.ts';
import { rangeFromWire, rangeToWire } from '../../wire/lock-offsets.ts';
import { locksConflict, overlap, rangesCover, rangesWith } from '../../wire/lock-ranges.ts';
import type { CallOptions, Exchanger, Subject, TimedAnswer } from '../transport/exchange.ts';
import { getRequest, postRequest } from '../transport/request.ts';

/** Asked of the server; it waits for less, and then answers `locked`, or `busy` during its grace. */
const WAIT_MS = 30_000;
const WAIT_ATTEMPT_MS = 60_000;
const RENEWALS_PER_LEASE = 6;
const RENEW_AGAIN_MS = 100;
const ATTEMPTS_PER_LEASE = 6;
/** A new primary answers `busy` until the clients have claimed their locks, which takes longer than one request may. */
const BUSY_REQUESTS_MAX = 3;
/** Bound of the reading error of `World.bootMs`, on this machine and on the server, with a reserve. */
const CLOCK_MARGIN_MS = 50;

export interface FileLocksEvents {
  /** The client has lost these locks: they were not renewed in time, or a new primary has granted them to others. */
  lost(file: number, locks: readonly LockHeld[]): void;
}

/** The holder of locks. Its messages about all files share one sequence, which reopening a file does not restart. */
export interface LockClient {
  readonly id: number;
  stamp: number;
  /** By file: the numbers of its lock requests in progress. */
  readonly pending: Map<number, Set<number>>;
  /** By file: the primary's epoch in its last answer. */
  readonly lastAnswers: BoundedMap<number, LockPrimaryState>;
}

const NO_ANSWER: LockPrimaryState = { epoch: 0 };
const LAST_ANSWERS_MAX = 10_000;

export function createLockClient(id: number): LockClient {
  return { id, stamp: 0, pending: new Map(), lastAnswers: new BoundedMap(LAST_ANSWERS_MAX) };
}

/**
 * The locks of this client on one file. It renews them six times per lease, at whichever server is primary; a renewal
 * also claims them. A client that could not renew within a lease, counted from the sending of the last answered
 * renewal, has lost all of them. It knows that without any message, before a server may grant them to others.
 */
export class FileLocks {
  readonly file: number;
  readonly #client: LockClient;
  readonly #exchanger: Exchanger;
  readonly #subject: Subject;
  readonly #events: FileLocksEvents;
  readonly #held = new Map<string, LockHeld[]>();
  /** Lost locks that their owner has not released since: until then it gets no other. */
  readonly #lost = new Map<string, LockHeld[]>();
  readonly #repairs = new Map<string, Promise<void>>();
  readonly #pending: Set<number>;
  #leaseMs = 0;
  /**
   * Changes made under the locks name this stamp; changes that name an earlier one have failed, or their locks are
   * released or lost. Each lock message carries it, so that a server knows it before it grants a lock to others.
   */
  #sinceStamp = 0;
  #lostStamp = 0;
  /** By `World.bootMs`, which continues while the machine sleeps, as the servers' clocks do. */
  #validUntilMs = -Infinity;
  /** Epochs that granted locks which the renewal in flight does not name. */
  readonly #epochsSince = new Set<number>();
  #renewing = false;
  #timer: Timer | null = null;
  #closed = false;

  constructor(
    exchanger: Exchanger,
    file: number,
    client: LockClient,
    replicas: readonly string[],
    events: FileLocksEvents,
  ) {
    this.#exchanger = exchanger;
    this.file = file;
    this.#client = client;
    this.#subject = { primary: replicas[0] ?? null };
    this.#events = events;
    this.#pending = client.pending.get(file) ?? new Set();
    client.pending.set(file, this.#pending);
  }

  /**
   * Sets a lock.
   * @param waits until it is free, without a bound; else the call fails with `locked`
   * @throws ServiceError `locked`, `deadlock`, `lock-limit`, `busy`; `lease-lost` if the owner lost a lock on the file
   *   and has not released it; why there is no primary; the reason of `signal`
   */
  async lock(wish: LockHeld, waits: boolean, signal?: AbortSignal): Promise<void> {
    const key = keyOf(wish);
    await this.#repairs.get(key);
    this.#assertNotLost(key);
    const own = this.#held.get(key) ?? [];
    // The server releases the earlier lock of the whole file before it checks whether the new one is free.
    if (wish.kind === 'flock' && own.some(({ type }) => type !== wish.type)) this.#held.delete(key);
    const number = this.#beginRequest();
    try {
      for (let request = 1; ; request++) {
        const outcome = await this.#requestLock(number, wish, waits ? WAIT_MS : 0, signal);
        if (outcome === 'granted') break;
        signal?.throwIfAborted();
        if (outcome === 'outdated') {
          request--;
          continue;
        }
        const isRetried = waits || (outcome.code === 'busy' && request < BUSY_REQUESTS_MAX);
        if (!isRetried) throw outcome;
      }
    } catch (error) {
      this.#pending.delete(number);
      const isFinal = isRefusal(error) && signal?.aborted !== true;
      // It may have been granted: a caller that does not know of a lock must not keep it.
      if (!isFinal) this.#repair(wish);
      if (signal?.aborted === true) await this.#repairs.get(key);
      throw error;
    } finally {
      this.#pending.delete(number);
    }
  }

  /** Releases the owner's locks in the range. Nothing is sent if there is none. */
  async unlock(range: Omit<LockHeld, 'type'>): Promise<void> {
    const wish: LockChange = { ...range, type: 'unlock' };
    const key = keyOf(wish);
    this.#removeRange(this.#lost, wish);
    const held = this.#held.get(key) ?? [];
    if (!held.some((lock) => overlap(lock, wish) !== null)) return;
    // From here on no renewal names it.
    this.#removeRange(this.#held, wish);
    await this.#repairs.get(key);
    const number = this.#beginRequest();
    try {
      await this.#send(number, number, wish, 0);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      // The repair releases it once a server answers; else it ends with the lease.
      this.#pending.delete(number);
      this.#repair(wish);
    } finally {
      this.#pending.delete(number);
      this.#schedule();
    }
  }

  /** @returns whether the owner lost a lock and has not released it since */
  isLost(kind: LockKind, owner: string): boolean {
    this.checkExpiry();
    return this.#lost.has(keyOf({ kind, owner }));
  }

  /** @returns what a change made under the locks sends: servers refuse it once they are lost; null without locks */
  get currentStamp(): LocksHeld | null {
    this.checkExpiry();
    return this.#held.size === 0 ? null : { client: this.#client.id, stamp: this.#sinceStamp };
  }

  /**
   * Fences a change that was made under locks and failed, and may be executed late. Once its lock is released, it is
   * not executed: later changes carry a new stamp, and those in flight are sent again with it.
   */
  fence(): void {
    this.#sinceStamp = ++this.#client.stamp;
  }

  /** Whether a change's stamp is outdated although no lock was lost: servers refuse the change; it is sent again. */
  isOutdated({ stamp }: LocksHeld): boolean {
    const { currentStamp: under } = this;
    return stamp >= this.#lostStamp && stamp !== under?.stamp;
  }

  /** Renews now. Called before a change is sent again: a new primary accepts it once a renewal claimed the locks. */
  claim(): void {
    this.checkExpiry();
    if (this.#held.size === 0 || this.#renewing) return;
    this.#timer?.cancel();
    void this.#renew();
  }

  /** Reports all locks as lost if their lease has ended, which no event shows: called before each use of them. */
  checkExpiry(): void {
    if (this.#held.size === 0 || this.#exchanger.world.bootMs() < this.#validUntilMs) return;
    this.#lose([...this.#held.values()].flat());
  }

  /** Queries the primary. @returns a lock that conflicts with `wish`, and whether this client has it; or null */
  async findConflict(wish: LockHeld): Promise<{ readonly lock: LockHeld; readonly own: boolean } | null> {
    const { locks } = await listLocks(this.#exchanger, this.file, {}, this.#subject);
    const isOther = (lock: LockOfClient): boolean =>
      lock.client !== this.#client.id || lock.owner !== wish.owner;
    const lock = locks
      .map((each): LockOfClient => ({ ...each, ...rangeFromWire(each) }))
      .find((each) => each.kind === wish.kind && isOther(each) && locksConflict(each, wish));
    return lock === undefined ? null : { lock, own: lock.client === this.#client.id };
  }

  async close(): Promise<void> {
    this.#closed = true;
    const owners = [...this.#held.values()].flatMap(([first]) => first ?? []);
    await Promise.all(owners.map((lock) => this.unlock({ ...lock, start: 0n, end: LOCK_END })));
    await Promise.all(this.#repairs.values());
    this.#timer?.cancel();
    if (this.#pending.size === 0) this.#client.pending.delete(this.file);
  }

  /** Requests a lock once. @returns `outdated` if the server set nothing; the error if it is `locked` or `busy` */
  async #requestLock(
    number: number,
    wish: LockHeld,
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<'granted' | 'outdated' | ServiceError> {
    const key = keyOf(wish);
    // The first request has its number as stamp; each further one is a newer message.
    const stamp = this.#client.stamp === number ? number : ++this.#client.stamp;
    let granted: TimedAnswer<LockGrant>;
    try {
      granted = await this.#send(stamp, number, wish, waitMs, signal);
    } catch (error) {
      if (error instanceof ServiceError && (error.code === 'locked' || error.code === 'busy')) return error;
      throw error;
    }
    const { answer: grant, sentMs } = granted;
    this.checkExpiry();
    if (this.#lost.has(key)) {
      if (grant.outdated !== true) this.#repair(wish);
      this.#assertNotLost(key);
    }
    if (grant.outdated === true) return 'outdated';
    const untilMs = sentMs + grant.leaseMs - CLOCK_MARGIN_MS;
    // This does not renew earlier locks: only a renewal confirms that they still exist.
    const validUntilMs = this.#held.size === 0 ? untilMs : Math.min(untilMs, this.#validUntilMs);
    if (this.#exchanger.world.bootMs() >= validUntilMs) {
      throw new ServiceError(
        'unknown',
        `Cannot lock file ${this.file}: the answer arrived after the lock lease had expired; try again`,
      );
    }
    this.#leaseMs = grant.leaseMs;
    this.#validUntilMs = validUntilMs;
    this.#epochsSince.add(grant.epoch);
    if (this.#held.size === 0) this.#sinceStamp = this.#client.stamp;
    this.#held.set(key, rangesWith(this.#held.get(key) ?? [], wish));
    this.#schedule();
    return 'granted';
  }

  #send(
    stamp: number,
    number: number,
    wish: LockChange,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<TimedAnswer<LockGrant>> {
    const { owner, kind, type, pid } = wish;
    const moment = { client: this.#client.id, stamp, pending: [...this.#pending] };
    const body: LockBody = { ...moment, number, owner, kind, type, ...rangeToWire(wish), pid, waitMs };
    return this.#post(`Cannot lock file ${this.file}`, '', body, {
      ...(signal === undefined ? {} : { signal }),
      ...(waitMs === 0 ? {} : { attemptMs: WAIT_ATTEMPT_MS }),
    });
  }

  /** After a request with an unknown outcome: reduces the owner's locks in its range, at the server, to `#held`. */
  #repair(wish: LockChange): void {
    const key = keyOf(wish);
    const before = this.#repairs.get(key) ?? Promise.resolve();
    const repair = before
      .then(async () => {
        const held = this.#held.get(key) ?? [];
        const inside = held.flatMap((lock): LockChange[] => {
          const both = overlap(lock, wish);
          return both === null ? [] : [{ ...lock, ...both }];
        });
        let at = wish.start;
        const wanted: LockChange[] = [];
        for (const lock of inside) {
          if (at < lock.start) wanted.push({ ...wish, type: 'unlock', start: at, end: lock.start - 1n });
          // A lock that may have become exclusive is made shared again; one that was exclusive before still is.
          if (lock.type === 'shared') wanted.push(lock);
          at = lock.end + 1n;
        }
        if (at <= wish.end) wanted.push({ ...wish, type: 'unlock', start: at });
        for (const each of wanted) await this.#sendUntilAnswered(each);
      })
      .finally(() => {
        if (this.#repairs.get(key) === repair) this.#repairs.delete(key);
      });
    this.#repairs.set(key, repair);
  }

  /** Sends a repair until a server answers. Without locks here it ends: unrenewed, those at the server expire. */
  async #sendUntilAnswered(wish: LockChange): Promise<void> {
    for (;;) {
      const number = this.#beginRequest();
      try {
        const { answer } = await this.#send(number, number, wish, 0);
        if (answer.outdated !== true) return;
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        if (isRefusal(error) || this.#held.size === 0 || this.#closed) return;
        await this.#exchanger.world.sleep(RENEW_AGAIN_MS);
      } finally {
        this.#pending.delete(number);
      }
    }
  }

  #beginRequest(): number {
    if (this.#pending.size >= LOCK_REQUESTS_PENDING_MAX) {
      throw new ServiceError('lock-limit', `Too many lock requests for file ${this.file} are pending`);
    }
    const number = ++this.#client.stamp;
    this.#pending.add(number);
    return number;
  }

  #assertNotLost(key: string): void {
    this.checkExpiry();
    if (!this.#lost.has(key)) return;
    throw new ServiceError(
      'lease-lost',
      `A lock on file ${this.file} was lost; its owner must unlock the file first`,
    );
  }

  /** Moves locks to `#lost` and reports them: changes under them fail from here on, here and at servers. */
  #lose(locks: readonly LockHeld[]): void {
    if (locks.length === 0) return;
    for (const lock of locks) {
      this.#removeRange(this.#held, { ...lock, type: 'unlock' });
      const key = keyOf(lock);
      this.#lost.set(key, rangesWith(this.#lost.get(key) ?? [], lock));
    }
    this.fence();
    this.#lostStamp = this.#sinceStamp;
    this.#events.lost(this.file, locks);
  }

  #removeRange(ranges: Map<string, LockHeld[]>, wish: LockChange): void {
    const key = keyOf(wish);
    const before = ranges.get(key);
    if (before === undefined) return;
    const after = rangesWith(before, { ...wish, type: 'unlock' });
    if (after.length === 0) ranges.delete(key);
    else ranges.set(key, after);
  }

  #schedule(): void {
    const { world } = this.#exchanger;
    this.#timer?.cancel();
    this.#timer = null;
    if (this.#held.size === 0 || this.#renewing) return;
    const renewAtMs = this.#validUntilMs - this.#leaseMs * (1 - 1 / RENEWALS_PER_LEASE);
    this.#timer = world.after(Math.max(0, renewAtMs - world.bootMs()), () => void this.#renew());
  }

  async #renew(): Promise<void> {
    assert(!this.#renewing, 'One renewal at a time');
    this.#renewing = true;
    try {
      for (;;) {
        this.checkExpiry();
        if (this.#held.size === 0) return;
        const outcome = await this.#renewOnce();
        if (outcome === 'renewed') return;
        if (outcome === 'failed') await this.#exchanger.world.sleep(RENEW_AGAIN_MS);
      }
    } finally {
      this.#renewing = false;
      this.#schedule();
    }
  }

  /** Sends a renewal. @returns `again` if one that is sent at once may succeed, `failed` if only a later one may */
  async #renewOnce(): Promise<'renewed' | 'again' | 'failed'> {
    const locks = [...this.#held.values()].flat();
    this.#epochsSince.clear();
    const stamp = ++this.#client.stamp;
    const body: LockRenewalBody = {
      client: this.#client.id,
      stamp,
      pending: [...this.#pending],
      locks: locks.map((lock) => ({ ...lock, ...rangeToWire(lock) })),
    };
    const limits = {
      timeoutMs: Math.max(1, this.#validUntilMs - this.#exchanger.world.bootMs()),
      attemptMs: this.#leaseMs / ATTEMPTS_PER_LEASE,
    };
    const { epoch } = this.#lastAnswer;
    let renewed: TimedAnswer<LockRenewal>;
    try {
      const what = `Cannot renew the locks on file ${this.file}`;
      renewed = await this.#post(what, '/renew', body, limits);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      // A newer message arrived first: what this one names may have been released since.
      return error.code === 'locked' ? 'again' : 'failed';
    }
    const { answer: renewal, sentMs } = renewed;
    // An answer after the end of the lease does not count: others may have had the locks in between.
    this.checkExpiry();
    this.#leaseMs = renewal.leaseMs;
    const lost = renewal.lost.flatMap((index) => {
      const lock = locks[index];
      // A lock that its owner released meanwhile is not lost.
      return lock !== undefined && rangesCover(this.#held.get(keyOf(lock)) ?? [], lock) ? [lock] : [];
    });
    this.#lose(lost);
    // Another primary accepts as a claim only what was sent since its epoch began.
    if (renewal.epoch !== epoch) return renewal.epoch > epoch ? 'again' : 'failed';
    // A lock that another primary granted meanwhile is not claimed from this one: this renewal does not extend it.
    if ([...this.#epochsSince].some((epoch) => epoch !== renewal.epoch)) return 'again';
    if (this.#held.size > 0) this.#validUntilMs = sentMs + renewal.leaseMs - CLOCK_MARGIN_MS;
    return 'renewed';
  }

  get #lastAnswer(): LockPrimaryState {
    return this.#client.lastAnswers.get(this.file) ?? NO_ANSWER;
  }

  #noteAnswer({ epoch, lapses = 0 }: LockPrimaryState): void {
    this.#client.lastAnswers.set(this.file, { epoch, lapses });
  }

  async #post<Value extends LockPrimaryState>(
    what: string,
    name: string,
    body: unknown,
    options: CallOptions,
  ): Promise<TimedAnswer<Value>> {
    const { world } = this.#exchanger;
    const { epoch, lapses = 0 } = this.#lastAnswer;
    const query = `since=${this.#sinceStamp}&epoch=${epoch}&lapses=${lapses}`;
    const path = `${locksPath(this.file)}${name}?${query}`;
    const request = postRequest(what, path, body, { files: [this.file] });
    const timed = await this.#exchanger.askTimed<Value>(
      () => world.bootMs(),
      request,
      options,
      this.#subject,
    );
    this.#noteAnswer(timed.answer);
    return timed;
  }
}

/** Lists all locks on a file and counts the waiting requests, as its primary knows them. */
export function listLocks(
  exchanger: Exchanger,
  file: number,
  options?: CallOptions,
  subject?: Subject,
): Promise<LockList> {
  const request = getRequest(`Cannot list the locks on file ${file}`, locksPath(file), { files: [file] });
  return exchanger.ask(request, options, subject);
}

function locksPath(file: number): string {
  return `/v1/data/${file}/locks`;
}

function keyOf({ kind, owner }: Pick<LockHeld, 'kind' | 'owner'>): string {
  return `${kind}:${owner}`;
}
