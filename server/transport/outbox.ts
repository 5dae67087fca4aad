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

export interface FrameSink {
  queuedBytes(): number;
  /** Takes one frame of one or two fragments. They are not copied: the caller must not change them. */
  sendFrame(fragments: readonly Uint8Array[]): void;
}

/** Longest delay of a deferrable record, in ms: it may share a frame, and all timeouts of protocols are much longer. */
export const DEFERRED_MS_MAX = 10;

export type Pushed = 'queued' | 'full' | 'too-large';

/**
 * The send queue of one connection; queued records are lost with it. Small records of one tick of the event loop leave
 * in one frame, a large one at once in its own, in order. A deferrable record waits for others, because each frame
 * wakes a process.
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
    // `soon` runs after all ready sockets were read: the replies to them share a frame, without a timer's delay.
    this.#immediate ??= this.#world.soon(() => {
      this.#immediate = null;
      this.flush();
    });
  }

  flush(): void {
    this.#deferred?.cancel();
    this.#deferred = null;
    if (this.#batch.length === 0 || this.#closed) return;
    const frame = encodeBatch(this.#batch, this.#batchBytes);
    this.#batch = [];
    this.#batchBytes = 0;
    this.#sink.sendFrame([frame]);
  }

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
