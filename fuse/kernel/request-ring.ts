/** Positions of the counters, in 32-bit words; the bytes follow. */
const HEAD = 0;
const TAIL = 1;
const DATA_AT = 64;
/** In place of a length: the next request is at the beginning. */
const SKIP = -1;
const LENGTH_BYTES = 8;

/**
 * Requests in memory of both threads: the reader thread puts, the main thread takes, and while requests are under way
 * neither has to wake the other.
 */
export class RequestRing {
  readonly #control: Int32Array;
  readonly #lengths: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #capacity: number;

  constructor(memory: SharedArrayBuffer) {
    this.#control = new Int32Array(memory, 0, DATA_AT / 4);
    this.#lengths = new Int32Array(memory, DATA_AT);
    this.#bytes = new Uint8Array(memory, DATA_AT);
    this.#capacity = this.#bytes.length;
  }

  /** @param capacityBytes a power of two, at least twice the largest request */
  static memory(capacityBytes: number): SharedArrayBuffer {
    return new SharedArrayBuffer(DATA_AT + capacityBytes);
  }

  /** Adds a request. Blocks its thread while there is no space. */
  put(bytes: Uint8Array): void {
    const needed = LENGTH_BYTES + align(bytes.length);
    let head = Atomics.load(this.#control, HEAD);
    let at = this.#indexOf(head);
    if (at + needed > this.#capacity) {
      const restBytes = this.#capacity - at;
      this.#waitForSpace(head, restBytes + needed);
      this.#lengths[at / 4] = SKIP;
      head = (head + restBytes) | 0;
      at = 0;
    } else this.#waitForSpace(head, needed);
    this.#lengths[at / 4] = bytes.length;
    this.#bytes.set(bytes, at + LENGTH_BYTES);
    Atomics.store(this.#control, HEAD, (head + needed) | 0);
    Atomics.notify(this.#control, HEAD);
  }

  /** @returns the next request, in memory of its own; null if there is none */
  take(): Buffer | null {
    const head = Atomics.load(this.#control, HEAD);
    let tail = Atomics.load(this.#control, TAIL);
    if (head === tail) return null;
    let at = this.#indexOf(tail);
    if (this.#lengths[at / 4] === SKIP) {
      tail = (tail + this.#capacity - at) | 0;
      at = 0;
    }
    const length = this.#lengths[at / 4] ?? 0;
    const bytes = Buffer.allocUnsafe(length);
    bytes.set(this.#bytes.subarray(at + LENGTH_BYTES, at + LENGTH_BYTES + length));
    Atomics.store(this.#control, TAIL, (tail + LENGTH_BYTES + align(length)) | 0);
    Atomics.notify(this.#control, TAIL);
    return bytes;
  }

  /** @returns undefined if there is a request; else resolves when there is one */
  more(): Promise<unknown> | undefined {
    const tail = Atomics.load(this.#control, TAIL);
    const waiting = Atomics.waitAsync(this.#control, HEAD, tail);
    return waiting.async ? waiting.value : undefined;
  }

  #indexOf(counter: number): number {
    return counter & (this.#capacity - 1);
  }

  #waitForSpace(head: number, needed: number): void {
    for (;;) {
      const tail = Atomics.load(this.#control, TAIL);
      if (this.#capacity - ((head - tail) | 0) >= needed) return;
      Atomics.wait(this.#control, TAIL, tail);
    }
  }
}

function align(bytes: number): number {
  return Math.ceil(bytes / 8) * 8;
}
