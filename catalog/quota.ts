import { ServiceError } from '../base/errors.ts';
import { charge, chargeOf, isCounted } from './charges.ts';
import type { InodeRow } from './inode-rows.ts';
import type { Tables } from './tables.ts';
import type { VolumeRow } from './volume-tables.ts';

/**
 * A volume's quota: bytes of its files by size, and inodes, both of linked and trashed inodes. Other orphans and
 * unfinished uploads do not count.
 *
 * A written file's primary knows its size before the catalog does. So it requests growth first; the allowance counts
 * at once, and settling returns what was not used. Several primaries together thus cannot exceed the quota. Without a
 * quota there are no requests.
 */

/** Extra growth allowed per request, limited to a share of the remaining quota. */
const AHEAD_BYTES = 1024 * 1024;
const AHEAD_SHARE = 16;

type Charged = Pick<
  VolumeRow,
  'name' | 'quotaBytes' | 'quotaInodes' | 'namedBytes' | 'namedInodes' | 'trashedBytes' | 'trashedInodes'
>;

/** Checks before an inode is linked for the first time. @throws ServiceError `quota-exceeded` */
export function assertInodeAllowed(volume: Charged): void {
  if (volume.quotaInodes === 0 || volume.namedInodes < volume.quotaInodes) return;
  throw new ServiceError(
    'quota-exceeded',
    `Volume "${volume.name}" has ${volume.namedInodes} files and directories, and its quota is ${volume.quotaInodes}` +
      trashHint(volume, `${volume.trashedInodes} of them are`),
  );
}

/** Checks the quota before a file is linked, perhaps in place of another. @throws ServiceError `quota-exceeded` */
export function assertBytesAllowed(volume: Charged, bytes: number, replacedBytes: number): void {
  const after = volume.namedBytes - replacedBytes + bytes;
  if (volume.quotaBytes === 0 || after <= volume.quotaBytes || bytes <= replacedBytes) return;
  throw exceeded(volume, after);
}

/**
 * Sets the size to which a file may grow within the quota, beyond `growTo`, so that few growths ask again.
 * @param growTo null if the primary has no certain size
 * @returns the new limit; null without a quota @throws ServiceError `quota-exceeded`
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

/** Initial growth allowance of a new file; null without a quota. */
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
