import type { Timer, World } from '../../base/world.ts';
import { FORGETS_MAX } from '../../wire/request-limits.ts';

export interface Sendable {
  readonly parent: number;
  readonly bytes: number;
}

export interface Sender<Op extends Sendable> {
  readonly requestsMax: number;
  readonly countMax: number;
  readonly bytesMax?: number;
  /** While a request is under way, operations with fewer bytes gather for the next one. */
  readonly gatheredBytes?: number;
  /** Operations of one tick of the event loop share a request. */
  readonly gathersTick?: boolean;
  readonly pause?: Pause;
  readonly isAlike?: (one: Op, other: Op) => boolean;
  /** Must not reject: each operation has its own outcome. */
  readonly send: (batch: readonly Op[]) => Promise<void>;
}

/** The shortest time between requests, unless `countMax` operations or a caller wait. */
export interface Pause {
  readonly world: World;
  readonly ms: number;
  readonly countMax: number;
}

/** Operations of one kind that wait for a request, the oldest first. */
export class SendQueue<Op extends Sendable> {
  readonly #sender: Sender<Op>;
  #waiting: Op[] = [];
  #waitingBytes = 0;
  #underWay = 0;
  #isScheduled = false;
  #sentMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | null = null;
  /** A caller waits for operations in the queue. */
  #isHurried = false;

  constructor(sender: Sender<Op>) {
    this.#sender = sender;
  }

  add(op: Op): void {
    this.#waiting.push(op);
    this.#waitingBytes += op.bytes;
    if (this.#sender.gathersTick !== true) this.#send();
    else if (!this.#isScheduled) {
      this.#isScheduled = true;
      queueMicrotask(() => this.#send());
    }
  }

  /** Sends what is in the queue without a pause, since a caller waits for it. */
  sendNow(): void {
    this.#isHurried = this.#waiting.length > 0;
    this.#send();
  }

  #send(): void {
    this.#isScheduled = false;
    while (this.#isBatchReady) {
      if (this.#delaySend()) return;
      this.#underWay++;
      void this.#sender.send(this.#takeBatch()).finally(() => {
        this.#underWay--;
        this.#send();
      });
    }
  }

  get #isBatchReady(): boolean {
    const { requestsMax, gatheredBytes = Number.POSITIVE_INFINITY } = this.#sender;
    if (this.#waiting.length === 0 || this.#underWay >= requestsMax) return false;
    return this.#underWay === 0 || this.#waitingBytes >= gatheredBytes;
  }

  #delaySend(): boolean {
    const { pause } = this.#sender;
    if (pause === undefined) return false;
    const nowMs = pause.world.nowMs();
    const leftMs = this.#sentMs + pause.ms - nowMs;
    if (leftMs > 0 && !this.#isHurried && this.#waiting.length < pause.countMax) {
      this.#timer ??= pause.world.after(leftMs, () => {
        this.#timer = null;
        this.#send();
      });
      return true;
    }
    this.#sentMs = nowMs;
    return false;
  }

  /** Removes the oldest operation from the queue, with later ones that are like it and within the request's limits. */
  #takeBatch(): Op[] {
    const { countMax, bytesMax = Number.POSITIVE_INFINITY, isAlike = () => true } = this.#sender;
    const batch: Op[] = [];
    const remaining: Op[] = [];
    const directories = new Set<number>();
    let bytes = 0;
    let index = 0;
    for (; index < this.#waiting.length && batch.length < countMax; index++) {
      const op = this.#waiting[index] as Op;
      const isIncluded =
        bytes + op.bytes <= bytesMax &&
        (directories.size < FORGETS_MAX || directories.has(op.parent)) &&
        (batch[0] === undefined || isAlike(batch[0], op));
      (isIncluded ? batch : remaining).push(op);
      if (!isIncluded) continue;
      bytes += op.bytes;
      directories.add(op.parent);
    }
    this.#waiting = remaining.concat(this.#waiting.slice(index));
    this.#waitingBytes -= bytes;
    this.#isHurried &&= this.#waiting.length > 0;
    return batch;
  }
}
