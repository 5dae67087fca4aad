import type { HolderDetails } from '../../base/errors.ts';
import { Backoff } from '../../base/retry.ts';
import type { World } from '../../base/world.ts';
import { HEADER_SESSION } from '../../wire/lease-headers.ts';
import type { LeaseKeys } from '../../wire/named-lease.ts';
import type { GrantedLease, LeaseEvent, LeaseList, LeaseQueryAnswer } from '../../wire/named-lease-api.ts';
import type { ClusterClientOptions } from '../cluster/cluster-client.ts';
import { Access } from '../transport/access.ts';
import { CLIENT_PACE } from '../transport/backoff.ts';
import { type CallOptions, type ExchangeOutcome, Exchanger } from '../transport/exchange.ts';
import type { ExchangeRequest } from '../transport/request.ts';
import { drawSession } from '../transport/request-window.ts';
import { readJson } from '../transport/response.ts';
import { type Grant, HeldLease, type LeaseChange, type LeaseExchange, leasePath } from './held-lease.ts';
import { leaseMomentAfter, leaseMomentNow } from './lease-clock.ts';
import { watchLease } from './lease-watch.ts';

const OPERATION_TIMEOUT_MS = 30_000;
/** How long the release of a lease may take that was perhaps granted to a caller who aborted. */
const RELEASE_MS = 1_000;
const AFTER_END_MS = 20;

export interface AcquireOptions {
  readonly ttlMs: number;
  /** A name for people: every user may read it. */
  readonly owner: string;
  readonly keys?: LeaseKeys;
  readonly wait?: boolean;
  readonly signal?: AbortSignal;
  readonly onTaken?: (holder: HolderDetails) => void;
  /** The lease counts as lost this long before its end, in milliseconds; a tenth of it by default. */
  readonly marginMs?: number;
}

export class NamedLeaseClient implements LeaseExchange {
  readonly world: World;
  readonly #exchanger: Exchanger;
  readonly #operationTimeoutMs: number;

  constructor(options: ClusterClientOptions) {
    const { world, servers, access = Access.NONE } = options;
    this.world = world;
    this.#operationTimeoutMs = options.operationTimeoutMs ?? OPERATION_TIMEOUT_MS;
    this.#exchanger = new Exchanger(world, servers, this.#operationTimeoutMs, access);
  }

  /**
   * Acquires a lease; it is refreshed until it is released or lost.
   * @throws ServiceError `lease-taken` if another holds it and `wait` is false; `unknown` or `no-majority` if no
   *   majority answers; the reason of `signal`
   */
  async acquire(name: string, options: AcquireOptions): Promise<HeldLease> {
    const session = drawSession(this.world);
    const { ttlMs, owner, keys = {}, wait = true, signal, onTaken, marginMs = ttlMs / 10 } = options;
    const body = JSON.stringify({ owner, ttlMs, keys });
    const call = signal === undefined ? {} : { signal };
    using waiting = new FreeWaiter(this, name, signal);
    const backoff = new Backoff(CLIENT_PACE, () => this.world.random());
    let notifiedToken = 0;
    let mayBeGranted = false;
    try {
      for (;;) {
        const outcome = await this.change(
          { what: `Cannot acquire lease "${name}"`, method: 'POST', path: leasePath(name), body },
          session,
          call,
        );
        if (outcome.kind === 'answered') {
          const held = new HeldLease(this, outcome.value, ttlMs, marginMs);
          if (held.isHeld) return held;
          // The answer took longer than the lease: the same session is granted it again.
          mayBeGranted = true;
          continue;
        }
        mayBeGranted ||= outcome.isOutcomeUnknown;
        const { holder } = outcome.error.details;
        if (outcome.error.code !== 'lease-taken' || holder === undefined || !wait) throw outcome.error;
        if (holder.token !== notifiedToken) onTaken?.(holder);
        notifiedToken = holder.token;
        await waiting.free(holder.remainingMs + AFTER_END_MS);
        await this.world
          .sleep(backoff.nextDelayMs(), signal === undefined ? {} : { signal })
          .catch(() => signal?.throwIfAborted());
      }
    } catch (error) {
      // The last attempt may have been granted, and would not be refreshed.
      if (mayBeGranted || signal?.aborted === true) await this.#releaseIfGranted(name, session);
      throw error;
    }
  }

