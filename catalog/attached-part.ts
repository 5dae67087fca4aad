import { assert } from '../base/assert.ts';
import type { ListedCatalog } from '../wire/volume-catalogs.ts';
import { KIND_DIRECTORY } from './schema.ts';
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
    ...{
      volume: source,
      kind: KIND_DIRECTORY,
      links: 2,
      sizeBytes: 0,
      atNs,
      target: '',
      device: 0,
      replicas: '',
    },
    ...{ view: 0, objectBytes: 0, live: 0, parent: above, orphanedNs: null, policy: 0, allowed: null },
    ...JUNCTION,
    placement: parent.placement,
  });
  tables.entries.setInode(above, name, attached);
  tables.inodes.touchDirectory(above, 0, atNs);
  tables.junctions.insert(attached, { catalog: listed.number, volume: listed.name });
  return { ...listed, attached };
}
