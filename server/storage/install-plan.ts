import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { sameObject } from './contents.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import type { RowChange } from './object-rows.ts';
import type { FileDifference } from './store.ts';

/** Objects per tick of the event loop: a millisecond or two. Looking up one's row takes as long as ten of them. */
const OBJECTS_PER_TICK = 2_000;
const LOOKUP_COST = 10;

export interface InstallPlan {
  readonly puts: readonly ObjectRow[];
  /** New objects behind all that are here. */
  readonly appended: readonly ObjectRow[];
  readonly deletes: readonly ObjectRow[];
  /** Old rows, deleted or replaced: their slots become free. */
  readonly obsolete: readonly ObjectRow[];
}

export const NO_PLAN: InstallPlan = { puts: [], appended: [], deletes: [], obsolete: [] };

export interface InstallSource {
  readonly world: World;
  readonly file: FileId;
  readonly index: Pick<IndexDatabase, 'lastRow' | 'object'>;
  readonly position: Position;
  readonly staged: ReadonlyMap<number, ObjectRow>;
}

/** @returns the changes of the index that install the base; each of its objects is staged */
export async function planInstall(
  { world, file, index: rows, position, staged }: InstallSource,
  { from, changes }: FileDifference,
): Promise<InstallPlan> {
  assert(
    epochEqual(from.epoch, position.epoch) && from.seq === position.seq,
    'A difference is to the state that is here',
  );
  const last = rows.lastRow(file, Number.MAX_SAFE_INTEGER);
  const puts: ObjectRow[] = [];
  const appended: ObjectRow[] = [];
  const deletes: ObjectRow[] = [];
  const obsolete: ObjectRow[] = [];
  let cost = 0;
  for (const [index, entry] of changes) {
    cost += index > last ? 1 : LOOKUP_COST;
    if (cost >= OBJECTS_PER_TICK) {
      cost = 0;
      await world.nextTick();
    }
    const local = index > last ? null : rows.object(file, index);
    if (local !== null) obsolete.push(local);
    if (entry === null) {
      if (local !== null) deletes.push(local);
      continue;
    }
    const ready = staged.get(index);
    assert(ready !== undefined && sameObject(ready, entry), `Object ${index} of the difference is staged`);
    if (index > last) appended.push(ready);
    else puts.push(ready);
  }
  return { puts, appended, deletes, obsolete };
}

/** @returns each row of the plan before and after the installation */
export function changesOf({ deletes, obsolete }: InstallPlan, puts: readonly ObjectRow[]): RowChange[] {
  const ownRows = new Map(obsolete.map((row) => [row.index, row]));
  return [
    ...deletes.map((row): RowChange => [row, null]),
    ...puts.map((row): RowChange => [ownRows.get(row.index) ?? null, row]),
  ];
}
