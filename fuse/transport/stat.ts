import { constants } from 'node:fs';
import type { Attributes, NodeKind, Space } from '../backend.ts';
import { ErrnoError } from '../errno.ts';

export const FILE_TYPES = {
  file: constants.S_IFREG,
  directory: constants.S_IFDIR,
  symlink: constants.S_IFLNK,
  fifo: constants.S_IFIFO,
  socket: constants.S_IFSOCK,
  character: constants.S_IFCHR,
  block: constants.S_IFBLK,
} as const satisfies Record<NodeKind, number>;

export const RENAME_EXCHANGE = 2;
const SEEK_DATA = 3;
const SEEK_HOLE = 4;
export const NAME_BYTES_MAX = 255;
/** `st_blksize`: what `cp` and `cat` read and write at a time. */
export const PREFERRED_IO_BYTES = 1024 * 1024;
const SECTOR_BYTES = 512;
const BLOCK_BYTES = 4096;
/** Shown for the catalog, which limits no inodes: programs check that some are free. */
const FREE_INODES = 1_000_000_000;

/** @param whence of `lseek`(2); the kernel handles all other values itself */
export function soughtBy(whence: number): 'data' | 'hole' {
  if (whence === SEEK_DATA) return 'data';
  if (whence === SEEK_HOLE) return 'hole';
  throw new ErrnoError('EINVAL', `Cannot seek by ${whence}`);
}

export function sizeShown({ kind, target, sizeBytes }: Attributes): number {
  return kind === 'symlink' ? Buffer.byteLength(target) : sizeBytes;
}

/** Converts to `struct timespec`: before 1970 the seconds are negative, but never the nanoseconds. */
export function timespecOf(decimalNs: string): { readonly seconds: bigint; readonly nanoseconds: number } {
  const ns = BigInt(decimalNs);
  const nanoseconds = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return { seconds: (ns - nanoseconds) / 1_000_000_000n, nanoseconds: Number(nanoseconds) };
}

export function sectorCount({ sizeBytes, holeBytes = 0 }: Attributes): number {
  return Math.ceil((sizeBytes - holeBytes) / SECTOR_BYTES);
}

export interface SpaceNumbers {
  readonly blockBytes: number;
  readonly blocks: number;
  readonly freeBlocks: number;
  readonly inodes: number;
  readonly freeInodes: number;
}

export function spaceNumbers({
  totalBytes,
  freeBytes,
  inodes,
  freeInodes = FREE_INODES,
}: Space): SpaceNumbers {
  return {
    blockBytes: BLOCK_BYTES,
    blocks: Math.floor(totalBytes / BLOCK_BYTES),
    freeBlocks: Math.floor(freeBytes / BLOCK_BYTES),
    inodes: inodes + freeInodes,
    freeInodes,
  };
}
