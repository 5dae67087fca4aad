import { LOCK_END } from '../../base/lock-end.ts';
import type { Attributes, NodeKind, Space } from '../backend.ts';
import type { CacheTimes } from '../kernel-view/kernel-view.ts';
import {
  FILE_TYPES,
  NAME_BYTES_MAX,
  PREFERRED_IO_BYTES,
  sectorCount,
  sizeShown,
  spaceNumbers,
  timespecOf,
} from '../transport/stat.ts';
import type { DirectoryPage, LockRequest } from '../transport.ts';
import {
  EXPIRE_ONLY,
  INIT_FLAG,
  MAJOR,
  MINOR,
  NOTIFY,
  OUT_HEADER_BYTES,
  ROOT_NODE,
  STATX_BASIC,
  STATX_CREATED,
} from './protocol.ts';

/** Encodes replies and notices. Each function writes at `at` and returns the end. */

const ATTRIBUTE_BYTES = 88;
const STATX_HEADER_BYTES = 32;
const STATX_BYTES = STATX_HEADER_BYTES + 256;
const DIRENT_BYTES = 24;
const ENTRY_BYTES = 40 + ATTRIBUTE_BYTES;
export const DIRENT_BYTES_MIN = { plain: DIRENT_BYTES + 8, plus: ENTRY_BYTES + DIRENT_BYTES + 8 } as const;
/** The number of the parent is unknown; the kernel ignores it. */
const INODE_UNKNOWN = 0xffff_ffff;
const PAGE_BYTES = 4096;
const LOCK_TYPES = { shared: 0, exclusive: 1, unlock: 2 } as const;

/** Maps inodes of a volume to the kernel's nodes: the root has a fixed number. */
export class NodeNumbers {
  readonly #root: number;

  constructor(root: number) {
    this.#root = root;
  }

  inode(node: number): number {
    return node === ROOT_NODE ? this.#root : node;
  }

  node(inode: number): number {
    return inode === this.#root ? ROOT_NODE : inode;
  }
}

export function putHeader(reply: Buffer, length: number, error: number, unique: number): void {
  reply.writeUInt32LE(length, 0);
  reply.writeInt32LE(error, 4);
  putNumber(reply, 8, unique);
}

export interface Negotiated {
  readonly readAheadBytes: number;
  readonly flags: number;
  readonly backgroundMax: number;
  readonly writeBytesMax: number;
}

export function putInit(reply: Buffer, at: number, negotiated: Negotiated): number {
  reply.fill(0, at, at + 64);
  reply.writeUInt32LE(MAJOR, at);
  reply.writeUInt32LE(MINOR, at + 4);
  reply.writeUInt32LE(negotiated.readAheadBytes, at + 8);
  reply.writeUInt32LE(negotiated.flags >>> 0, at + 12);
  reply.writeUInt16LE(negotiated.backgroundMax, at + 16);
  // From here on the kernel throttles readers and writers.
  reply.writeUInt16LE(Math.floor((negotiated.backgroundMax * 3) / 4), at + 18);
  reply.writeUInt32LE(negotiated.writeBytesMax, at + 20);
  // Times have a resolution of 1 ns.
  reply.writeUInt32LE(1, at + 24);
  reply.writeUInt16LE(Math.ceil(negotiated.writeBytesMax / PAGE_BYTES), at + 28);
  return at + 64;
}

/** @returns the features that this mount uses, of those that the kernel offers */
export function initFlags(
  offered: number,
  wanted: { readonly names: boolean; readonly acls: boolean; readonly numbers: boolean },
): number {
  let flags =
    INIT_FLAG.asyncRead |
    INIT_FLAG.atomicTruncate |
    INIT_FLAG.bigWrites |
    INIT_FLAG.autoInvalidateData |
    INIT_FLAG.asyncDirectIo |
    INIT_FLAG.parallelDirectoryCalls |
    INIT_FLAG.maxPages |
    INIT_FLAG.cacheSymlinks |
    INIT_FLAG.killPrivilegesV2 |
    INIT_FLAG.setXattrExtended;
  flags |= INIT_FLAG.posixLocks | INIT_FLAG.flockLocks;
  // The kernel looks up `.` and `..` of a file handle whose inode it has dropped.
  if (wanted.numbers) flags |= INIT_FLAG.exportSupport;
  // The umask must not apply if the directory has a default list.
  if (wanted.acls) flags |= INIT_FLAG.posixAcls | INIT_FLAG.dontMask;
  // Attributes are useful only with cached names. The kernel requests them adaptively.
  if (wanted.names) flags |= INIT_FLAG.readDirectoryPlus | INIT_FLAG.readDirectoryPlusAuto;
  return flags & offered;
}

