import type { Tables } from './tables.ts';
import type { MoveRow } from './volume-move-tables.ts';
import { NUMBERED_TABLES, type OwnedNumbers } from './volume-row-tables.ts';

/** Every server has all runs in its list. */
export const RUNS_MAX = 50_000;

/** No volume has this id: of numbers that have moved before, or are reserved without a volume. */
const NO_VOLUME = 0;

/**
 * Records whose numbers follow, and joins those of the volume to runs. A run also has numbers between them that no
 * inode has any more, and none will have: their replicas are garbage of the volume's catalog then. Numbers that are
 * reserved for files of the volume are its own. A run has no number of another volume, none that is reserved otherwise,
 * and none that has moved before. The numbers of a frozen volume do not change; new ones of other volumes are larger.
 *
 * @param countMax rows of each table that are read
 * @returns null at the end
 */
export function recordNumbers(tables: Tables, move: MoveRow, countMax: number): MoveRow | null {
  const { numbers, end } = nextNumbers(tables, move, countMax);
  const { moves } = tables;
  const last = moves.lastRun(move.catalog);
  let run = move.extends === 1 && last !== undefined ? { ...last } : null;
  for (const one of numbers) {
    if (one.volume !== move.volume) {
      if (run !== null) moves.putRun(move.catalog, run);
      run = null;
    } else if (run === null) run = { first: one.first, last: one.last };
    else run.last = one.last;
  }
  if (run !== null) moves.putRun(move.catalog, run);
  return end === null ? null : { ...move, position: end, extends: run === null ? 0 : 1 };
}

/** The numbers in use behind the position, up to the `countMax`th of a table. @returns null as `end` at the end */
function nextNumbers(
  { rows, numbers, moves }: Tables,
  { catalog, position }: MoveRow,
  countMax: number,
): { readonly numbers: OwnedNumbers[]; readonly end: number | null } {
  const lists = [
    ...NUMBERED_TABLES.map((table) => rows.numbers(table, position, countMax)),
    numbers.reservedFrom(position + 1, countMax),
    moves.runsOfOthers(catalog, position, countMax).map((run) => ({ ...run, volume: NO_VOLUME })),
  ];
  // A list that is full may have more numbers behind its last one.
  const ends = lists.flatMap((list) => (list.length < countMax ? [] : [list.at(-1)?.last ?? position]));
  const end = ends.length === 0 ? null : Math.min(...ends);
  const within = lists.flat().filter(({ first }) => end === null || first <= end);
  return { numbers: within.toSorted((a, b) => a.first - b.first), end };
}
