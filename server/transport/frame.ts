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
 * Newest and oldest version of the protocol between servers that this release speaks. Two servers use the newest
 * version that both speak; without a common version they refuse each other.
 */
export const WIRE_VERSION = 3;
export const WIRE_OLDEST = 2;
/** From this version on, a peer needs no pings: see `PeerConnection`. */
export const WIRE_HEARTBEATS = 3;

/** Largest payload of one record, in bytes. */
export const PAYLOAD_BYTES_MAX = 8 * 2 ** 20;

/** A payload of at least this size travels in a frame of its own and is copied on neither side. */
export const PAYLOAD_LARGE_BYTES = 32 * 2 ** 10;

export const FRAME_BATCH_BYTES = 64 * 2 ** 10;

/** Largest frame that a receiver accepts; a frame that claims more ends its connection before any of it is stored. */
export const FRAME_BYTES_MAX = PAYLOAD_BYTES_MAX + 2 ** 10;

const METHOD = /^[a-z][a-z0-9-]{0,63}$/;

/**
 * One record of a frame, little-endian: `channel u8 | payload length u32`, then by channel nothing (lease, replica),
 * `id u32 | method length u8 | method` (call) or `id u32 | failed u8` (reply), then the payload. A frame is a sequence
 * of records without a header: the handshake of the connection has agreed on the version.
 */
export type FrameRecord =
  /** `tail`, at least `PAYLOAD_LARGE_BYTES`, is the end of a payload that lies in two places. */
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

/** Returns the bytes of a record's payload, with its tail. */
export function payloadBytes(record: FrameRecord): number {
  return record.payload.length + (tailOf(record)?.length ?? 0);
}

function tailOf(record: FrameRecord): Uint8Array | undefined {
  return 'tail' in record ? record.tail : undefined;
}

export function recordSize(record: FrameRecord): number {
  return recordHeaderSize(record) + payloadBytes(record);
}

/** Method names are ASCII, so that their length is their size. */
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

/** Encodes a large record as two fragments of one frame. The second, payload or tail, is not copied. */
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
      if (!isMethod(method)) throw new MalformedError('A call has an invalid method name');
      return { header: { channel, id, method }, length };
    }
    case CHANNEL_REPLY: {
      const id = reader.uint32();
      const failed = reader.uint8();
      if (failed > 1) throw new MalformedError(`A reply has the outcome ${failed}`);
      return { header: { channel, id, failed: failed === 1 }, length };
    }
    default:
      throw new MalformedError(`Unknown channel ${channel}`);
  }
}

/** Returns a plain array on the same memory: payloads are no Buffers, whose `slice` does not copy. */
function plainArray(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
}

/** Decodes a frame into records whose payloads are views of it. @throws MalformedError if any record is malformed */
export function decodeFrame(fragments: readonly Uint8Array[]): FrameRecord[] {
  const [first, second] = fragments;
  if (first === undefined) return [];
  if (second !== undefined && fragments.length === 2) {
    const reader = new ByteReader(plainArray(first));
    const { header, length } = readHeader(reader);
    // A large record came in the two pieces in which it was sent: neither is copied.
    if (reader.remaining + second.length === length) {
      if (reader.remaining === 0) return [{ ...header, payload: plainArray(second) }];
      if (header.channel !== CHANNEL_CALL && header.channel !== CHANNEL_REPLY) {
        return [{ channel: header.channel, payload: reader.raw(reader.remaining), tail: plainArray(second) }];
      }
    }
  }
  const reader = new ByteReader(plainArray(fragments.length === 1 ? first : Buffer.concat(fragments)));
  const records: FrameRecord[] = [];
  while (reader.remaining > 0) {
    const { header, length } = readHeader(reader);
    records.push({ ...header, payload: reader.raw(length) });
  }
  return records;
}