export function putAttributes(reply: Buffer, at: number, attributes: Attributes): number {
  putNumber(reply, at, attributes.inode);
  putNumber(reply, at + 8, sizeShown(attributes));
  putNumber(reply, at + 16, sectorCount(attributes));
  putTime(reply, at + 24, at + 48, attributes.accessedNs);
  putTime(reply, at + 32, at + 52, attributes.modifiedNs);
  putTime(reply, at + 40, at + 56, attributes.changedNs);
  reply.writeUInt32LE(FILE_TYPES[attributes.kind] | attributes.mode, at + 60);
  reply.writeUInt32LE(attributes.links, at + 64);
  reply.writeUInt32LE(attributes.uid, at + 68);
  reply.writeUInt32LE(attributes.gid, at + 72);
  reply.writeUInt32LE(attributes.device, at + 76);
  reply.writeUInt32LE(PREFERRED_IO_BYTES, at + 80);
  reply.writeUInt32LE(0, at + 84);
  return at + ATTRIBUTE_BYTES;
}

export function putAttributesReply(
  reply: Buffer,
  at: number,
  attributes: Attributes,
  validMs: number,
): number {
  putDuration(reply, at, at + 8, validMs);
  reply.writeUInt32LE(0, at + 12);
  return putAttributes(reply, at + 16, attributes);
}

/** Writes attributes with the creation time, if known: `struct fuse_statx_out`. */
export function putStatxReply(reply: Buffer, at: number, attributes: Attributes, validMs: number): number {
  const { createdNs } = attributes;
  reply.fill(0, at, at + STATX_BYTES);
  putDuration(reply, at, at + 8, validMs);
  const stat = at + STATX_HEADER_BYTES;
  reply.writeUInt32LE(createdNs === undefined ? STATX_BASIC : STATX_BASIC | STATX_CREATED, stat);
  reply.writeUInt32LE(PREFERRED_IO_BYTES, stat + 4);
  reply.writeUInt32LE(attributes.links, stat + 16);
  reply.writeUInt32LE(attributes.uid, stat + 20);
  reply.writeUInt32LE(attributes.gid, stat + 24);
  reply.writeUInt16LE(FILE_TYPES[attributes.kind] | attributes.mode, stat + 28);
  putNumber(reply, stat + 32, attributes.inode);
  putNumber(reply, stat + 40, sizeShown(attributes));
  putNumber(reply, stat + 48, sectorCount(attributes));
  putTime(reply, stat + 64, stat + 72, attributes.accessedNs);
  if (createdNs !== undefined) putTime(reply, stat + 80, stat + 88, createdNs);
  putTime(reply, stat + 96, stat + 104, attributes.changedNs);
  putTime(reply, stat + 112, stat + 120, attributes.modifiedNs);
  const [major, minor] = deviceParts(attributes.device);
  reply.writeUInt32LE(major, stat + 128);
  reply.writeUInt32LE(minor, stat + 132);
  return at + STATX_BYTES;
}

/** Inverse of `new_encode_dev`. */
function deviceParts(device: number): readonly [major: number, minor: number] {
  return [(device >>> 8) & 0xfff, (device & 0xff) | ((device >>> 12) & 0xfff00)];
}

export function putEntry(
  reply: Buffer,
  at: number,
  node: number,
  attributes: Attributes,
  { nameMs, attributesMs }: CacheTimes,
): number {
  putNumber(reply, at, node);
  // Inode numbers are never reused, so there is one generation of each.
  putNumber(reply, at + 8, 0);
  putDuration(reply, at + 16, at + 32, nameMs);
  putDuration(reply, at + 24, at + 36, attributesMs);
  return putAttributes(reply, at + 40, attributes);
}

function putDuration(reply: Buffer, secondsAt: number, nanosecondsAt: number, ms: number): void {
  putNumber(reply, secondsAt, Math.floor(ms / 1000));
  reply.writeUInt32LE((ms % 1000) * 1_000_000, nanosecondsAt);
}

export function putOpened(reply: Buffer, at: number, handle: number, flags: number): number {
  putNumber(reply, at, handle);
  reply.writeUInt32LE(flags, at + 8);
  reply.writeUInt32LE(0, at + 12);
  return at + 16;
}

export function putCount(reply: Buffer, at: number, count: number): number {
  putNumber(reply, at, count);
  return at + 8;
}

type PageEntry = DirectoryPage['entries'][number];

/** Writes as many entries as fit. @param putLookedUp writes an entry's look-up reply; absent if not requested */
export function putEntries(
  reply: Buffer,
  at: number,
  entries: readonly PageEntry[],
  bytesMax: number,
  putLookedUp?: (at: number, entry: PageEntry) => void,
): number {
  const end = at + bytesMax;
  const before = putLookedUp === undefined ? 0 : ENTRY_BYTES;
  let next = at;
  for (const entry of entries) {
    if (next + before + direntBytes(entry.name) > end) break;
    putLookedUp?.(next, entry);
    next = putDirent(reply, next + before, entry);
  }
  return next;
}

/** An entry without attributes, which the kernel looks up on use. */
export function putNoEntry(reply: Buffer, at: number): void {
  reply.fill(0, at, at + ENTRY_BYTES);
}

