import { assert } from '../../base/assert.ts';
import { ByteReader, MalformedError } from '../../wire/bytes.ts';
import {
  CHANNEL_CALL,
  CHANNEL_LEASE,
  CHANNEL_NAMED_LEASE,
  CHANNEL_REPLICA,
  CHANNEL_REPLICA_VIEW,
  CHANNEL_REPLY,
  type MessageChannel,
} from './transport.ts';

/**
 * Versions of everything that servers say to each other: the newest that this release speaks, and the oldest. Two servers meet where the
 * ranges of both have a version in common, and speak the newest of those.
 */
export const WIRE_VERSION = 2;
export const WIRE_OLDEST = 2;

/** The most that one record carries. */
export const PAYLOAD_BYTES_MAX = 8 * 2 ** 20;

/** From here on a payload travels in a frame of its own, and is copied on neither side. */
export const PAYLOAD_LARGE_BYTES = 32 * 2 ** 10;

/** Small records are collected into one frame up to this size. */
export const FRAME_BATCH_BYTES = 64 * 2 ** 10;

/** What a receiver lets in; a frame that claims more ends its connection before any of it is kept. */
export const FRAME_BYTES_MAX = PAYLOAD_BYTES_MAX + 2 ** 10;

const METHOD = /^[a-z][a-z0-9-]{0,63}$/;

/**
 * One record of a frame, little-endian: `channel u8 | payload length u32`, then by channel
 * nothing (lease, replica), `id u32 | method length u8 | method` (call) or `id u32 | failed u8`
 * (reply), then the payload. A frame is a sequence of records. It has no header of its own: magic
 * and version belong to the handshake of the connection.
 */
export type FrameRecord =
  /** `tail`, at least `PAYLOAD_LARGE_BYTES`, is the end of the payload, where the two are not in one place. */
  | { readonly channel: MessageChannel; readonly payload: Uint8Array; readonly tail?: Uint8Array }
  | {
      readonly channel: typeof CHANNEL_CALL;
      readonly id: number;
      readonly method: string;
      readonly payload: Uint8Array;
    }
  | {
      readonly channel: typeof CHANNEL_REPLY;
      readonly id: number;
      readonly failed: boolean;
      readonly payload: Uint8Array;
    };

const HEADER_BYTES = 5;

/** @returns bytes of a record before its payload */
function recordHeaderSize(record: FrameRecord): number {
  switch (record.channel) {
    case CHANNEL_CALL:
      return HEADER_BYTES + 5 + record.method.length;
    case CHANNEL_REPLY:
      return HEADER_BYTES + 5;
    default:
      return HEADER_BYTES;
  }
}

/** @returns bytes of a record's payload, its tail included */
export function payloadBytes(record: FrameRecord): number {
  return record.payload.length + (tailOf(record)?.length ?? 0);
}

function tailOf(record: FrameRecord): Uint8Array | undefined {
  return 'tail' in record ? record.tail : undefined;
}

/** @returns bytes of a record on the wire */
export function recordSize(record: FrameRecord): number {
  return recordHeaderSize(record) + payloadBytes(record);
}

/** Is this the name of a method? Names are ASCII, so that their length is their size. */
export function isMethod(text: string): boolean {
  return METHOD.test(text);
}

function writeHeader(target: Buffer, offset: number, record: FrameRecord): number {
  const length = payloadBytes(record);
  assert(length <= PAYLOAD_BYTES_MAX, 'The outbox lets no oversized record in');
  let at = target.writeUInt8(record.channel, offset);
  at = target.writeUInt32LE(length, at);
  switch (record.channel) {
    case CHANNEL_CALL:
      assert(isMethod(record.method), 'A method has a short name in ASCII');
      at = target.writeUInt32LE(record.id, at);
      at = target.writeUInt8(record.method.length, at);
      return at + target.write(record.method, at, 'latin1');
    case CHANNEL_REPLY:
      at = target.writeUInt32LE(record.id, at);
      return target.writeUInt8(record.failed ? 1 : 0, at);
    default:
      return at;
  }
}

