import { chargeOf } from '../charges.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { pathTo, type ResolvedName } from '../walk.ts';

/**
 * The trash: a file that loses its last link is kept with its path. It is an orphan with a later collection time,
 * `inodes.orphaned_ns`, so nothing has to sweep the trash, and the volume's setting at that time counts.
 */

const NS_PER_MS = 1_000_000n;

/** What an unlinking command says about the removal. */
export interface Removal {
  readonly by?: string | undefined;
  /** False: not kept, whatever the volume says. */
  readonly trash?: boolean | undefined;
}

/** Whether a file that loses its last link goes to the trash; known empty files do not. */
export function goesToTrash(volume: VolumeRow, inode: InodeRow, removal: Removal): boolean {
  if (volume.trashMs === 0 || removal.trash === false) return false;
  return inode.kind === KIND_FILE && inode.links === 1 && (inode.sizeBytes > 0 || inode.live === 1);
}

/** Puts a file without links into the trash. @returns whether it is kept */
export function moveToTrash(
  tables: Tables,
  inode: InodeRow,
  { directory, name }: Pick<ResolvedName, 'directory' | 'name'>,
  removal: Removal,
  atNs: string,
): boolean {
  const volume = tables.volumes.row(inode.volume);
  if (!goesToTrash(volume, inode, removal)) return false;
  const path = pathTo(tables, directory, name);
  if (path === null) return false;
  tables.inodes.setLinks(inode.id, 0, (BigInt(atNs) + BigInt(volume.trashMs) * NS_PER_MS).toString(), atNs);
  tables.trash.put(volume.id, { inode: inode.id, path, removedNs: atNs, removedBy: removal.by ?? '' });
  // Quota counters stay unchanged.
  tables.volumes.chargeTrash(volume.id, 1, chargeOf(inode));
  return true;
}
