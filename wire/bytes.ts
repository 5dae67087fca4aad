import { assert } from '../base/assert.ts';
import { utf8Text } from '../base/utf8.ts';

/** Malformed bytes from outside: the frame is refused, the process continues. */
export class MalformedError extends Error {
  override readonly name = 'MalformedError';
}

/** 53 bits in groups of seven. */
const VARINT_BYTES_MAX = 8;

const utf8Encoder = new TextEncoder();

/** From this size memory is not cleared first, which would cost as much as filling it. */
const UNCLEARED_BYTES_MIN = 4096;

/** Up to this length ASCII text is converted by character, cheaper than the library; reading also creates a string. */
const SHORT_TEXT_LENGTH = 32;
const SHORT_READ_LENGTH = 12;

function memoryOf(sizeBytes: number): Uint8Array {
  return sizeBytes < UNCLEARED_BYTES_MIN
    ? new Uint8Array(sizeBytes)
    : new Uint8Array(Buffer.allocUnsafeSlow(sizeBytes).buffer);
}

/** Appends little-endian fields to a growing buffer. */
export class ByteWriter {
  #bytes: Uint8Array;
  #view: DataView;
  #length = 0;

  constructor(capacityBytes = 256) {
    this.#bytes = memoryOf(capacityBytes);
    this.#view = new DataView(this.#bytes.buffer);
  }

  get length(): number {
    return this.#length;
  }

  uint8(value: number): this {
    const at = this.#reserve(1);
    this.#view.setUint8(at, value);
    return this;
  }

  uint16(value: number): this {
    const at = this.#reserve(2);
    this.#view.setUint16(at, value, true);
    return this;
  }

  uint32(value: number): this {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  /** A non-negative integer below 2^53, in eight bytes. */
  uint53(value: number): this {
    const at = this.#reserve(8);
    this.#view.setUint32(at, value >>> 0, true);
    this.#view.setUint32(at + 4, Math.floor(value / 0x1_0000_0000), true);
    return this;
  }

  float64(value: number): this {
    const at = this.#reserve(8);
    this.#view.setFloat64(at, value, true);
    return this;
  }

  /** A non-negative integer below 2^53 in 1 to 8 bytes: seven bits each, least first; a set high bit continues. */
  varint(value: number): this {
    assert(Number.isSafeInteger(value) && value >= 0, 'A non-negative integer below 2^53 is written');
    const at = this.#reserve(VARINT_BYTES_MAX);
    const bytes = this.#bytes;
    let rest = value;
    let next = at;
    while (rest >= 0x80) {
      if (rest < 0x8000_0000) {
        bytes[next++] = 0x80 | (rest & 0x7f);
        rest >>>= 7;
      } else {
        bytes[next++] = 0x80 | (rest % 0x80);
        rest = Math.floor(rest / 0x80);
      }
    }
    bytes[next++] = rest;
    this.#length = next;
    return this;
  }

  /** At most 65,535 bytes of UTF-8, after their length. */
  text(value: string): this {
    if (value.length <= SHORT_TEXT_LENGTH && this.#shortText(value)) return this;
    const bytes = utf8Encoder.encode(value);
    if (bytes.length > 0xffff) throw new RangeError(`Text of ${bytes.length} bytes does not fit a field`);
    return this.uint16(bytes.length).raw(bytes);
  }

  /** Writes length and text if all characters are ASCII. @returns false, with nothing written, if not */
  #shortText(value: string): boolean {
    const { length } = value;
    const begin = this.#length;
    const at = this.#reserve(2 + length);
    for (let index = 0; index < length; index++) {
      const code = value.charCodeAt(index);
      if (code >= 0x80) {
        this.#length = begin;
        return false;
      }
      this.#bytes[at + 2 + index] = code;
    }
    this.#view.setUint16(at, length, true);
    return true;
  }

  bytes(value: Uint8Array): this {
    return this.uint32(value.length).raw(value);
  }

  raw(value: Uint8Array): this {
    const at = this.#reserve(value.length);
    this.#bytes.set(value, at);
    return this;
  }

  /** Drops what was written, and keeps the memory for what follows. */
  clear(): void {
    this.#length = 0;
  }

  /** @returns a view of the bytes; the writer must not be used afterwards, or only after `clear`, which reuses them */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(count: number): number {
    const at = this.#length;
    const needed = at + count;
    if (needed > this.#bytes.length) {
      const grown = memoryOf(Math.max(needed, this.#bytes.length * 2));
      grown.set(this.#bytes.subarray(0, at));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    this.#length = needed;
    return at;
  }
}

/** Reads fields of `ByteWriter`. Throws `MalformedError` on missing or invalid bytes. */
export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  uint8(): number {
    return this.#view.getUint8(this.#take(1));
  }

  /** A `varint` in its shortest form. */
  varint(): number {
    let byte = this.uint8();
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 0x80;
    for (let count = 2; count <= VARINT_BYTES_MAX; count++) {
      byte = this.uint8();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        if (!Number.isSafeInteger(value)) throw new MalformedError('A number is not below 2^53');
        if (byte === 0) throw new MalformedError('A number is longer than it needs to be');
        return value;
      }
      scale *= 0x80;
    }
    throw new MalformedError('A number does not end');
  }

  uint16(): number {
    return this.#view.getUint16(this.#take(2), true);
  }

  uint32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  uint53(): number {
    const at = this.#take(8);
    const high = this.#view.getUint32(at + 4, true);
    if (high > 0x1f_ffff) throw new MalformedError('A number is not below 2^53');
    return high * 0x1_0000_0000 + this.#view.getUint32(at, true);
  }

  float64(): number {
    const value = this.#view.getFloat64(this.#take(8), true);
    if (!Number.isFinite(value)) throw new MalformedError('A number is not finite');
    return value;
  }

  text(): string {
    const bytes = this.raw(this.uint16());
    const short = bytes.length <= SHORT_READ_LENGTH ? shortText(bytes) : null;
    if (short !== null) return short;
    const text = utf8Text(bytes);
    if (text === null) throw new MalformedError('A text is not UTF-8');
    return text;
  }

  /** A view into the frame: copy it to keep it longer. */
  bytes(): Uint8Array {
    return this.raw(this.uint32());
  }

  raw(count: number): Uint8Array {
    const at = this.#take(count);
    return this.#bytes.subarray(at, at + count);
  }

  /** Call at the end: leftover bytes mean that sender and reader disagree. */
  end(): void {
    if (this.remaining > 0) throw new MalformedError(`${this.remaining} bytes are left over`);
  }

  #take(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at) {
      throw new MalformedError(`${count} bytes are needed where ${this.#bytes.length - at} are left`);
    }
    this.#at = at + count;
    return at;
  }
}

function shortText(bytes: Uint8Array): string | null {
  let text = '';
  for (const byte of bytes) {
    if (byte >= 0x80) return null;
    text += String.fromCharCode(byte);
  }
  return text;
}
