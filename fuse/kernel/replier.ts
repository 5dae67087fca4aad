import { constants } from 'node:os';
import type { ErrnoName } from '../errno.ts';
import { OUT_HEADER_BYTES } from './protocol.ts';
import { putHeader } from './replies.ts';

/** The largest reply that is assembled here: a page of entries with the longest names. */
const SCRATCH_BYTES = 128 * 1024;
/** Larger replies are sent in two pieces, not copied. */
const COPIED_BYTES_MAX = 16 * 1024;

/** Sends the pieces of one reply, which may change once it returns. @returns whether the kernel has accepted it */
export type Send = (pieces: readonly Uint8Array[]) => boolean;

/** Frames replies, in memory that the next one reuses. */
export class Replier {
  static readonly bodyBytesMax = SCRATCH_BYTES - OUT_HEADER_BYTES;
  readonly #send: Send;
  readonly #scratch = Buffer.alloc(SCRATCH_BYTES);

  constructor(send: Send) {
    this.#send = send;
  }

  /** @param put returns the end of the body. @returns whether the kernel has accepted the reply */
  put(unique: number, put: (reply: Buffer, at: number) => number): boolean {
    const length = put(this.#scratch, OUT_HEADER_BYTES);
    putHeader(this.#scratch, length, 0, unique);
    return this.#send([this.#scratch.subarray(0, length)]);
  }

  bytes(unique: number, bytes: Uint8Array): void {
    const length = OUT_HEADER_BYTES + bytes.length;
    putHeader(this.#scratch, length, 0, unique);
    if (bytes.length > COPIED_BYTES_MAX) {
      this.#send([this.#scratch.subarray(0, OUT_HEADER_BYTES), bytes]);
      return;
    }
    this.#scratch.set(bytes, OUT_HEADER_BYTES);
    this.#send([this.#scratch.subarray(0, length)]);
  }

  done(unique: number): void {
    this.#header(unique, 0);
  }

  error(unique: number, errno: ErrnoName): void {
    this.#header(unique, -constants.errno[errno]);
  }

  #header(unique: number, error: number): void {
    putHeader(this.#scratch, OUT_HEADER_BYTES, error, unique);
    this.#send([this.#scratch.subarray(0, OUT_HEADER_BYTES)]);
  }
}
