import type { PlacedPosition } from '../wire/catalog-api.ts';
import type { PlacedRow, PlacedSet, PlacementTables } from './placement-tables.ts';

const BEFORE_ALL: PlacedSet = { volume: 0, placement: 0, members: 0, wanted: 0, replicas: '' };

export interface PlacedPage {
  readonly rows: readonly PlacedRow[];
  /** Resume point, null at the end. */
  readonly next: PlacedPosition | null;
}

export interface SetRules {
  isWrong(set: PlacedSet): boolean;
  /** The set to examine after this one. */
  next(set: PlacedSet, isWrong: boolean): PlacedSet | undefined;
}

/** Sets that one page examines, in some milliseconds. */
const EXAMINED_MAX = 500;

/** A page of the files of those sets that are wrong. */
export function filesOfSets(
  placements: PlacementTables,
  { after, countMax }: { readonly after: PlacedPosition | null; readonly countMax: number },
  { isWrong, next }: SetRules,
): PlacedPage {
  const rows: PlacedRow[] = [];
  let inode = after?.inode ?? 0;
  let set = after === null ? next(BEFORE_ALL, true) : { placement: 0, replicas: '', ...after };
  for (let examined = 0; set !== undefined; examined++) {
    if (examined === EXAMINED_MAX) return { rows, next: { ...set, inode } };
    const wrong = isWrong(set);
    if (wrong) {
      rows.push(...placements.filesOfSet(set, inode, countMax - rows.length));
      const last = rows.at(-1);
      if (last !== undefined && rows.length === countMax) return { rows, next: { ...set, inode: last.id } };
    }
    inode = 0;
    set = next(set, wrong);
  }
  return { rows, next: null };
}
