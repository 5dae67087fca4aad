/** The catalog's primary refuses before replication, as in `leaving-servers.ts`. */
import { ServiceError } from '../base/errors.ts';
import type { Command, Place } from '../wire/catalog-api.ts';
import { inodesNamed, placesNamed } from './scopes.ts';
import type { Tables } from './tables.ts';
import { type ResolvedName, resolvePlace } from './walk.ts';

/**
 * Refuses changes of a volume while its rows are copied to its own catalog. Not stored as an outcome: the command is
 * repeated, and executed here if the move is aborted, else there. The caller answers repeated commands first: what was
 * executed before has its outcome here alone. @throws ServiceError `moving`
 */
export function refuseMoving(tables: Tables, command: Command): void {
  if (!tables.own.isRoot) return;
  refuseWhileSplit(tables, command);
  const frozen = tables.moves.frozen();
  if (frozen.length === 0) return;
  const volume =
    volumesNamed(tables, command).find((id) => frozen.includes(id)) ??
    (tables.moves.sources().length === 0 ? undefined : volumeAt(tables, command, frozen));
  if (volume === undefined) return;
  const { name } = tables.volumes.row(volume);
  throw new ServiceError('moving', `Volume "${name}" moves to a catalog of its own: its changes wait`);
}

/** @returns whether an inode is of a volume that moves away, of which nothing may be cached; null while none does */
export function leavingInodes({ own, moves, inodes }: Tables): ((inode: number) => boolean) | null {
  if (!own.isRoot) return null;
  const leaving = moves.leaving();
  if (leaving.length === 0) return null;
  return (inode) => leaving.some((volume) => volume === inodes.volumeOf(inode));
}

/** The ids of volumes that the command may change, or whose inodes or reserved numbers it names. */
function volumesNamed({ volumes, inodes, snapshots, numbers }: Tables, command: Command): number[] {
  const { volume } = command as { readonly volume?: string };
  const name = command.kind === 'volume-set' || command.kind === 'volume-remove' ? command.name : undefined;
  const ofPlaces = placesNamed(command).map((place) => ('volume' in place ? place.volume : undefined));
  const names = [volume, name, ...ofPlaces].filter((one) => one !== undefined);
  return [
    ...names.map((one) => volumes.byName(one)?.id),
    ...inodesNamed(command).map(
      (inode) => inodes.volumeOf(inode) ?? snapshots.volumeOfPast(inode) ?? numbers.volumeOf(inode),
    ),
  ].filter((id) => id !== undefined);
}

/** What names its volume, but may change any directory of it, or show all as they were. */
const OF_WHOLE: ReadonlySet<Command['kind']> = new Set(['snapshot-create', 'trash-restore']);

function refuseWhileSplit(tables: Tables, command: Command): void {
  // It changes what has names in the directory.
  if (command.kind === 'inherit-placement' && tables.moves.hasPartIn(command.inode))
    throw new ServiceError('moving', `An entry of directory ${command.inode} becomes a volume: this waits`);
  if (!OF_WHOLE.has(command.kind)) return;
  const { volume: name } = command as { readonly volume: string };
  const volume = tables.volumes.byName(name)?.id;
  if (volume === undefined || !tables.moves.sources().includes(volume)) return;
  throw new ServiceError(
    'moving',
    `A directory of "${name}" becomes a volume: this waits until that has ended`,
  );
}

/** @returns the frozen volume of which a directory or entry is at a place of the command, by another volume's path */
function volumeAt(tables: Tables, command: Command, frozen: readonly number[]): number | undefined {
  for (const place of placesNamed(command)) {
    for (const follow of [false, true]) {
      const spot = resolvedOrNull(tables, place, follow);
      const at = [spot?.directory.volume, spot?.inode?.volume].find(
        (id) => id !== undefined && frozen.includes(id),
      );
      if (at !== undefined) return at;
    }
  }
  return undefined;
}

/** @returns null also for a place at which execution refuses the command */
function resolvedOrNull(tables: Tables, place: Place, follow: boolean): ResolvedName | null {
  try {
    return resolvePlace(tables, place, follow);
  } catch (error) {
    if (error instanceof ServiceError) return null;
    throw error;
  }
}
