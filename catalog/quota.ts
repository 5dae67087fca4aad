import { ServiceError } from '../base/errors.ts';
import { KIND_FILE } from './schema.ts';
import type { InodeRow, Tables, VolumeRow } from './tables.ts';

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

type Charged = Pick<InodeRow, 'kind' | 'sizeBytes' | 'allowed'>;

/** @returns the bytes that count for an inode with a name */
export function chargeOf({ kind, sizeBytes, allowed }: Charged): number {
  return kind === KIND_FILE ? Math.max(sizeBytes, allowed ?? 0) : 0;
}

/** Whether an inode counts: it has a name, or was thrown away and can have it again. */
export function isCounted({ orphanedNs, trashed }: Pick<InodeRow, 'orphanedNs' | 'trashed'>): boolean {
  return orphanedNs === null || trashed === 1;
}

/** What changes of an inode changes what counts, if the inode does. */
export function charge(tables: Tables, inode: InodeRow, inodes: number, bytes: number): void {
  if (!isCounted(inode)) return;
  tables.volumeCharge(inode.volume, inodes, bytes);
  if (inode.trashed) tables.volumeChargeTrash(inode.volume, inodes, bytes);
}

/** An inode is about to get a name that none had before. @throws ServiceError `quota-exceeded` */
export function assertInodeAllowed(volume: VolumeRow): void {
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
export function assertBytesAllowed(volume: VolumeRow, bytes: number, replacedBytes: number): void {
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
  const volume = tables.volume(inode.volume);
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
  tables.inodeSetAllowed(inode.id, allowed);
  charge(tables, inode, 0, chargeOf({ ...inode, allowed }) - chargeOf(inode));
}

function exceeded(volume: VolumeRow, bytes: number): ServiceError {
  return new ServiceError(
    'quota-exceeded',
    `Volume "${volume.name}" would have ${bytes} bytes, and its quota is ${volume.quotaBytes}` +
      trashHint(volume, `${volume.trashedBytes} of them are`),
  );
}

function trashHint({ trashedInodes }: VolumeRow, what: string): string {
  return trashedInodes === 0 ? '' : `. ${what} in its trash, which can be emptied`;
}
