import type { InodeRow } from './inode-rows.ts';
import { KIND_FILE } from './schema.ts';
import type { VolumeTables } from './volume-tables.ts';

type Charged = Pick<InodeRow, 'kind' | 'sizeBytes' | 'allowed'>;

/** @returns the bytes that a linked inode counts against the quota */
export function chargeOf({ kind, sizeBytes, allowed }: Charged): number {
  return kind === KIND_FILE ? Math.max(sizeBytes, allowed ?? 0) : 0;
}

/** Whether an inode counts against the quota: it is linked or in the trash. */
export function isCounted({ orphanedNs, trashed }: Pick<InodeRow, 'orphanedNs' | 'trashed'>): boolean {
  return orphanedNs === null || trashed === 1;
}

/** Adds inodes and bytes to the volume's quota counters if `inode` counts there, and to those of its trash. */
export function charge(volumes: VolumeTables, inode: InodeRow, inodes: number, bytes: number): void {
  if (!isCounted(inode)) return;
  volumes.charge(inode.volume, inodes, bytes);
  if (inode.trashed) volumes.chargeTrash(inode.volume, inodes, bytes);
}
