import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../client/cluster/file-handle.ts';
import { systemWorld } from '../../world/system-world.ts';
import { isLong } from '../long.ts';

export const RECORD_BYTES = 512;
/** Pause after each record. */
const PAUSE_MS = isLong ? 1 : 20;

/** @returns a record with its writer and its number in that writer's order, filled accordingly */
export function recordOf(writer: number, number: number): Buffer {
  const record = Buffer.alloc(RECORD_BYTES);
  const text = `${writer}:${number}\n`;
  const filling = createHash('sha256').update(text).digest();
  for (let at = 0; at < RECORD_BYTES; at += filling.length) filling.copy(record, at);
  record.write(text, 0, 'latin1');
  return record;
}

/**
 * A client that writes records to a file as fast as they are acknowledged, each at its own position: writer w of n has
 * the positions w, w + n, w + 2n, … Remembers the acknowledged records, and the longest time without an
 * acknowledgement.
 */
export class RecordWriter {
  readonly writer: number;
  readonly writers: number;
  readonly #client: ClusterClient;
  readonly #file: FileHandle;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #lastMs = performance.now();
  /** Longest time between two acknowledgements. */
  gapMs = 0;
  acknowledged = 0;
  /** Records whose outcome is unknown to the client. */
  readonly doubtful = new Set<number>();

  constructor(servers: readonly string[], file: number, writer: number, writers: number) {
    this.writer = writer;
    this.writers = writers;
    this.#client = new ClusterClient({ world: systemWorld, servers, operationTimeoutMs: 40_000 });
    this.#file = this.#client.openFile(file);
    this.#ended = this.#run();
    // The caller that waits for the end gets the error.
    this.#ended.catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let number = 0; !this.#stop.signal.aborted; number++) {
      const offset = (number * this.writers + this.writer) * RECORD_BYTES;
      try {
        await this.#file.write(offset, recordOf(this.writer, number));
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        this.doubtful.add(number);
      }
      const nowMs = performance.now();
      this.gapMs = Math.max(this.gapMs, nowMs - this.#lastMs);
      this.#lastMs = nowMs;
      this.acknowledged = number + 1;
      // The proof needs some records between two faults, and each record costs three servers processor time.
      await delay(PAUSE_MS);
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
    await this.#client.close();
  }

  /** @returns numbers of acknowledged records that the contents lack */
  missing(contents: Uint8Array): number[] {
    const missing: number[] = [];
    for (let number = 0; number < this.acknowledged; number++) {
      if (this.doubtful.has(number)) continue;
      const offset = (number * this.writers + this.writer) * RECORD_BYTES;
      const found = contents.subarray(offset, offset + RECORD_BYTES);
      if (Buffer.compare(found, recordOf(this.writer, number)) !== 0) missing.push(number);
    }
    return missing;
  }
}
