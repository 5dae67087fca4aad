import { ServiceError } from '../../base/errors.ts';
import type { Timer, World } from '../../base/world.ts';
import { HEADER_CHANGE } from '../../wire/lease-headers.ts';
import type { LeaseKeys } from '../../wire/named-lease.ts';
import type { GrantedLease, LeaseEvent } from '../../wire/named-lease-api.ts';
import type { CallOptions, ExchangeOutcome } from '../transport/exchange.ts';
import type { ExchangeRequest } from '../transport/request.ts';
import { type LeaseMoment, leaseRemainingMs } from './lease-clock.ts';

const REFRESH_SHARE = 0.5;
/** A request that has no answer after this share of the lease is sent to another server. */
const ATTEMPT_SHARE = 0.125;
const RETRY_MS = 50;
/** How often the clocks are read at least: they may have advanced while the machine slept. */
const CHECK_MS_MAX = 1_000;
const RELEASE_MS_MAX = 5_000;

/** A granted lease, and its end on this machine's clocks, counted from before the request was sent. */
export interface Grant {
  readonly lease: GrantedLease;
  readonly end: LeaseMoment;
}

export interface LeaseExchange {
  readonly world: World;
  change(request: LeaseChange, session: number, options: CallOptions): Promise<ExchangeOutcome<Grant>>;
  release(name: string, session: number, options: CallOptions): Promise<void>;
  watch(name: string, options?: CallOptions): AsyncGenerator<LeaseEvent, void, undefined>;
}

export type LeaseChange = Pick<ExchangeRequest, 'what' | 'method' | 'path' | 'body' | 'headers'>;

export function leasePath(name: string): string {
  return `/v1/leases/${encodeURIComponent(name)}`;
}

/**
 * A lease held by this process, refreshed until it is released or lost. It counts as lost a margin before its end, so
 * that what it protects can be stopped in time. `isHeld` reads the clock and is right even in a process that was
 * stopped for a while; `lost` is a notification, and may come late there.
 */
export class HeldLease {
  readonly name: string;
  readonly owner: string;
  /** Fencing token: a resource that was shown a larger one refuses this one. */
  readonly token: number;
  readonly session: number;
  readonly #cluster: LeaseExchange;
  readonly #ttlMs: number;
  readonly #marginMs: number;
  readonly #lost = new AbortController();
  readonly #ending = new AbortController();
  readonly #listeners = new Set<(end: LeaseMoment) => void>();
  #keys: LeaseKeys;
  #end: LeaseMoment;
  #timer: Timer | null = null;
  #lastChange: Promise<unknown> = Promise.resolve();
  /** Of keys. */
  #changes = 0;
  #refreshing = false;
  #released = false;
  #lostEarly = false;

  constructor(cluster: LeaseExchange, grant: Grant, ttlMs: number, marginMs: number) {
    const { name, owner, token, session, keys } = grant.lease;
    this.name = name;
    this.owner = owner;
    this.token = token;
    this.session = session;
    this.#cluster = cluster;
    this.#ttlMs = ttlMs;
    this.#marginMs = marginMs;
    this.#keys = keys;
    this.#end = grant.end;
    this.#arm();
  }

  get end(): LeaseMoment {
    return this.#end;
  }

  get keys(): LeaseKeys {
    return this.#keys;
  }

