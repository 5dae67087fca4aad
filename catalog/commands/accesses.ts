import { earlierNs, isLater } from '../../base/times.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import type { InodeRow } from '../inode-rows.ts';
import { timeCheck } from '../names.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';

type Access = CommandOf<'note-accesses'>['accesses'][number];

/**
 * Stores access times of reads that clients report asynchronously (docs/design/mount.md, "Access times"). They only
 * increase, up to now: a reader could otherwise report future reads. Changes neither ctime nor clients' caches.
 */
export function noteAccesses(
  tables: Tables,
  command: CommandOf<'note-accesses'>,
  atNs: string,
): CommandResults['note-accesses'] {
  const volume = volumeOf(tables, command.volume);
  let noted = 0;
  for (const access of command.accesses) {
    const accessedNs = earlierNs(timeCheck(access.accessedNs), atNs);
    const inode = tables.inode(access.inode);
    if (inode === undefined || inode.volume !== volume.id) continue;
    if (!isLater(accessedNs, inode.accessedNs) || mayBeSet(inode, access, command.unset === true)) continue;
    tables.inodes.setAccessedByRead(inode.id, accessedNs);
    noted += 1;
  }
  return { noted };
}

/**
 * Whether a client may have set the access time, which also changes ctime. It may set the old value again, as tools
 * do that read without a trace. If a write was the last change, ctime equals mtime.
 */
function mayBeSet(inode: InodeRow, { seen }: Access, isStrict: boolean): boolean {
  if (inode.changedNs === seen.changedNs) return false;
  if (inode.accessedNs !== seen.accessedNs) return true;
  return isStrict && inode.changedNs !== inode.modifiedNs;
}
