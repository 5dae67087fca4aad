import { IN_HEADER_BYTES } from '../../../fuse/kernel/protocol.ts';

/** The kernel's side of the protocol of <linux/fuse.h>: requests into bytes, replies out of bytes. */

export interface Inode64 {
  readonly inode: number;
  readonly sizeBytes: number;
  readonly sectors: number;
  readonly accessedNs: bigint;
  readonly modifiedNs: bigint;
  readonly changedNs: bigint;
  /** Includes the file type. */
  readonly mode: number;
  readonly links: number;
  readonly uid: number;
  readonly gid: number;
  readonly device: number;
}

export interface Entry {
  /** 0: the name does not exist, which is valid for `nameMs`. */
  readonly node: number;
  readonly nameMs: number;
  readonly attributesMs: number;
  readonly attributes: Inode64;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly inode: number;
  /** `DT_DIR` and the like. */
  readonly type: number;
  /** The position of the next entry. */
  readonly next: number;
  /** Of READDIRPLUS, if the file system returned one. */
  readonly entry?: Entry;
}

export function words(...numbers: readonly number[]): Buffer {
  const bytes = Buffer.alloc(numbers.length * 4);
  for (const [index, number] of numbers.entries()) bytes.writeUInt32LE(number >>> 0, index * 4);
  return bytes;
}

export function longs(...numbers: readonly (number | bigint)[]): Buffer {
  const bytes = Buffer.alloc(numbers.length * 8);
  for (const [index, number] of numbers.entries())
    bytes.writeBigUInt64LE(BigInt.asUintN(64, BigInt(number)), index * 8);
  return bytes;
}

/** A name with its final zero; U+DC80 to U+DCFF stand for bytes that are no characters, as in Python. */
export function name(text: string): Buffer {
  return Buffer.concat([nameBytes(text), Buffer.alloc(1)]);
}

export function nameBytes(text: string): Buffer {
  if (!/[\udc80-\udcff]/.test(text)) return Buffer.from(text);
  return Buffer.concat(
    Array.from(text, (character) => {
      const code = character.charCodeAt(0);
      return code >= 0xdc80 && code <= 0xdcff && character.length === 1
        ? Buffer.of(code - 0xdc00)
        : Buffer.from(character);
    }),
  );
}

export function requestBytes(
  opcode: number,
  unique: number,
  node: number,
  { uid, gid, pid }: { readonly uid: number; readonly gid: number; readonly pid: number },
  body: readonly Uint8Array[],
): Buffer {
  const length = body.reduce((sum, part) => sum + part.length, IN_HEADER_BYTES);
  const header = Buffer.concat([words(length, opcode), longs(unique, node), words(uid, gid, pid, 0)]);
  return Buffer.concat([header, ...body]);
}

export function readAttributes(bytes: Buffer, at: number): Inode64 {
  const timeNs = (seconds: number, nanoseconds: number): bigint =>
    bytes.readBigInt64LE(at + seconds) * 1_000_000_000n + BigInt(bytes.readUInt32LE(at + nanoseconds));
  return {
    inode: readLong(bytes, at),
    sizeBytes: readLong(bytes, at + 8),
    sectors: readLong(bytes, at + 16),
    accessedNs: timeNs(24, 48),
    modifiedNs: timeNs(32, 52),
    changedNs: timeNs(40, 56),
    mode: bytes.readUInt32LE(at + 60),
    links: bytes.readUInt32LE(at + 64),
    uid: bytes.readUInt32LE(at + 68),
    gid: bytes.readUInt32LE(at + 72),
    device: bytes.readUInt32LE(at + 76),
  };
}

export const ENTRY_BYTES = 128;

export function readEntry(bytes: Buffer, at = 0): Entry {
  return {
    node: readLong(bytes, at),
    nameMs: readLong(bytes, at + 16) * 1000 + bytes.readUInt32LE(at + 32) / 1e6,
    attributesMs: readLong(bytes, at + 24) * 1000 + bytes.readUInt32LE(at + 36) / 1e6,
    attributes: readAttributes(bytes, at + 40),
  };
}

/** The reply to GETATTR and SETATTR. */
export function readAttributesReply(bytes: Buffer): Pick<Entry, 'attributes' | 'attributesMs'> {
  const attributesMs = readLong(bytes, 0) * 1000 + bytes.readUInt32LE(8) / 1e6;
  return { attributesMs, attributes: readAttributes(bytes, 16) };
}

export function readOpened(bytes: Buffer, at = 0): { readonly handle: number; readonly flags: number } {
  return { handle: readLong(bytes, at), flags: bytes.readUInt32LE(at + 8) };
}

export function readLong(bytes: Buffer, at = 0): number {
  return Number(bytes.readBigUInt64LE(at));
}

/** @param plus each entry has its attributes */
export function readDirectoryEntries(bytes: Buffer, plus: boolean): DirectoryEntry[] {
  const entries: DirectoryEntry[] = [];
  const head = plus ? ENTRY_BYTES : 0;
  for (let at = 0; at + head + 24 <= bytes.length; ) {
    const from = at + head;
    const length = bytes.readUInt32LE(from + 16);
    const entry = plus ? readEntry(bytes, at) : undefined;
    entries.push({
      name: bytes.toString('utf8', from + 24, from + 24 + length),
      inode: readLong(bytes, from),
      type: bytes.readUInt32LE(from + 20),
      next: readLong(bytes, from + 8),
      // Node 0: the file system returned only the name of this entry.
      ...(entry === undefined || entry.node === 0 ? {} : { entry }),
    });
    at = from + Math.ceil((24 + length) / 8) * 8;
  }
  return entries;
}
