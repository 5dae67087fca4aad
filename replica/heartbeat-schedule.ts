import type { ReplicaConfig } from './actions.ts';

/** While reads wait, heartbeats that request the guard are at least this far apart, in milliseconds. */
const GUARD_ASK_MS = 20;

interface Beating {
  readonly isQuiet: boolean;
  heartbeat(nowMs: number): void;
}

export class HeartbeatSchedule {
  readonly #heartbeatMs: number;
  readonly #quietHeartbeatMs: number;
  #nextMs = 0;
  #readMs = -Infinity;

  constructor({ heartbeatMs, quietHeartbeatMs }: Pick<ReplicaConfig, 'heartbeatMs' | 'quietHeartbeatMs'>) {
    this.#heartbeatMs = heartbeatMs;
    this.#quietHeartbeatMs = quietHeartbeatMs;
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