  /** The state of a lease at a majority. */
  show(name: string, options: CallOptions = {}): Promise<LeaseQueryAnswer> {
    return this.#get(`Cannot query lease "${name}"`, leasePath(name), options);
  }

  /** The leases that single servers know as held. No majority confirms them, so the list is a hint. */
  list(prefix: string, options: CallOptions = {}): Promise<LeaseList> {
    return this.#get('Cannot list leases', `/v1/leases?prefix=${encodeURIComponent(prefix)}`, options);
  }

  /** Events of a lease, beginning with its state; continues at another server when one fails. */
  watch(name: string, options: CallOptions = {}): AsyncGenerator<LeaseEvent, void, undefined> {
    const patienceMs = options.timeoutMs ?? this.#operationTimeoutMs;
    return watchLease(this.#exchanger.endpoints, name, patienceMs, options.signal);
  }

  async change(request: LeaseChange, session: number, options: CallOptions): Promise<ExchangeOutcome<Grant>> {
    let sent = leaseMomentNow(this.world);
    const whole: ExchangeRequest = {
      ...request,
      headers: {
        ...request.headers,
        [HEADER_SESSION]: String(session),
        ...(request.body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      mutation: true,
      onAttempt: () => {
        sent = leaseMomentNow(this.world);
      },
    };
    return this.#exchanger.exchange(
      { primary: null },
      whole,
      async (response) => {
        const lease = await readJson<GrantedLease>(response);
        return { lease, end: leaseMomentAfter(sent, lease.remainingMs) };
      },
      options,
    );
  }

  async release(name: string, session: number, options: CallOptions): Promise<void> {
    const request: ExchangeRequest = {
      what: `Cannot release lease "${name}"`,
      method: 'DELETE',
      path: leasePath(name),
      headers: { [HEADER_SESSION]: String(session) },
      mutation: true,
    };
    await this.#exchanger.perform({ primary: null }, request, (response) => response.body.bytes(), options);
  }

  close(): Promise<void> {
    return this.#exchanger.close();
  }

  async #releaseIfGranted(name: string, session: number): Promise<void> {
    await this.release(name, session, { timeoutMs: RELEASE_MS, failFast: true }).catch(() => {
      // It was not held, or no server answers: then it expires by itself.
    });
  }

  #get<Value>(what: string, path: string, options: CallOptions): Promise<Value> {
    const request: ExchangeRequest = { what, method: 'GET', path, mutation: false };
    return this.#exchanger.perform({ primary: null }, request, readJson<Value>, options);
  }
}

/** Waits until a lease may be free, by an event or because its time is up. */
class FreeWaiter {
  readonly #client: NamedLeaseClient;
  readonly #name: string;
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal;
  #watching: Promise<void> | null = null;
  #onEvent: (event: LeaseEvent) => void = () => {};

  constructor(client: NamedLeaseClient, name: string, signal: AbortSignal | undefined) {
    this.#client = client;
    this.#name = name;
    this.#signal =
      signal === undefined ? this.#controller.signal : AbortSignal.any([signal, this.#controller.signal]);
  }

  /** Resolves when the lease may be free and should be requested. @throws the reason of the signal */
  async free(leftMs: number): Promise<void> {
    this.#signal.throwIfAborted();
    this.#watching ??= this.#watch();
    const { promise, resolve } = Promise.withResolvers<void>();
    let timer = this.#client.world.after(leftMs, resolve);
    this.#onEvent = (event) => {
      if (!event.held) return resolve();
      timer.cancel();
      timer = this.#client.world.after(event.remainingMs + AFTER_END_MS, resolve);
    };
    const stop = () => resolve();
    this.#signal.addEventListener('abort', stop);
    await promise;
    this.#signal.removeEventListener('abort', stop);
    this.#onEvent = () => {};
    timer.cancel();
    this.#signal.throwIfAborted();
  }

  [Symbol.dispose](): void {
    this.#controller.abort();
  }

  async #watch(): Promise<void> {
    try {
      for await (const event of this.#client.watch(this.#name, { signal: this.#signal }))
        this.#onEvent(event);
    } catch {
      // The timer covers the end of the lease as well; the next attempt reports the error.
      this.#watching = null;
    }
  }
}
