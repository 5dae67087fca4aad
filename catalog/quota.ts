import { ServiceError } from '../base/errors.ts';
import { charge, chargeOf, isCounted } from './charges.ts';
import type { InodeRow } from './inode-rows.ts';
import type { Tables } from './tables.ts';
import type { VolumeRow } from './volume-tables.ts';

/**
 * What a volume may hold: bytes of its files, by their sizes, and inodes, of those that have a name or are in the trash. What lost its last
 * name otherwise does not count, though it is collected later, nor does an upload before it gets its name.
 *
 * The primary of a file that is written knows its size better than the catalog. So it asks before the file grows, and what it is allowed
 * counts at once; what of that was not used is given back when the size is settled. Files that several primaries write at a time can
 * therefore not exceed the quota together. In a volume without a quota nobody asks.
 */

/** A file that grows is allowed this much more than it asked for, and no more than a part of what is left. */
const AHEAD_BYTES = 1024 * 1024;
const AHEAD_SHARE = 16;

/** What of a volume its quota is held against. */
type Charged = Pick<
  VolumeRow,
  'name' | 'quotaBytes' | 'quotaInodes' | 'namedBytes' | 'namedInodes' | 'trashedBytes' | 'trashedInodes'
>;

/** An inode is about to get a name that none had before. @throws ServiceError `quota-exceeded` */
export function assertInodeAllowed(volume: Charged): void {
  if (volume.quotaInodes === 0 || volume.namedInodes < volume.quotaInodes) return;
  throw new ServiceError(
    'quota-exceeded',
    `Volume "${volume.name}" has ${volume.namedInodes} files and directories, and its quota is ${volume.quotaInodes}` +
      trashHint(volume, `${volume.trashedInodes} of them are`),
  );
}

/**
 * A file is about to get its name, in place of another that loses its last one, or of none.
 *
 * @throws ServiceError `quota-exceeded`, but not where it takes less than what it replaces
 */
export function assertBytesAllowed(volume: Charged, bytes: number, replacedBytes: number): void {
  const after = volume.namedBytes - replacedBytes + bytes;
  if (volume.quotaBytes === 0 || after <= volume.quotaBytes || bytes <= replacedBytes) return;
  throw exceeded(volume, after);
}

/**
 * Allows a file to grow.
 *
 * @param growTo null where its primary has no certain size in mind
 * @returns what it may grow to from now on; null where there is no quota
 * @throws ServiceError `quota-exceeded`
 */
export function allowGrowth(tables: Tables, inode: InodeRow, growTo: number | null): number | null {
  const volume = tables.volumes.row(inode.volume);
  if (volume.quotaBytes === 0) {
    if (inode.allowed !== null) setAllowed(tables, inode, null);
    return null;
  }
  const others = volume.namedBytes - (isCounted(inode) ? chargeOf(inode) : 0);
  const most = volume.quotaBytes - others;
  if (growTo !== null && growTo > inode.sizeBytes && growTo > most) throw exceeded(volume, others + growTo);
  const wanted = Math.max(growTo ?? 0, inode.sizeBytes, inode.allowed ?? 0);
  const ahead = Math.min(AHEAD_BYTES, Math.floor(Math.max(0, most - wanted) / AHEAD_SHARE));
  setAllowed(tables, inode, wanted + ahead);
  return wanted + ahead;
}

/** What a new file may grow to before its primary asks; null where there is no quota. */
export function allowedOfNew(volume: VolumeRow): number | null {
  if (volume.quotaBytes === 0) return null;
  return Math.min(AHEAD_BYTES, Math.floor(Math.max(0, volume.quotaBytes - volume.namedBytes) / AHEAD_SHARE));
}

function setAllowed(tables: Tables, inode: InodeRow, allowed: number | null): void {
  tables.inodes.setAllowed(inode.id, allowed);
  charge(tables.volumes, inode, 0, chargeOf({ ...inode, allowed }) - chargeOf(inode));
}

function exceeded(volume: Charged, bytes: number): ServiceError {
  return new ServiceError(
    'quota-exceeded',
    `Volume "${volume.name}" would have ${bytes} bytes, and its quota is ${volume.quotaBytes}` +
      trashHint(volume, `${volume.trashedBytes} of them are`),
  );
}

function trashHint({ trashedInodes }: Charged, what: string): string {
  return trashedInodes === 0 ? '' : `. ${what} in its trash, which can be emptied`;
}
