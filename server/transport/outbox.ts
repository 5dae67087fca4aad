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

/** What became of a record that was to be sent. */
export type Pushed = 'queued' | 'full' | 'too-large';

/**
 * What waits to be sent on one connection. Small records of one turn of the event loop leave in one
 * frame; a large one leaves at once in its own, behind the small ones that were queued before it.
 * Ends with its connection, and what waits in it is lost then.
 */
export class Outbox {
  readonly #sink: FrameSink;
  readonly #queueBytesMax: number;
  #batch: FrameRecord[] = [];
  #batchBytes = 0;
  #immediate: NodeJS.Immediate | null = null;
  #closed = false;

  constructor(sink: FrameSink, queueBytesMax: number) {
    this.#sink = sink;
    this.#queueBytesMax = queueBytesMax;
  }

  push(record: FrameRecord): Pushed {
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
    // Immediates run when all sockets that were ready in this turn have been read: what their
    // messages caused shares one frame, and a lone message leaves without a timer's delay.
    this.#immediate ??= setImmediate(() => {
      this.#immediate = null;
      this.flush();
    });
    return 'queued';
  }

  /** Sends what is collected now. */
  flush(): void {
    if (this.#batch.length === 0 || this.#closed) return;
    const frame = encodeBatch(this.#batch, this.#batchBytes);
    this.#batch = [];
    this.#batchBytes = 0;
    this.#sink.sendFrame([frame]);
  }

  /** The connection is gone. */
  close(): void {
    this.#closed = true;
    if (this.#immediate !== null) clearImmediate(this.#immediate);
    this.#immediate = null;
    this.#batch = [];
    this.#batchBytes = 0;
  }
}
