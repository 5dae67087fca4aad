import { crc32 } from 'node:zlib';
import { Prng } from '../../base/prng.ts';

/** A recognizable record: writer, number, bytes derived from both, checksum. It shows loss and damage. */
export const RECORD_BYTES = 256;

const MAGIC = 0x4c484c44;
const HEADER_BYTES = 12;
const CHECKSUM_AT = RECORD_BYTES - 4;

export function encodeRecord(writer: number, number: number): Buffer {
  const record = Buffer.alloc(RECORD_BYTES);
  record.writeUInt32BE(MAGIC, 0);
  record.writeUInt32BE(writer, 4);
  record.writeUInt32BE(number, 8);
  const prng = new Prng(writer * 0x1_0000_0000 + number);
  for (let at = HEADER_BYTES; at < CHECKSUM_AT; at += 4) record.writeUInt32BE(prng.nextUint32(), at);
  record.writeUInt32BE(crc32(record.subarray(0, CHECKSUM_AT)), CHECKSUM_AT);
  return record;
}

/** @returns the number of the record, or null if the bytes are none of `writer`'s */
export function decodeRecord(writer: number, bytes: Uint8Array): number | null {
  if (bytes.length !== RECORD_BYTES) return null;
  const record = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (record.readUInt32BE(0) !== MAGIC || record.readUInt32BE(4) !== writer) return null;
  const number = record.readUInt32BE(8);
  return encodeRecord(writer, number).equals(record) ? number : null;
}

/** @returns the numbers of the records in `bytes`, in order; null for other bytes */
export function decodeRecords(writer: number, bytes: Uint8Array): (number | null)[] {
  const numbers: (number | null)[] = [];
  for (let at = 0; at < bytes.length; at += RECORD_BYTES) {
    numbers.push(decodeRecord(writer, bytes.subarray(at, at + RECORD_BYTES)));
  }
  return numbers;
}
