import { earlierNs, isLater } from '../../base/times.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import type { InodeRow } from '../inode-rows.ts';
import { timeCheck } from '../names.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';

type Access = CommandOf<'note-accesses'>['accesses'][number];

/**
 * Access times as reads make them, told behind the reads (docs/design/mount.md, "Access times"). They only become later, and not later than now: whoever may read could else
 * tell of reads to come. Neither the time of the change of status nor what clients believe is touched.
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
    tables.inodes.noteAccessed(inode.id, accessedNs);
    noted += 1;
  }
  return { noted };
}

/**
 * A client that sets an access time changes the time of the change of status, too. It may set the very time that was there before, as programs do that
 * read without a trace. Where the last change of status was a write, the file has the same time of modification.
 */
function mayBeSet(inode: InodeRow, { seen }: Access, isStrict: boolean): boolean {
  if (inode.changedNs === seen.changedNs) return false;
  if (inode.accessedNs !== seen.accessedNs) return true;
  return isStrict && inode.changedNs !== inode.modifiedNs;
}
