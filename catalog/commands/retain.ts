import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import { withRetention } from '../flags.ts';
import { prolonged } from '../retention.ts';
import { KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf } from '../tree.ts';
import { stillLive } from './set-attributes.ts';

/** Retains a file. Refuses a live one, as only its primary knows whether it changes: it is settled first. */
export function retain(
  tables: Tables,
  { inode: id, retain: wanted }: CommandOf<'retain'>,
  atNs: string,
): CommandResults['retain'] {
  const inode = inodeOf(tables, id);
  if (inode.kind !== KIND_FILE)
    throw new ServiceError('bad-request', `Inode ${id} is no file: files and snapshots are retained`);
  if (inode.orphanedNs !== null)
    throw new ServiceError('bad-request', `File ${id} has no name: files with a name are retained`);
  const untilNs = prolonged(tables, `File ${id}`, inode.retainNs, wanted);
  if (untilNs === inode.retainNs) return { attributes: attributesOf(inode) };
  if (inode.live === 1) throw stillLive(id);
  tables.retentions.put(id, untilNs);
  tables.inodes.setFlags(id, withRetention(inode.flags), atNs);
  tables.volumes.noteRetained(inode.volume, untilNs);
  return { attributes: attributesOf(tables.inodes.existing(id)) };
}
