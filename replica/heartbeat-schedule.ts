import type { ReplicaConfig } from './actions.ts';

/** While reads wait, heartbeats that request the guard are at least this far apart, in milliseconds. */
const GUARD_ASK_MS = 20;

/**
 * A replica that beats with its lease waits for up to one more heartbeat, and beats up to one early: the extension of
 * the lease that is nearest to the time of a quiet heartbeat is about as late as the earlier ones.
 */
const EARLY_HEARTBEATS = 2;

interface Beating {
  readonly isQuiet: boolean;
  heartbeat(nowMs: number): void;
}

export class HeartbeatSchedule {
  readonly #heartbeatMs: number;
  readonly #quietHeartbeatMs: number;
  readonly #earlyMs: number;
  #nextMs = 0;
  #readMs = -Infinity;

  constructor({
    heartbeatMs,
    quietHeartbeatMs,
    beatsWithLease,
  }: Pick<ReplicaConfig, 'heartbeatMs' | 'quietHeartbeatMs' | 'beatsWithLease'>) {
    this.#heartbeatMs = heartbeatMs;
    this.#quietHeartbeatMs = quietHeartbeatMs + (beatsWithLease ? heartbeatMs : 0);
    this.#earlyMs = beatsWithLease ? EARLY_HEARTBEATS * heartbeatMs : 0;
  }

  get nextMs(): number {
    return this.#nextMs;
  }

  noteRead(nowMs: number): void {
    this.#readMs = nowMs;
  }

  /** The guard may be too short for reads, or its heartbeat lost: while clients read, the next one is due now. */
  hurryForReads(nowMs: number): void {
    if (nowMs - this.#readMs < this.#quietHeartbeatMs) this.#nextMs = nowMs;
  }

  /** The guard ends with the lease as known when it was requested: while clients read, a heartbeat is due now. */
  leaseExtended(order: Beating, nowMs: number): void {
    this.hurryForReads(nowMs);
    if (order.isQuiet && nowMs + this.#earlyMs > this.#nextMs) this.#nextMs = nowMs;
  }

  mayRequestGuard(sinceSentMs: number): boolean {
    return sinceSentMs >= GUARD_ASK_MS;
  }

  start(nowMs: number): void {
    this.#nextMs = nowMs + this.#heartbeatMs;
  }

  /** Same phase as other new files, so that their heartbeats share frames. */
  startAligned(nowMs: number): void {
    this.#nextMs = (1 + Math.ceil(nowMs / this.#heartbeatMs)) * this.#heartbeatMs;
  }

  beat(order: Beating, nowMs: number): void {
    order.heartbeat(nowMs);
    this.#nextMs = nowMs + this.#periodMs(order);
  }

  /** @returns whether a heartbeat is due; if so, schedules the next one */
  isDue(order: Beating | null, nowMs: number): boolean {
    const nextMs = nowMs + this.#periodMs(order);
    const isDue = nowMs >= this.#nextMs;
    // When quiet ends, the next heartbeat comes sooner.
    this.#nextMs = isDue ? nextMs : Math.min(this.#nextMs, nextMs);
    return isDue;
  }

  #periodMs(order: Beating | null): number {
    return order?.isQuiet ? this.#quietHeartbeatMs : this.#heartbeatMs;
  }
}
