import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import { DRIFT_MAX } from './guard.ts';

/** While clients read here, the lease is requested again after this part of it. */
const ASKS_PER_LEASE = 3;

/**
 * A backup's right to answer reads from its own disk. While it runs, the primary commits nothing that this replica
 * has not acknowledged, so what is here and known to be committed is complete. Times are of the local clock; the
 * lease counts from before its request.
 */
export class ReadLease {
  readonly #leaseMs: number;
  #epoch: Epoch | null = null;
  #untilMs = -Infinity;
  #startSeq = 0;
  #nonce: number;
  #askedMs = -Infinity;
  #isRequested = false;
  #readMs = -Infinity;

  /** @param firstNonce larger than those of earlier incarnations, and of earlier replicas in this process */
  constructor(leaseMs: number, firstNonce: number) {
    this.#leaseMs = leaseMs;
    this.#nonce = firstNonce;
  }

  noteRead(nowMs: number): void {
    this.#readMs = nowMs;
  }

  /** Whether the lease of `epoch` runs, and all operations before it are here. */
  covers(epoch: Epoch, seq: number, nowMs: number): boolean {
    if (this.#epoch === null || !epochEqual(this.#epoch, epoch)) return false;
    return nowMs < this.#untilMs && seq >= this.#startSeq;
  }

  /** @returns when to ask the primary (again); Infinity while no client reads here */
  nextRequestMs(): number {
    if (this.#readMs === -Infinity) return Infinity;
    const dueMs = this.#askedMs + this.#leaseMs / ASKS_PER_LEASE;
    return dueMs <= this.#readMs + this.#leaseMs ? dueMs : Infinity;
  }

  /** @returns a nonce, which the grant must repeat */
  request(nowMs: number): number {
    this.#nonce++;
    this.#askedMs = nowMs;
    this.#isRequested = true;
    return this.#nonce;
  }

  /** Extends the lease from its request on. @returns false, without effect, if it does not answer the latest one */
  granted(epoch: Epoch, nonce: number, durationMs: number, startSeq: number): boolean {
    if (!this.#isRequested || nonce !== this.#nonce) return false;
    this.#isRequested = false;
    const untilMs = this.#askedMs + durationMs * (1 - DRIFT_MAX);
    const renewed = this.#epoch !== null && epochEqual(this.#epoch, epoch);
    this.#untilMs = renewed ? Math.max(this.#untilMs, untilMs) : untilMs;
    this.#startSeq = renewed ? Math.max(this.#startSeq, startSeq) : startSeq;
    this.#epoch = epoch;
    return true;
  }

  /** Ends the read lease, and ignores a grant that is under way. */
  drop(): void {
    this.#epoch = null;
    this.#untilMs = -Infinity;
    this.#isRequested = false;
  }
}

/** Read leases that this process granted, by its own clock. They may outlive the epoch. */
export class ReadGrants {
  readonly #grants = new Map<ServerId, { readonly epoch: Epoch; readonly untilMs: number }>();
  #cachedUntilMs = -Infinity;

  /** Must be called before the grant is sent. */
  grant(server: ServerId, epoch: Epoch, nowMs: number, durationMs: number): void {
    const untilMs = nowMs + durationMs * (1 + DRIFT_MAX);
    this.#grants.set(server, { epoch, untilMs: Math.max(this.#grants.get(server)?.untilMs ?? 0, untilMs) });
  }

  /** The server's read lease ended: it returned the lease, or its process ended. */
  ended(server: ServerId): void {
    this.#grants.delete(server);
  }

  /** Removes the server's grant of an earlier epoch: its promise to `epoch` ended that read lease. */
  endEarlier(server: ServerId, epoch: Epoch): void {
    const grant = this.#grants.get(server);
    if (grant !== undefined && !epochEqual(grant.epoch, epoch)) this.#grants.delete(server);
  }

  /** Until then clients may use cached answers of this primary, which it cannot revoke from here. */
  noteCachedUntil(untilMs: number): void {
    this.#cachedUntilMs = Math.max(this.#cachedUntilMs, untilMs);
  }

  /** All clients reported that they dropped what they cached. */
  cachesDropped(): void {
    this.#cachedUntilMs = -Infinity;
  }

  isCached(nowMs: number): boolean {
    return nowMs < this.#cachedUntilMs;
  }

  /** @returns servers whose read leases may still run */
  holders(nowMs: number): ServerId[] {
    for (const [server, { untilMs }] of this.#grants) if (nowMs >= untilMs) this.#grants.delete(server);
    return [...this.#grants.keys()];
  }

  /** @returns when the last one ends; −Infinity if none */
  lastEndMs(): number {
    let lastMs = this.#cachedUntilMs;
    for (const { untilMs } of this.#grants.values()) lastMs = Math.max(lastMs, untilMs);
    return lastMs;
  }

  /** @returns when the first running one ends; Infinity if none */
  nextEndMs(nowMs: number): number {
    let firstMs = this.#cachedUntilMs > nowMs ? this.#cachedUntilMs : Infinity;
    for (const { untilMs } of this.#grants.values())
      if (untilMs > nowMs) firstMs = Math.min(firstMs, untilMs);
    return firstMs;
  }
}