function direntBytes(name: string): number {
  return align(DIRENT_BYTES + Buffer.byteLength(name));
}

function putDirent(reply: Buffer, at: number, entry: PageEntry): number {
  const length = reply.write(entry.name, at + DIRENT_BYTES, 'utf8');
  putNumber(reply, at, entry.inode ?? INODE_UNKNOWN);
  putNumber(reply, at + 8, entry.position + 1);
  reply.writeUInt32LE(length, at + 16);
  reply.writeUInt32LE(direntType(entry.kind), at + 20);
  const end = at + DIRENT_BYTES + length;
  const next = at + align(DIRENT_BYTES + length);
  reply.fill(0, end, next);
  return next;
}

/** `DT_REG` and its like are the bits of the file type, shifted. */
function direntType(kind: NodeKind): number {
  return FILE_TYPES[kind] >> 12;
}

export function putSpace(reply: Buffer, at: number, space: Space): number {
  const { blockBytes, blocks, freeBlocks, inodes, freeInodes } = spaceNumbers(space);
  reply.fill(0, at, at + 80);
  putNumber(reply, at, blocks);
  putNumber(reply, at + 8, freeBlocks);
  putNumber(reply, at + 16, freeBlocks);
  putNumber(reply, at + 24, inodes);
  putNumber(reply, at + 32, freeInodes);
  reply.writeUInt32LE(blockBytes, at + 40);
  reply.writeUInt32LE(NAME_BYTES_MAX, at + 44);
  reply.writeUInt32LE(blockBytes, at + 48);
  return at + 80;
}

export function putIoctl(reply: Buffer, at: number, bytes: Buffer): number {
  reply.fill(0, at, at + 16);
  reply.set(bytes, at + 16);
  return at + 16 + bytes.length;
}

export function putLockHolder(reply: Buffer, at: number, lock: LockRequest | null): number {
  reply.writeBigUInt64LE(lock?.start ?? 0n, at);
  reply.writeBigUInt64LE(lock?.end ?? LOCK_END, at + 8);
  reply.writeUInt32LE(LOCK_TYPES[lock?.type ?? 'unlock'], at + 16);
  reply.writeUInt32LE(lock?.pid ?? 0, at + 20);
  return at + 24;
}

/** Has the kernel drop an inode's cache. @param pages false: attributes only, which waits for no page in use */
export function invalidateInodeNotice(node: number, pages = true): Buffer {
  const notice = Buffer.alloc(OUT_HEADER_BYTES + 24);
  putHeader(notice, notice.length, NOTIFY.invalidateInode, 0);
  putNumber(notice, OUT_HEADER_BYTES, node);
  // From offset 0 with length 0 is all of it, from a negative one nothing.
  if (!pages) notice.writeBigInt64LE(-1n, OUT_HEADER_BYTES + 8);
  return notice;
}

export function expireEntryNotice(node: number, name: string): Buffer {
  const nameBytes = Buffer.byteLength(name);
  const notice = Buffer.alloc(OUT_HEADER_BYTES + 16 + nameBytes + 1);
  putHeader(notice, notice.length, NOTIFY.invalidateEntry, 0);
  putNumber(notice, OUT_HEADER_BYTES, node);
  notice.writeUInt32LE(nameBytes, OUT_HEADER_BYTES + 8);
  notice.writeUInt32LE(EXPIRE_ONLY, OUT_HEADER_BYTES + 12);
  notice.write(name, OUT_HEADER_BYTES + 16, 'utf8');
  return notice;
}

/** Has the kernel store pages, whose `byteCount` bytes follow the notice. */
export function storeNotice(node: number, offset: number, byteCount: number): Buffer {
  const notice = Buffer.alloc(OUT_HEADER_BYTES + 24);
  putHeader(notice, notice.length + byteCount, NOTIFY.store, 0);
  putNumber(notice, OUT_HEADER_BYTES, node);
  putNumber(notice, OUT_HEADER_BYTES + 8, offset);
  notice.writeUInt32LE(byteCount, OUT_HEADER_BYTES + 16);
  return notice;
}

function putTime(reply: Buffer, secondsAt: number, nanosecondsAt: number, decimalNs: string): void {
  if (decimalNs.length > 9 && !decimalNs.startsWith('-')) {
    putNumber(reply, secondsAt, Number(decimalNs.slice(0, -9)));
    reply.writeUInt32LE(Number(decimalNs.slice(-9)), nanosecondsAt);
    return;
  }
  const { seconds, nanoseconds } = timespecOf(decimalNs);
  reply.writeBigInt64LE(seconds, secondsAt);
  reply.writeUInt32LE(nanoseconds, nanosecondsAt);
}

function putNumber(reply: Buffer, at: number, value: number): void {
  reply.writeUInt32LE(value % 0x1_0000_0000, at);
  reply.writeUInt32LE(Math.floor(value / 0x1_0000_0000), at + 4);
}

function align(bytes: number): number {
  return Math.ceil(bytes / 8) * 8;
}
