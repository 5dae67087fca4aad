/** The catalog's primary refuses before replication, as in `leaving-servers.ts`. */
import { ServiceError } from '../base/errors.ts';
import type { Command } from '../wire/catalog-api.ts';
import { inodesNamed, placesNamed } from './scopes.ts';
import type { Tables } from './tables.ts';

/**
 * Refuses changes of a volume while its rows are copied to its own catalog. Not stored as an outcome: the command is
 * repeated, and executed here if the move is aborted, else there. The caller answers repeated commands first: what was
 * executed before has its outcome here alone. @throws ServiceError `moving`
 */
export function refuseMoving(tables: Tables, command: Command): void {
  if (!tables.own.isRoot) return;
  const frozen = tables.moves.frozen();
  if (frozen.length === 0) return;
  const volume = volumesNamed(tables, command).find((id) => frozen.includes(id));
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
