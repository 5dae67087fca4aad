import type { DirectoryQuotaTables } from './directory-quota-tables.ts';
import type { InodeRow } from './inode-rows.ts';
import { KIND_FILE } from './schema.ts';
import type { VolumeTables } from './volume-tables.ts';

type Charged = Pick<InodeRow, 'kind' | 'sizeBytes' | 'allowed'>;

/** The counters of quotas. */
export interface QuotaCounters {
  readonly volumes: VolumeTables;
  readonly quotas: DirectoryQuotaTables;
}

/** @returns the bytes that a linked inode counts against the quota */
export function chargeOf({ kind, sizeBytes, allowed }: Charged): number {
  return kind === KIND_FILE ? Math.max(sizeBytes, allowed ?? 0) : 0;
}

/** Whether an inode counts against the quota: it is linked or in the trash. */
export function isCounted({ orphanedNs, trashed }: Pick<InodeRow, 'orphanedNs' | 'trashed'>): boolean {
  return orphanedNs === null || trashed === 1;
}

/** Adds inodes and bytes to all quota counters if `inode` counts there, and to those of its volume's trash. */
export function charge(counters: QuotaCounters, inode: InodeRow, inodes: number, bytes: number): void {
  if (!isCounted(inode)) return;
  chargeQuotas(counters, inode, inodes, bytes);
  if (inode.trashed) counters.volumes.chargeTrash(inode.volume, inodes, bytes);
}

/** Adds to the counters of a volume, and of the directories with a quota that what is counted is in. */
export function chargeQuotas(
  { volumes, quotas }: QuotaCounters,
  { volume, quota }: Pick<InodeRow, 'volume' | 'quota'>,
  inodes: number,
  bytes: number,
): void {
  volumes.charge(volume, inodes, bytes);
  quotas.charge(quota, inodes, bytes);
}
