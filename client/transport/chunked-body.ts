const LINE_END = Buffer.from('\r\n');
const LINE_BYTES_MAX = 1024;

/** Decodes a chunked HTTP body ([RFC 9112], section 7.1). Trailer fields are ignored. */
export class ChunkedBody {
  readonly #bytesMax: number;
  readonly #parts: Buffer[] = [];
  #length = 0;
  #rest: Buffer = Buffer.alloc(0);
  #isLast = false;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** @returns the body once it is complete, else null @throws Error if it is malformed or too long */
  take(bytes: Buffer): Buffer | null {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    for (;;) {
      const end = this.#rest.indexOf(LINE_END);
      if (end < 0) {
        if (this.#rest.length > LINE_BYTES_MAX) throw new Error('The length line of a chunk is too long');
        return null;
      }
      const line = this.#rest.toString('latin1', 0, end);
      const begin = end + LINE_END.length;
      if (this.#isLast) {
        this.#rest = this.#rest.subarray(begin);
        if (line !== '') continue;
        if (this.#rest.length > 0) throw new Error('The server sent data without a request');
        return Buffer.concat(this.#parts, this.#length);
      }
      const digits = /^([0-9a-f]{1,8})(?:;|$)/i.exec(line)?.[1];
      if (digits === undefined) throw new Error('A chunk has no length');
      const size = Number.parseInt(digits, 16);
      if (this.#length + size > this.#bytesMax) throw new Error('The answer is too long');
      if (size === 0) this.#isLast = true;
      else if (this.#rest.length < begin + size + LINE_END.length) return null;
      else {
        this.#parts.push(this.#rest.subarray(begin, begin + size));
        this.#length += size;
      }
      this.#rest = this.#rest.subarray(size === 0 ? begin : begin + size + LINE_END.length);
    }
  }
}
