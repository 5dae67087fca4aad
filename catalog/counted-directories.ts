/** The catalog's primary refuses before replication, as in `leaving-servers.ts`. */
import { ServiceError } from '../base/errors.ts';
import type { Command, CommandOf, Place } from '../wire/catalog-api.ts';
import { countBetween } from './commands/quota-walks.ts';
import { inheritedQuota } from './inherited-quota.ts';
import type { InodeRow } from './inode-rows.ts';
import type { QuotaWalk } from './quota-walk-tables.ts';
import type { Tables } from './tables.ts';
import { directoryPath, type ResolvedName, resolvePlace } from './walk.ts';

const RETRY_MS = 500;

/**
 * Refuses what must wait until a directory that gets or loses its quota is walked. Not stored as an outcome: the
 * command is repeated. @throws ServiceError `busy`
 */
export function refuseCounted(tables: Tables, command: Command): void {
  switch (command.kind) {
    case 'set-quota':
      refuseSecondWalk(tables, command);
      return;
    case 'volume-split':
      refuseMove(tables, command.volume);
      return;
    case 'volume-move':
      refuseMove(tables, command.name);
      return;
    case 'rename':
    case 'rename-whiteout':
      refuseMoveOfWalked(tables, command);
      return;
    case 'link':
      refuseUncertainName(tables, command);
      return;
    default:
      return;
  }
}

/** One walk in a volume at a time, and none while it moves: each would change what the other has visited. */
function refuseSecondWalk(tables: Tables, { inode: id, quota: wanted, walks }: CommandOf<'set-quota'>): void {
  tables.walks.begin();
  const inode = tables.inode(id);
  if (inode === undefined) return;
  const { volume, volumeName } = inode;
  const own = tables.walks.row(id);
  if (own?.phase === 'ending' && wanted !== null)
    throw wait(`The former quota of ${nameOf(tables, inode)} is still being ended: this waits`);
  if (walks !== true || (own !== undefined && own.phase !== 'refused')) return;
  const row = tables.quotas.row(id);
  const needsWalk =
    wanted === null ? (row?.namedInodes ?? 0) > 1 : row === undefined && tables.entries.hasChildren(id);
  if (!needsWalk) return;
  const other = tables.walks.ofVolume(volume);
  if (other !== undefined)
    throw wait(
      `${walkedName(tables, other)} is being counted, one directory of a volume at a time: this waits`,
    );
  const { moves } = tables;
  if (tables.own.isRoot && [...moves.leaving(), ...moves.sources()].includes(volume))
    throw wait(`The volume "${volumeName}", or a directory of it, moves: this waits until that has ended`);
}

function refuseMove(tables: Tables, name: string): void {
  const volume = tables.volumes.byName(name);
  const walk = volume === undefined || !haveWalks(tables) ? undefined : tables.walks.ofVolume(volume.id);
  if (walk !== undefined) throw wait(`${walkedName(tables, walk)} is being counted: this waits`);
}

/** What is not visited yet counts against the quota that the directory is in. */
function refuseMoveOfWalked(tables: Tables, { from, to }: CommandOf<'rename' | 'rename-whiteout'>): void {
  if (!haveWalks(tables)) return;
  const source = resolvedOrNull(tables, from);
  const target = resolvedOrNull(tables, to);
  const walk = source?.inode === undefined ? undefined : tables.walks.row(source.inode.id);
  if (walk === undefined || walk.phase === 'refused' || target === null) return;
  const outer = tables.quotas.row(walk.directory)?.enclosing;
  if (outer !== undefined && outer !== inheritedQuota(tables, target.directory))
    throw wait(`${walkedName(tables, walk)} is being counted, and other quotas count there: this waits`);
}

/** Whether all names of the file are in the directory is not known before these are visited. */
function refuseUncertainName(tables: Tables, { inode: id, place }: CommandOf<'link'>): void {
  if (!haveWalks(tables)) return;
  const file = tables.inode(id);
  const spot = resolvedOrNull(tables, place);
  if (file === undefined || spot === null) return;
  const { quota } = spot.directory;
  const walk = countBetween(tables, file.quota, quota);
  if (walk === undefined) return;
  const isUnvisited = walk.phase === 'counting' && quota === walk.directory;
  if (isUnvisited || tables.walks.isShared(walk.directory, id))
    throw wait(`${walkedName(tables, walk)} is being counted: a hard link of inode ${id} waits`);
}

/** Looks before the command begins. */
function haveWalks({ walks }: Tables): boolean {
  walks.begin();
  return !walks.isEmpty;
}

/** @returns null also for a place at which execution refuses the command */
function resolvedOrNull(tables: Tables, place: Place): ResolvedName | null {
  try {
    return resolvePlace(tables, place, false);
  } catch (error) {
    if (error instanceof ServiceError) return null;
    throw error;
  }
}

function walkedName(tables: Tables, { directory, volume }: QuotaWalk): string {
  const inode = tables.inode(directory);
  return inode === undefined ? `A directory of volume ${volume}` : nameOf(tables, inode);
}

function nameOf(tables: Tables, { id, volumeName }: InodeRow): string {
  return `"${volumeName}:${directoryPath(tables, id) ?? ''}"`;
}

function wait(text: string): ServiceError {
  return new ServiceError('busy', text, { retryAfterMs: RETRY_MS });
}
