import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { sameObject } from './contents.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import type { FileDifference } from './store.ts';

/** Rows that are read one by one per tick of the event loop: a millisecond or two. */
const LOOKUPS_PER_TICK = 200;

export interface InstallPlan {
  readonly puts: readonly ObjectRow[];
  readonly deletes: readonly ObjectRow[];
  /** Old rows, deleted or replaced: their slots become free. */
  readonly obsolete: readonly ObjectRow[];
}

export const NO_PLAN: InstallPlan = { puts: [], deletes: [], obsolete: [] };

export interface InstallSource {
  readonly world: World;
  readonly file: FileId;
  readonly index: Pick<IndexDatabase, 'object'>;
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
  const puts: ObjectRow[] = [];
  const deletes: ObjectRow[] = [];
  const obsolete: ObjectRow[] = [];
  let lookups = 0;
  for (const [index, entry] of changes) {
    if (++lookups % LOOKUPS_PER_TICK === 0) await world.nextTick();
    const local = rows.object(file, index);
    if (local !== null) obsolete.push(local);
    if (entry === null) {
      if (local !== null) deletes.push(local);
      continue;
    }
    const ready = staged.get(index);
    assert(ready !== undefined && sameObject(ready, entry), `Object ${index} of the difference is staged`);
    puts.push(ready);
  }
  return { puts, deletes, obsolete };
}