/** @returns one frame with small records, copied into it */
export function encodeBatch(records: readonly FrameRecord[], sizeBytes: number): Buffer {
  const frame = Buffer.allocUnsafe(sizeBytes);
  let at = 0;
  for (const record of records) {
    at = writeHeader(frame, at, record);
    frame.set(record.payload, at);
    at += record.payload.length;
  }
  assert(at === sizeBytes, 'A frame is as large as its records');
  return frame;
}

/**
 * A large record travels as two fragments of one frame, of which the second is copied nowhere: its payload or, where that
 * has a tail, the tail.
 */
export function encodeLarge(record: FrameRecord): readonly [Buffer, Uint8Array] {
  const tail = tailOf(record);
  const headerBytes = recordHeaderSize(record);
  const first = Buffer.allocUnsafe(headerBytes + (tail === undefined ? 0 : record.payload.length));
  const written = writeHeader(first, 0, record);
  assert(written === headerBytes, 'A header is as large as its fields');
  if (tail === undefined) return [first, record.payload];
  first.set(record.payload, headerBytes);
  return [first, tail];
}

type Header =
  | { readonly channel: MessageChannel }
  | { readonly channel: typeof CHANNEL_CALL; readonly id: number; readonly method: string }
  | { readonly channel: typeof CHANNEL_REPLY; readonly id: number; readonly failed: boolean };

function readHeader(reader: ByteReader): { header: Header; length: number } {
  const channel = reader.uint8();
  const length = reader.uint32();
  if (length > PAYLOAD_BYTES_MAX) {
    throw new MalformedError(`A record claims ${length} bytes, more than ${PAYLOAD_BYTES_MAX}`);
  }
  switch (channel) {
    case CHANNEL_LEASE:
    case CHANNEL_REPLICA:
    case CHANNEL_REPLICA_VIEW:
    case CHANNEL_NAMED_LEASE:
      return { header: { channel }, length };
    case CHANNEL_CALL: {
      const id = reader.uint32();
      const method = Buffer.from(reader.raw(reader.uint8())).toString('latin1');
      if (!isMethod(method)) throw new MalformedError('A call has no proper method name');
      return { header: { channel, id, method }, length };
    }
    case CHANNEL_REPLY: {
      const id = reader.uint32();
      const failed = reader.uint8();
      if (failed > 1) throw new MalformedError(`A reply has the outcome ${failed}`);
      return { header: { channel, id, failed: failed === 1 }, length };
    }
    default:
      throw new MalformedError(`There is no channel ${channel}`);
  }
}

/** A plain view and not a `Buffer`, whose `slice` does not copy as the one of `Uint8Array` does. */
function plain(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
}

/**
 * Reads a frame as it came, in fragments. All of it or nothing: a frame with one bad record has
 * no good ones.
 *
 * @returns records whose payloads are views of the fragments
 * @throws MalformedError
 */
export function decodeFrame(fragments: readonly Uint8Array[]): FrameRecord[] {
  const [first, second] = fragments;
  if (first === undefined) return [];
  if (second !== undefined && fragments.length === 2) {
    const reader = new ByteReader(plain(first));
    const { header, length } = readHeader(reader);
    // A large record came in the pieces in which it was sent: nothing is to be copied.
    if (reader.remaining + second.length === length) {
      if (reader.remaining === 0) return [{ ...header, payload: plain(second) }];
      if (header.channel !== CHANNEL_CALL && header.channel !== CHANNEL_REPLY) {
        return [{ channel: header.channel, payload: reader.raw(reader.remaining), tail: plain(second) }];
      }
    }
  }
  const reader = new ByteReader(plain(fragments.length === 1 ? first : Buffer.concat(fragments)));
  const records: FrameRecord[] = [];
  while (reader.remaining > 0) {
    const { header, length } = readHeader(reader);
    records.push({ ...header, payload: reader.raw(length) });
  }
  return records;
}
