import { chargeOf } from '../charges.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { pathTo, type Spot } from '../walk.ts';

/**
 * In a volume with a trash a file that loses its last name is kept, with the path that this name had. It is a file without a name like others,
 * whose time to collection is later: `inodes.orphaned_ns` says until when it is kept. So nobody has to sweep the trash, and what is thrown away
 * is kept for as long as the volume said then.
 */

const NS_PER_MS = 1_000_000n;

/** What a command that takes a name away says of it. */
export interface Removal {
  readonly by?: string | undefined;
  /** False: the file is not to be kept, whatever its volume says. */
  readonly trash?: boolean | undefined;
}

/** Whether a file that loses its last name goes to the trash. One that is known to be empty is not worth a place there. */
export function isKept(volume: VolumeRow, inode: InodeRow, removal: Removal): boolean {
  if (volume.trashMs === 0 || removal.trash === false) return false;
  return inode.kind === KIND_FILE && inode.links === 1 && (inode.sizeBytes > 0 || inode.live === 1);
}

/**
 * A file has just lost its last name.
 *
 * @returns whether it is kept
 */
export function throwAway(
  tables: Tables,
  inode: InodeRow,
  { directory, name }: Pick<Spot, 'directory' | 'name'>,
  removal: Removal,
  atNs: string,
): boolean {
  const volume = tables.volumes.row(inode.volume);
  if (!isKept(volume, inode, removal)) return false;
  const path = pathTo(tables, directory, name);
  if (path === null) return false;
  tables.inodes.setLinks(inode.id, 0, (BigInt(atNs) + BigInt(volume.trashMs) * NS_PER_MS).toString(), atNs);
  tables.trash.put(volume.id, { inode: inode.id, path, removedNs: atNs, removedBy: removal.by ?? '' });
  // What counts stays as it is.
  tables.volumes.chargeTrash(volume.id, 1, chargeOf(inode));
  return true;
}
