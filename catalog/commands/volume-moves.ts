/** Moves of volumes from the root catalog to catalogs of their own, at the root: model/volumes has the rules. */
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import type { MovePhase } from '../../wire/volume-moves.ts';
import { volumeInfoOf } from '../attributes.ts';
import { forgetRows } from '../moved-rows.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import type { MoveRow } from '../volume-move-tables.ts';
import { RUNS_MAX, recordNumbers } from '../volume-numbers.ts';
import { sharedWith } from './clones.ts';
import { addCatalog, moved, settingsOf } from './volume-catalogs.ts';
import { beginSplit, joinAgain, visitEntries } from './volume-splits.ts';

/** @param chosen the members if the command names none */
export function volumeMove(
  tables: Tables,
  command: CommandOf<'volume-move'>,
  chosen: readonly string[],
): CommandResults['volume-move'] {
  const { name, members = chosen } = command;
  const listed = tables.catalogs.byName(name);
  if (listed?.moving !== undefined) return { catalog: listed };
  if (listed !== undefined)
    throw new ServiceError('exists', `The volume "${name}" has a catalog of its own already`);
  const volume = volumeOf(tables, name);
  if (tables.moves.sources().includes(volume.id))
    throw new ServiceError('busy', `A directory of "${name}" becomes a volume: wait until that has ended`);
  const shared = sharedWith(tables, volume);
  if (shared !== null)
    throw new ServiceError('precondition-failed', `Volume "${name}" cannot move: ${shared}`);
  const settings = settingsOf({ labels: [], zones: [], ...volumeInfoOf(volume) });
  const catalog = addCatalog(tables, { name, members, settings });
  tables.moves.enter({ catalog: catalog.number, volume: volume.id }, 'begun');
  return { catalog: { ...catalog, moving: 'begun' } };
}

/** Until the volume's catalog has reported that it has begun, and the root has executed that, nothing has moved. */
export function volumeMoveAbort(
  tables: Tables,
  { name }: CommandOf<'volume-move-abort'>,
  atNs: string,
): CommandResults['volume-move-abort'] {
  const listed = tables.catalogs.byName(name);
  if (listed === undefined) return {};
  if (listed.moving === undefined)
    throw new ServiceError(
      'precondition-failed',
      `The volume "${name}" has a catalog of its own: it does not move`,
    );
  return { catalog: end(tables, moveOf(tables, listed.number), 'It was ended', atNs) };
}

/** The volume, or what was to become one, stays here; its changes wait no longer than it takes to join again. */
function end(tables: Tables, move: MoveRow, why: string, atNs: string): ListedCatalog {
  const { catalog, volume } = move;
  const listed = tables.catalogs.byNumber(catalog);
  assert(listed !== undefined, 'A volume moves to a catalog that is listed');
  tables.moves.delete(catalog);
  tables.splits.deleteAll(catalog);
  tables.numbers.renewReserved(volume, atNs);
  if (move.part > 0 && move.phase !== 'begun') tables.moves.enter(move, 'joining');
  return moved(tables, { ...listed, refused: { since: listed.since, why } }, 'removed');
}

/** To be given once no client caches anything of the volume, and flushed before rows are copied. */
export function volumeFreeze(
  tables: Tables,
  { number }: CommandOf<'volume-freeze'>,
  atNs: string,
): CommandResults['volume-freeze'] {
  const move = moveOf(tables, number);
  if (move.phase !== 'begun') return {};
  if (move.part === 0) {
    enter(tables, move, 'frozen');
    return {};
  }
  const why = beginSplit(tables, move);
  if (why !== null) end(tables, move, `The directory cannot become a volume: ${why}`, atNs);
  return {};
}

export function volumePart(
  tables: Tables,
  { number, countMax, resumes }: CommandOf<'volume-part'>,
  atNs: string,
): CommandResults['volume-part'] {
  const move = tables.moves.row(number);
  if (move?.phase === 'joining') {
    const next = joinAgain(tables, move, countMax);
    if (next === null) tables.moves.delete(number);
    else tables.moves.put(next);
    return { done: next === null };
  }
  if (move?.phase !== 'splitting') return { done: true };
  const next = visitEntries(tables, move, countMax, resumes === true);
  if (typeof next === 'string') {
    end(tables, move, `The directory cannot become a volume: ${next}`, atNs);
    return { done: false };
  }
  if (next !== null) {
    tables.moves.put(next);
    return { done: false };
  }
  tables.splits.deleteAll(number);
  enter(tables, move, 'frozen');
  return { done: true };
}

export function volumeNumber(
  tables: Tables,
  { number, countMax }: CommandOf<'volume-number'>,
  atNs: string,
): CommandResults['volume-number'] {
  const move = moveOf(tables, number);
  if (move.phase === 'begun' || move.phase === 'splitting')
    throw new ServiceError('precondition-failed', `The volume that moves to catalog ${number} is not frozen`);
  if (move.phase !== 'frozen') return { done: true };
  const next = recordNumbers(tables, move, countMax);
  if (tables.moves.runCount() > RUNS_MAX) {
    // Else the volume's changes would wait for ever.
    end(tables, move, `Its files have numbers between those of others, in more than ${RUNS_MAX} runs`, atNs);
    return { done: true };
  }
  if (next !== null) {
    tables.moves.put(next);
    return { done: false };
  }
  enter(tables, move, 'numbered');
  return { done: true };
}

export function volumeForget(
  tables: Tables,
  { number, countMax }: CommandOf<'volume-forget'>,
): CommandResults['volume-forget'] {
  const move = moveOf(tables, number);
  if (move.phase === 'forgotten') return { more: false };
  if (move.phase !== 'moved')
    throw new ServiceError('precondition-failed', `The volume has not moved to catalog ${number} yet`);
  const next = forgetRows(tables, move, countMax);
  tables.moves.put(next ?? { ...move, phase: 'forgotten' });
  return { more: next !== null };
}

function moveOf(tables: Tables, number: number): MoveRow {
  const move = tables.moves.row(number);
  if (move === undefined) throw new ServiceError('not-found', `No volume moves to catalog ${number}`);
  return move;
}

/** Servers learn of each phase by the list. */
function enter(tables: Tables, move: MoveRow, phase: MovePhase): void {
  tables.moves.enter(move, phase);
  tables.catalogs.nextVersion();
}
