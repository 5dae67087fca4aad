import type { Timer, World } from '../../base/world.ts';
import {
  encodeBatch,
  encodeLarge,
  FRAME_BATCH_BYTES,
  type FrameRecord,
  PAYLOAD_BYTES_MAX,
  PAYLOAD_LARGE_BYTES,
  payloadBytes,
  recordSize,
} from './frame.ts';

/** Where an outbox puts its frames: one connection to one peer. */
export interface FrameSink {
  /** Bytes handed over that have not left the process yet. */
  queuedBytes(): number;
  /** Takes one frame in one or two fragments. They are not copied; nobody changes them afterwards. */
  sendFrame(fragments: readonly Uint8Array[]): void;
}

/**
 * What nobody waits for leaves no later than this, in milliseconds: long enough for what a busy server sends meanwhile,
 * and short beside what any rule of time here counts in.
 */
export const DEFERRED_MS_MAX = 10;

/** What became of a record that was to be sent. */
export type Pushed = 'queued' | 'full' | 'too-large';

/**
 * What waits to be sent on one connection. Small records of one turn of the event loop leave in one
 * frame; a large one leaves at once in its own, behind the small ones that were queued before it. What can be deferred
 * waits for company, because each frame wakes a process; it keeps its place in the order.
 * Ends with its connection, and what waits in it is lost then.
 */
export class Outbox {
  readonly #world: World;
  readonly #sink: FrameSink;
  readonly #queueBytesMax: number;
  #batch: FrameRecord[] = [];
  #batchBytes = 0;
  #immediate: Timer | null = null;
  #deferred: Timer | null = null;
  #closed = false;

  constructor(world: World, sink: FrameSink, queueBytesMax: number) {
    this.#world = world;
    this.#sink = sink;
    this.#queueBytesMax = queueBytesMax;
  }

  /** @param deferrable nobody waits for it */
  push(record: FrameRecord, deferrable: boolean = false): Pushed {
    const bytes = payloadBytes(record);
    if (bytes > PAYLOAD_BYTES_MAX) return 'too-large';
    const size = recordSize(record);
    if (this.#batchBytes + this.#sink.queuedBytes() + size > this.#queueBytesMax) return 'full';
    if (bytes >= PAYLOAD_LARGE_BYTES) {
      this.flush();
      this.#sink.sendFrame(encodeLarge(record));
      return 'queued';
    }
    if (this.#batchBytes + size > FRAME_BATCH_BYTES) this.flush();
    this.#batch.push(record);
    this.#batchBytes += size;
    if (deferrable) this.#defer();
    else this.#flushSoon();
    return 'queued';
  }

  #defer(): void {
    if (this.#immediate !== null || this.#deferred !== null) return;
    this.#deferred = this.#world.after(DEFERRED_MS_MAX, () => this.flush());
  }

  #flushSoon(): void {
    // Immediates run when all sockets that were ready in this turn have been read: what their
    // messages caused shares one frame, and a lone message leaves without a timer's delay.
    this.#immediate ??= this.#world.soon(() => {
      this.#immediate = null;
      this.flush();
    });
  }

  /** Sends what is collected now. */
  flush(): void {
    this.#deferred?.cancel();
    this.#deferred = null;
    if (this.#batch.length === 0 || this.#closed) return;
    const frame = encodeBatch(this.#batch, this.#batchBytes);
    this.#batch = [];
    this.#batchBytes = 0;
    this.#sink.sendFrame([frame]);
  }

  /** The connection is gone. */
  close(): void {
    this.#closed = true;
    this.#immediate?.cancel();
    this.#immediate = null;
    this.#deferred?.cancel();
    this.#deferred = null;
    this.#batch = [];
    this.#batchBytes = 0;
  }
}
