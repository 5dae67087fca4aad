/** The catalog's primary refuses before replication, as in `leaving-servers.ts`. */
import { ServiceError } from '../base/errors.ts';
import type { Command } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';
import {
  CATALOGS_VERSION,
  CLONES_VERSION,
  JUNCTIONS_VERSION,
  SPLITS_VERSION,
  VOLUME_MOVES_VERSION,
} from './versions.ts';

/**
 * Refuses servers of releases that ask the root catalog about all files, and so would take files of volumes with a
 * catalog of their own for deleted ones; of those that find no path through attached volumes, or no inode that has
 * moved with its volume; and of those that do not copy contents that a clone shares. A server that is added may have
 * never run: then its registration decides.
 * @param seenVersion command version that a server was last seen with; null: not since the start
 */
export function refuseOutdatedServer(
  tables: Tables,
  command: Command,
  seenVersion: (server: string) => number | null = () => null,
): void {
  const { kind } = command;
  if (kind !== 'server-register' && kind !== 'server-add') return;
  if (!tables.own.isRoot || (tables.catalogs.isEmpty && tables.clones.isEmpty)) return;
  const seen = kind === 'server-add' ? seenVersion(command.id) : (command.commandsVersion ?? 0);
  const needed = neededOf(tables);
  if (seen === null || seen >= needed.version) return;
  // An earlier release ends its process at `precondition-failed`, as if it ran with an earlier data folder.
  throw outdated(kind === 'server-add' ? 'precondition-failed' : 'bad-request', command.id, needed);
}

/** What each server has to know, and the version from which on it does. */
interface Needed {
  readonly version: number;
  readonly what: string;
}

function neededOf({ catalogs, moves, clones }: Tables): Needed {
  if (!clones.isEmpty) return { version: CLONES_VERSION, what: 'clones of snapshots' };
  if (moves.haveParts) return { version: SPLITS_VERSION, what: 'directories that become volumes' };
  if (!moves.isEmpty) return { version: VOLUME_MOVES_VERSION, what: 'moves of volumes' };
  if (catalogs.hasAttached) return { version: JUNCTIONS_VERSION, what: 'attached volumes' };
  return { version: CATALOGS_VERSION, what: 'catalogs of single volumes' };
}

function outdated(code: 'bad-request' | 'precondition-failed', id: string, { what }: Needed): ServiceError {
  const text = `Server ${id} runs a release without ${what}, which this cluster has: upgrade it first`;
  return new ServiceError(code, text);
}
