import { ServiceError } from '../base/errors.ts';
import type { DirectoryQuota, VolumeInfo } from '../wire/catalog-api.ts';
import { charge, chargeOf, isCounted } from './charges.ts';
import type { DirectoryQuotaRow, Quota } from './directory-quota-tables.ts';
import type { InodeRow } from './inode-rows.ts';
import type { Tables } from './tables.ts';
import type { VolumeRow } from './volume-tables.ts';
import { directoryPath } from './walk.ts';

/**
 * Quotas of a volume and of directories: bytes of files by size, and inodes, both of linked and trashed inodes. Other
 * orphans and unfinished uploads do not count.
 *
 * A written file's primary knows its size before the catalog does. So it requests growth first; the allowance counts
 * at once, and settling returns what was not used. Several primaries together thus cannot exceed the quotas. Without a
 * quota there are no requests.
 */

/** Extra growth allowed per request, limited to a share of the remaining quota. */
const AHEAD_BYTES = 1024 * 1024;
const AHEAD_SHARE = 16;

/** A quota, and what messages say about it. */
export interface NamedQuota extends Quota {
  /** What it is of, as the subject of a sentence. */
  describe(): string;
  /** How the trash counts; empty if it has nothing. */
  readonly inodesHint: string;
  readonly bytesHint: string;
}

export function quotaOfVolume(
  volume: Quota & Pick<VolumeRow, 'name' | 'trashedBytes' | 'trashedInodes'>,
): NamedQuota {
  const { name, quotaBytes, quotaInodes, namedBytes, namedInodes, trashedBytes, trashedInodes } = volume;
  const hint = (count: number) =>
    trashedInodes === 0 ? '' : `. ${count} of them are in its trash, which can be emptied`;
  return {
    ...{ quotaBytes, quotaInodes, namedBytes, namedInodes },
    describe: () => `Volume "${name}"`,
    inodesHint: hint(trashedInodes),
    bytesHint: hint(trashedBytes),
  };
}

/** @param path `VOLUME:/directory` @param hasTrash whether the volume's trash has files, perhaps of the directory */
export function quotaOfDirectory(quota: Quota, path: () => string, hasTrash: boolean): NamedQuota {
  const { quotaBytes, quotaInodes, namedBytes, namedInodes } = quota;
  const hint = hasTrash ? '. Files that were removed from it count as long as the trash has them' : '';
  return {
    ...{ quotaBytes, quotaInodes, namedBytes, namedInodes },
    describe: () => `Directory "${path()}"`,
    inodesHint: hint,
    bytesHint: hint,
  };
}

/** Quotas as queries return them. */
export function shownQuotas(volume: VolumeInfo, directories: readonly DirectoryQuota[]): NamedQuota[] {
  const ofDirectories = directories.map((one) =>
    quotaOfDirectory(one, () => `${one.volume}:${one.path ?? ''}`, volume.trashedInodes > 0),
  );
  return [quotaOfVolume(volume), ...ofDirectories];
}

/** The quotas that an inode counts against: of its volume, and of directories. @param quota of the inode */
export function quotasOf(tables: Tables, volume: VolumeRow, quota: number): NamedQuota[] {
  return [quotaOfVolume(volume), ...directoryQuotas(tables, volume, tables.quotas.chain(quota))];
}

export function directoryQuotas(
  tables: Tables,
  { name, trashedInodes }: VolumeRow,
  rows: readonly DirectoryQuotaRow[],
): NamedQuota[] {
  return rows.map((row) =>
    quotaOfDirectory(row, () => `${name}:${directoryPath(tables, row.directory) ?? ''}`, trashedInodes > 0),
  );
}

/**
 * Checks before inodes count against the quotas.
 * @param freedInodes how many no longer count then @throws ServiceError `quota-exceeded`
 */
export function assertInodesAllowed(quotas: readonly NamedQuota[], inodes = 1, freedInodes = 0): void {
  if (inodes <= freedInodes) return;
  for (const quota of quotas) {
    const { quotaInodes, namedInodes } = quota;
    if (quotaInodes === 0 || namedInodes - freedInodes + inodes <= quotaInodes) continue;
    const more = inodes === 1 ? '' : ` and would get ${inodes} more`;
    throw new ServiceError(
      'quota-exceeded',
      `${quota.describe()} has ${namedInodes} files and directories${more}, and its quota is ${quotaInodes}` +
        quota.inodesHint,
    );
  }
}

/** Checks the quotas before a file is linked, perhaps in place of another. @throws ServiceError `quota-exceeded` */
export function assertBytesAllowed(
  quotas: readonly NamedQuota[],
  bytes: number,
  replacedBytes: number,
): void {
  if (bytes <= replacedBytes) return;
  for (const quota of quotas) {
    const after = quota.namedBytes - replacedBytes + bytes;
    if (quota.quotaBytes > 0 && after > quota.quotaBytes) throw exceeded(quota, after);
  }
}

/**
 * Sets the size to which a file may grow within the quotas, beyond `growTo`, so that few growths ask again.
 * @param growTo null if the primary has no certain size
 * @returns the new limit; null without a quota @throws ServiceError `quota-exceeded`
 */
export function allowGrowth(tables: Tables, inode: InodeRow, growTo: number | null): number | null {
  const quotas = quotasOf(tables, tables.volumes.row(inode.volume), inode.quota).filter(isOfBytes);
  if (quotas.length === 0) {
    if (inode.allowed !== null) setAllowed(tables, inode, null);
    return null;
  }
  const own = isCounted(inode) ? chargeOf(inode) : 0;
  for (const quota of quotas) {
    const others = quota.namedBytes - own;
    if (growTo !== null && growTo > inode.sizeBytes && others + growTo > quota.quotaBytes)
      throw exceeded(quota, others + growTo);
  }
  const most = leftBytes(quotas) + own;
  const wanted = Math.max(growTo ?? 0, inode.sizeBytes, inode.allowed ?? 0);
  const ahead = Math.min(AHEAD_BYTES, Math.floor(Math.max(0, most - wanted) / AHEAD_SHARE));
  setAllowed(tables, inode, wanted + ahead);
  return wanted + ahead;
}

/** Initial growth allowance of a new file; null without a quota. */
export function allowedOfNew(quotas: readonly NamedQuota[]): number | null {
  const ofBytes = quotas.filter(isOfBytes);
  if (ofBytes.length === 0) return null;
  return Math.min(AHEAD_BYTES, Math.floor(Math.max(0, leftBytes(ofBytes)) / AHEAD_SHARE));
}

/** Whether a quota limits bytes. */
export function isOfBytes({ quotaBytes }: Pick<Quota, 'quotaBytes'>): boolean {
  return quotaBytes > 0;
}

/** The least that any of the quotas has left; negative if one is exceeded. */
function leftBytes(quotas: readonly Quota[]): number {
  return Math.min(...quotas.map(({ quotaBytes, namedBytes }) => quotaBytes - namedBytes));
}

function setAllowed(tables: Tables, inode: InodeRow, allowed: number | null): void {
  tables.inodes.setAllowed(inode.id, allowed);
  charge(tables, inode, 0, chargeOf({ ...inode, allowed }) - chargeOf(inode));
}

function exceeded(quota: NamedQuota, bytes: number): ServiceError {
  return new ServiceError(
    'quota-exceeded',
    `${quota.describe()} would have ${bytes} bytes, and its quota is ${quota.quotaBytes}${quota.bytesHint}`,
  );
}
