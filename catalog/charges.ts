import type { InodeRow } from './inode-rows.ts';
import { KIND_FILE } from './schema.ts';
import type { VolumeTables } from './volume-tables.ts';

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
export function charge(volumes: VolumeTables, inode: InodeRow, inodes: number, bytes: number): void {
  if (!isCounted(inode)) return;
  volumes.charge(inode.volume, inodes, bytes);
  if (inode.trashed) volumes.chargeTrash(inode.volume, inodes, bytes);
}
