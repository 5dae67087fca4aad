import { assert } from '../base/assert.ts';
import type { ListedCatalog } from '../wire/volume-catalogs.ts';
import { EMPTY_DIRECTORY } from './inode-tables.ts';
import type { Tables } from './tables.ts';
import type { MoveRow } from './volume-move-tables.ts';

/** Attributes of the junction: what is seen there are those of the volume's root. */
const JUNCTION = { mode: 0o755, uid: 0, gid: 0 };

/** The volume is served by its catalog from now on: it is attached where the directory was. @returns its row */
export function attachPart(
  tables: Tables,
  listed: ListedCatalog,
  move: MoveRow,
  atNs: string,
): ListedCatalog {
  const { part, above, source } = move;
  const name = tables.entries.nameIn(above, part);
  assert(name !== undefined, 'The directory keeps its name while it is split off');
  const parent = tables.inodes.existing(above);
  const attached = tables.inodes.insert({
    ...EMPTY_DIRECTORY,
    ...{ volume: source, atNs, parent: above },
    ...JUNCTION,
    placement: parent.placement,
    quota: parent.quota,
  });
  tables.entries.setInode(above, name, attached);
  tables.inodes.touchDirectory(above, 0, atNs);
  tables.junctions.insert(attached, { catalog: listed.number, volume: listed.name });
  return { ...listed, attached };
}
