import type Fuse from 'fuse-native';
import type { Attributes, Space } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import {
  FILE_TYPES,
  NAME_BYTES_MAX,
  PREFERRED_IO_BYTES,
  sectorCount,
  sizeShown,
  spaceNumbers,
  timespecOf,
} from '../transport/stat.ts';
import type { TimeChange } from '../transport.ts';

const UTIME_NOW = 0x3fff_ffff;
const UTIME_OMIT = 0x3fff_fffe;

/**
 * The library replaces bytes that are not UTF-8 by U+FFFD, so that different names become equal. A genuine U+FFFD looks
 * the same, so it is refused too. @throws ErrnoError EILSEQ
 */
export function assertWasUtf8(text: string): void {
  if (text.includes('\uFFFD')) throw new ErrnoError('EILSEQ', 'A name is not UTF-8');
}

export function toStats(attributes: Attributes): Fuse.Stats {
  return {
    mode: FILE_TYPES[attributes.kind] | attributes.mode,
    uid: attributes.uid,
    gid: attributes.gid,
    size: sizeShown(attributes),
    nlink: attributes.links,
    ino: attributes.inode,
    rdev: attributes.device,
    blksize: PREFERRED_IO_BYTES,
    blocks: sectorCount(attributes),
    atime: timespecOf(attributes.accessedNs),
    mtime: timespecOf(attributes.modifiedNs),
    ctime: timespecOf(attributes.changedNs),
  };
}

export function timeChange<Key extends 'accessed' | 'modified'>(
  key: Key,
  time: Fuse.Timespec,
): { [K in Key]?: TimeChange } {
  if (time.nanoseconds === UTIME_OMIT) return {};
  const change: TimeChange =
    time.nanoseconds === UTIME_NOW
      ? { kind: 'now' }
      : { kind: 'time', ns: BigInt(time.seconds) * 1_000_000_000n + BigInt(time.nanoseconds) };
  return { [key]: change } as { [K in Key]?: TimeChange };
}

export function toStatfs(space: Space): Fuse.Statfs {
  const { blockBytes, blocks, freeBlocks, inodes, freeInodes } = spaceNumbers(space);
  return {
    bsize: blockBytes,
    frsize: blockBytes,
    blocks,
    bfree: freeBlocks,
    bavail: freeBlocks,
    files: inodes,
    ffree: freeInodes,
    favail: freeInodes,
    namemax: NAME_BYTES_MAX,
  };
}

export function toFilePosition(value: number | bigint, beyond: 'EFBIG' | 'ENXIO' = 'EFBIG'): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number) || number < 0)
    throw new ErrnoError(beyond, `${value} is not a file position`);
  return number;
}
