import type { ReplicaConfig } from './actions.ts';

/** Reads that wait for the guard have it asked for again after this long, in milliseconds. */
const GUARD_ASK_MS = 20;

/** The part of a write order that heartbeats depend on. */
interface Beating {
  readonly isQuiet: boolean;
  heartbeat(nowMs: number): void;
}

/** When a candidate or primary next repeats what may have been lost. */
export class HeartbeatSchedule {
  readonly #heartbeatMs: number;
  readonly #quietHeartbeatMs: number;
  #nextMs = 0;
  /** When a client last read here. */
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

  /** The guard that reads need may be too short, or its request lost: where clients read, it is asked for at once. */
  hurryForReads(nowMs: number): void {
    if (nowMs - this.#readMs < this.#quietHeartbeatMs) this.#nextMs = nowMs;
  }

  /** Whether a guard that lapsed may be asked for again. */
  mayAskForGuard(sinceSentMs: number): boolean {
    return sinceSentMs >= GUARD_ASK_MS;
  }

  start(nowMs: number): void {
    this.#nextMs = nowMs + this.#heartbeatMs;
  }

  /** At the same moments as those of other files that are made now, so that they share frames. */
  startAligned(nowMs: number): void {
    this.#nextMs = (1 + Math.ceil(nowMs / this.#heartbeatMs)) * this.#heartbeatMs;
  }

  /** Sends a heartbeat now. */
  beat(order: Beating, nowMs: number): void {
    order.heartbeat(nowMs);
    this.#nextMs = nowMs + this.#periodMs(order);
  }

  /** @returns whether a heartbeat is due now; then the next one is scheduled */
  isDue(order: Beating | null, nowMs: number): boolean {
    const nextMs = nowMs + this.#periodMs(order);
    const isDue = nowMs >= this.#nextMs;
    // What ends the quiet brings the next heartbeat near again.
    this.#nextMs = isDue ? nextMs : Math.min(this.#nextMs, nextMs);
    return isDue;
  }

  #periodMs(order: Beating | null): number {
    return order?.isQuiet ? this.#quietHeartbeatMs : this.#heartbeatMs;
  }
}
