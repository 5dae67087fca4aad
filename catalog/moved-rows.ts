import { EXPORTED_TABLES } from '../wire/volume-moves.ts';
import { EXPORTED, isShaped, type ShapedTable } from './exported-tables.ts';
import type { Tables } from './tables.ts';
import type { MoveRow, NumberRun } from './volume-move-tables.ts';

/** Runs of numbers that one command visits. */
const RUNS_MAX = 1_000;

/**
 * Tables whose rows depend on inodes, which are deleted last: with them their placements and counts. Their trash is
 * counted with them.
 */
const BY_NUMBER = EXPORTED_TABLES.filter(
  (table): table is ShapedTable =>
    isShaped(table) && table !== 'inodes' && table !== 'trash' && EXPORTED[table].by === 'number',
);

/** Deletes at most `countMax` rows of a volume that has moved. @returns how far it came; null if none are left */
export function forgetRows(tables: Tables, move: MoveRow, countMax: number): MoveRow | null {
  let { position } = move;
  let left = countMax;
  for (let runs = 0; runs < RUNS_MAX; runs++) {
    const run = tables.moves.runFrom(move.catalog, position + 1);
    if (run === undefined) {
      forgetVolume(tables, move);
      return null;
    }
    left -= forgetRun(tables, move.volume, run, left);
    if (left <= 0) break;
    position = run.last;
  }
  return { ...move, position };
}

/** @returns how many rows were deleted; as many as allowed if there may be more */
function forgetRun({ rows, inodes }: Tables, volume: number, run: NumberRun, countMax: number): number {
  let left = countMax;
  for (const table of BY_NUMBER) {
    if (left === 0) return countMax;
    left -= rows.delete(table, volume, run, left);
  }
  for (const id of left === 0 ? [] : inodes.within(run, left)) {
    inodes.forget(inodes.existing(id));
    left -= 1;
  }
  return countMax - left;
}

function forgetVolume({ quotas, sweeps, snapshots, volumes }: Tables, { volume }: MoveRow): void {
  quotas.forgetVolume(volume);
  sweeps.forgetVolume(volume);
  snapshots.forgetVolume(volume);
  volumes.delete(volume);
}