  /** For how long the lease may still be relied on, in milliseconds; 0 once it is lost or released. */
  get remainingMs(): number {
    if (this.#released || this.#lost.signal.aborted) return 0;
    return Math.max(0, leaseRemainingMs(this.#cluster.world, this.#end) - this.#marginMs);
  }

  get isHeld(): boolean {
    return this.remainingMs > 0;
  }

  /** Aborted when the lease is lost, but not when it is released. The reason is a `ServiceError` `lease-lost`. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether it was lost before its end: another holder may have it already. */
  get lostEarly(): boolean {
    return this.#lostEarly;
  }

  /** To be called right before an action that relies on the lease. @throws ServiceError `lease-lost` */
  assertHeld(): void {
    if (!this.isHeld) throw this.#lostError('it has expired by the clock of this process');
  }

  onRefreshed(listener: (end: LeaseMoment) => void): void {
    this.#listeners.add(listener);
  }

  /** Extends the lease now, instead of at half of its time. @throws ServiceError */
  async refresh(): Promise<void> {
    await this.#change('PATCH', '', JSON.stringify({ ttlMs: this.#ttlMs }));
  }

  /** Attaches a value to the lease, which every user may read. @throws ServiceError */
  async setKey(key: string, value: string): Promise<void> {
    await this.#change('PUT', `/keys/${encodeURIComponent(key)}`, JSON.stringify({ value }));
  }

  async removeKey(key: string): Promise<void> {
    await this.#change('DELETE', `/keys/${encodeURIComponent(key)}`);
  }

  /** Watches the lease, to notice its release or takeover before the next refresh. Costs a connection meanwhile. */
  watch(): void {
    void this.#watchEvents();
  }

  /** Lets the lease expire, because something may still rely on it. */
  abandon(): void {
    if (this.#released) return;
    this.#released = true;
    this.#stop();
    this.#ending.abort(this.#lostError('this client no longer renews it'));
  }

  /** Releases the lease; to be called when nothing relies on it. @throws ServiceError: it then expires by itself */
  async release(): Promise<void> {
    if (this.#released) return;
    this.abandon();
    await this.#lastChange;
    await this.#cluster
      .release(this.name, this.session, { timeoutMs: RELEASE_MS_MAX, failFast: true })
      .catch((error: unknown) => {
        if (!(error instanceof ServiceError) || error.code !== 'lease-lost') throw error;
      });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Changes the lease at the cluster, after earlier changes. @param below the path after the lease's own */
  async #change(method: 'PATCH' | 'PUT' | 'DELETE', below: string, body?: string): Promise<void> {
    const work = this.#lastChange.then(() => this.#attempt(method, below, body));
    this.#lastChange = work.catch(() => {
      // The caller gets the error; the next change is independent of it.
    });
    const outcome = await work;
    if (outcome.kind === 'failed') throw outcome.error;
  }

  async #attempt(
    method: 'PATCH' | 'PUT' | 'DELETE',
    below: string,
    body?: string,
  ): Promise<ExchangeOutcome<Grant>> {
    const leftMs = this.remainingMs;
    if (leftMs <= 0) {
      const error = this.#lostError('it has expired by the clock of this process');
      return { kind: 'failed', error, isOutcomeUnknown: false };
    }
    const request = {
      what: `Cannot ${below === '' ? 'refresh' : 'change keys of'} lease "${this.name}"`,
      method,
      path: leasePath(this.name) + below,
      ...(body === undefined ? {} : { body }),
      // An attempt at a server that was slow may be executed after later changes.
      ...(below === '' ? {} : { headers: { [HEADER_CHANGE]: String(++this.#changes) } }),
    };
    const signal = AbortSignal.any([this.lost, this.#ending.signal]);
    const call: CallOptions = { timeoutMs: leftMs, attemptMs: this.#ttlMs * ATTEMPT_SHARE, signal };
    const outcome = await this.#cluster.change(request, this.session, call);
    if (outcome.kind === 'answered') {
      const { token } = outcome.value.lease;
      if (token === this.token) this.#extend(outcome.value);
      else {
        // Others may have held it in between: what it protects has to start again, with the new token.
        const error = this.#lostError(`its session acquired it again, with token ${token}`);
        this.#loseEarly(error);
        return { kind: 'failed', error, isOutcomeUnknown: false };
      }
    } else if (outcome.error.code === 'lease-lost') this.#loseEarly(outcome.error);
    return outcome;
  }

  #extend({ lease, end }: Grant): void {
    this.#keys = lease.keys;
    // An end that was counted from an earlier moment may still be later, and is valid.
    if (leaseRemainingMs(this.#cluster.world, end) > leaseRemainingMs(this.#cluster.world, this.#end))
      this.#end = end;
    for (const listener of this.#listeners) listener(this.#end);
    this.#arm();
  }

  /** Sets the timer for the next refresh, or for the end of the lease while one is in progress. */
  #arm(): void {
    this.#timer?.cancel();
    this.#timer = null;
    if (this.#released || this.#lost.signal.aborted) return;
    const leftMs = this.remainingMs;
    if (leftMs <= 0) {
      this.#lose(this.#lostError('it could not be refreshed in time'));
      return;
    }
    const untilRefreshMs = leaseRemainingMs(this.#cluster.world, this.#end) - this.#ttlMs * REFRESH_SHARE;
    if (untilRefreshMs <= 0 && !this.#refreshing) {
      this.#refreshing = true;
      void this.#refreshInTime();
    }
    const nextMs = this.#refreshing ? leftMs : untilRefreshMs;
    this.#timer = this.#cluster.world.after(Math.min(nextMs, CHECK_MS_MAX), () => this.#arm());
  }

  async #refreshInTime(): Promise<void> {
    try {
      while (!this.#released && this.isHeld) {
        try {
          await this.refresh();
          return;
        } catch (error) {
          if (this.#released || this.#lost.signal.aborted) return;
          if (!(error instanceof ServiceError)) throw error;
        }
        await this.#cluster.world.sleep(RETRY_MS);
      }
    } finally {
      this.#refreshing = false;
      this.#arm();
    }
  }

  async #watchEvents(): Promise<void> {
    const signal = AbortSignal.any([this.lost, this.#ending.signal]);
    while (!signal.aborted) {
      try {
        for await (const { held, owner, token } of this.#cluster.watch(this.name, { signal })) {
          // A smaller token is a late event of an earlier holder.
          if (token < this.token || (token === this.token && held)) continue;
          const why = held ? `${owner} holds it, with token ${token}` : 'another client has released it';
          this.#loseEarly(this.#lostError(why));
          return;
        }
      } catch (error) {
        // Refreshes notice it as well, only later.
        if (!(error instanceof ServiceError)) throw error;
      }
      await this.#cluster.world.sleep(this.#ttlMs, { signal }).catch(() => {});
    }
  }

  #loseEarly(error: ServiceError): void {
    if (!this.#lost.signal.aborted) this.#lostEarly = true;
    this.#lose(error);
  }

  #lose(error: ServiceError): void {
    this.#stop();
    if (!this.#released) this.#lost.abort(error);
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  #lostError(why: string): ServiceError {
    return new ServiceError('lease-lost', `Lease "${this.name}" (token ${this.token}) is lost: ${why}`);
  }
}
