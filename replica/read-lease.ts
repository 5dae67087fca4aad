import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import { DRIFT_MAX } from './guard.ts';

/** A holder asks this many times in a read lease for the next one. */
const ASKS_PER_LEASE = 3;

/**
 * A backup's right to answer reads from its own disk. While it runs, the primary commits nothing that this
 * replica has not acknowledged; so what is here and known to be committed is all there is.
 * All times are readings of this replica's own clock; the lease counts from before it was asked for.
 */
export class ReadLease {
  readonly #leaseMs: number;
  #epoch: Epoch | null = null;
  #untilMs = -Infinity;
  #startSeq = 0;
  #nonce: number;
  #askedMs = -Infinity;
  /** The question that a grant may answer. */
  #open = false;
  #readMs = -Infinity;

  /** @param firstNonce larger than any that an earlier life, or an earlier replica in this one, has used */
  constructor(leaseMs: number, firstNonce: number) {
    this.#leaseMs = leaseMs;
    this.#nonce = firstNonce;
  }

  /** Somebody reads here, or would like to. */
  noteRead(nowMs: number): void {
    this.#readMs = nowMs;
  }

  /** Whether the lease runs, was given in `epoch`, and all operations that came before it are here. */
  covers(epoch: Epoch, seq: number, nowMs: number): boolean {
    if (this.#epoch === null || !epochEqual(this.#epoch, epoch)) return false;
    return nowMs < this.#untilMs && seq >= this.#startSeq;
  }

  /** @returns when the primary is to be asked (again); Infinity while nobody reads here */
  nextAskMs(): number {
    if (this.#readMs === -Infinity) return Infinity;
    const dueMs = this.#askedMs + this.#leaseMs / ASKS_PER_LEASE;
    return dueMs <= this.#readMs + this.#leaseMs ? dueMs : Infinity;
  }

  /** @returns the nonce of the question that goes out now */
  ask(nowMs: number): number {
    this.#nonce++;
    this.#askedMs = nowMs;
    this.#open = true;
    return this.#nonce;
  }

  /** @returns whether the grant answers the latest question */
  granted(epoch: Epoch, nonce: number, durationMs: number, startSeq: number): boolean {
    if (!this.#open || nonce !== this.#nonce) return false;
    this.#open = false;
    const untilMs = this.#askedMs + durationMs * (1 - DRIFT_MAX);
    const renewed = this.#epoch !== null && epochEqual(this.#epoch, epoch);
    this.#untilMs = renewed ? Math.max(this.#untilMs, untilMs) : untilMs;
    this.#startSeq = renewed ? Math.max(this.#startSeq, startSeq) : startSeq;
    this.#epoch = epoch;
    return true;
  }

  /** Answers no more reads, by no grant that is under way either. */
  drop(): void {
    this.#epoch = null;
    this.#untilMs = -Infinity;
    this.#open = false;
  }
}

/**
 * What a process granted as a primary, by its own clock. Outlives its epochs: a read lease of an earlier one
 * may still run when a later one begins.
 */
export class ReadGrants {
  readonly #grants = new Map<ServerId, { readonly epoch: Epoch; readonly untilMs: number }>();
  #believedUntilMs = -Infinity;

  /** To be called before the grant goes out. */
  grant(server: ServerId, epoch: Epoch, nowMs: number, durationMs: number): void {
    const untilMs = nowMs + durationMs * (1 + DRIFT_MAX);
    this.#grants.set(server, { epoch, untilMs: Math.max(this.#grants.get(server)?.untilMs ?? 0, untilMs) });
  }

  /** The server has given back what it held, or the process that held it is gone. */
  returned(server: ServerId): void {
    this.#grants.delete(server);
  }

  /** The server follows `epoch`: what it held of an earlier one ended with its promise. */
  followed(server: ServerId, epoch: Epoch): void {
    const grant = this.#grants.get(server);
    if (grant !== undefined && !epochEqual(grant.epoch, epoch)) this.#grants.delete(server);
  }

  /** Until then somebody who is no replica may believe what the primary told. It cannot be taken back from here. */
  believed(untilMs: number): void {
    this.#believedUntilMs = Math.max(this.#believedUntilMs, untilMs);
  }

  /** All of them have said that they believe nothing any more. */
  believedNoMore(): void {
    this.#believedUntilMs = -Infinity;
  }

  isBelieved(nowMs: number): boolean {
    return nowMs < this.#believedUntilMs;
  }

  /** @returns servers whose read leases may still run */
  holders(nowMs: number): ServerId[] {
    for (const [server, { untilMs }] of this.#grants) if (nowMs >= untilMs) this.#grants.delete(server);
    return [...this.#grants.keys()];
  }

  /** @returns when the last of them is over; −Infinity without any */
  lastEndMs(): number {
    return Math.max(this.#believedUntilMs, ...this.#ends());
  }

  /** @returns when the first of those that run is over; Infinity without any */
  nextEndMs(nowMs: number): number {
    return Math.min(
      Infinity,
      ...[...this.#ends(), this.#believedUntilMs].filter((untilMs) => untilMs > nowMs),
    );
  }

  #ends(): number[] {
    return [...this.#grants.values()].map(({ untilMs }) => untilMs);
  }
}
