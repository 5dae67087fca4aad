import type { MiscountedPosition } from '../wire/catalog-api.ts';
import type { PlacedRow, ReplicaGroup } from './placement-tables.ts';
import type { Tables } from './tables.ts';

const BEFORE_ALL: ReplicaGroup = { volume: 0, members: 0, wanted: 0 };

interface MiscountedRows {
  readonly rows: readonly PlacedRow[];
  /** Resume point, null at the end. */
  readonly next: MiscountedPosition | null;
}

/**
 * Files with too few or too many replicas. Costs a step per group of files and what is found, not what is there: a
 * change of a volume's number of replicas makes groups miscounted, and touches no file.
 * @param servers how many servers there are for replicas: a file that has as many has not too few
 */
export function miscountedFiles(
  tables: Tables,
  after: MiscountedPosition | null,
  servers: number,
  countMax: number,
): MiscountedRows {
  const { placements } = tables;
  const rows: PlacedRow[] = [];
  let inode = after?.inode ?? 0;
  let group: ReplicaGroup | undefined = after ?? placements.nextGroup(BEFORE_ALL);
  for (; group !== undefined; group = placements.nextGroup(group)) {
    if (isMiscounted(tables, group, servers)) {
      rows.push(...placements.filesOfGroup(group, inode, countMax - rows.length));
      const last = rows.at(-1);
      if (last !== undefined && rows.length === countMax) return { rows, next: { ...group, inode: last.id } };
    }
    inode = 0;
  }
  return { rows, next: null };
}

function isMiscounted(
  { volumes }: Tables,
  { volume, members, wanted }: ReplicaGroup,
  servers: number,
): boolean {
  const count = wanted === 0 ? volumes.row(volume).replicas : wanted;
  return members > count || members < Math.min(count, servers);
}
