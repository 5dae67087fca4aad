/** The catalog of a single volume: its life, and what it follows of the root's list. model/volumes has the rules. */
import { ServiceError } from '../../base/errors.ts';
import { inodesOf } from '../../base/ids.ts';
import type { CommandOf, CommandResults, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { ListedServer } from '../../wire/volume-catalogs.ts';
import { removed } from '../scopes.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import { assertImported } from './volume-import.ts';
import { createVolume, deleteVolume, notEmpty } from './volumes.ts';

/** Files on a server's store are known from the first one on, if the catalog is younger than the store. */
const FIRST_INODE = 1;
/** `registeredNs` of a server that has not registered with this catalog. */
const UNREGISTERED = '0';

/** Creates the volume, once. With the list's servers: it must not place files on those that the root has drained. */
export function catalogBegin(
  tables: Tables,
  { number, name, settings, servers, moved }: CommandOf<'catalog-begin'>,
  atNs: string,
): CommandResults['catalog-begin'] {
  const { own } = tables;
  if (number !== own.number)
    throw new ServiceError('bad-request', `This is catalog ${own.number}, not catalog ${number}`);
  const state = own.state();
  if (state.closed) throw removed(name);
  if (state.begun) return {};
  if (moved === true) assertImported(tables);
  own.begin(name);
  if (moved === true) tables.numbers.renewReserved(volumeOf(tables, name).id, atNs);
  else createVolume(tables, name, settings, atNs, own.rootInode);
  follow(tables, servers);
  return {};
}

/**
 * Ends the catalog if its volume is empty; from then on it serves nothing. Reserved numbers are void then: what clients
 * have stored under them can become no file. The refusal of a removal is final: the root may count on it already.
 */
export function catalogClose(
  tables: Tables,
  { since }: CommandOf<'catalog-close'>,
): CommandResults['catalog-close'] {
  const { own, numbers, volumes } = tables;
  const { name, begun, closed, refused } = own.state();
  if (closed) return { closed: true };
  if (refused !== null && since <= refused.since) return { closed: false, refused };
  const volume = begun ? volumes.byName(name) : undefined;
  const why = volume === undefined ? null : notEmpty(tables, volume);
  if (why !== null) {
    own.refuse({ since, why });
    return { closed: false, refused: { since, why } };
  }
  if (volume !== undefined) deleteVolume(tables, volume);
  numbers.forgetAllReserved();
  own.close();
  return { closed: true };
}

export function followServers(
  tables: Tables,
  { servers }: CommandOf<'follow-servers'>,
): CommandResults['follow-servers'] {
  follow(tables, servers);
  return {};
}

/** Takes over what is newer than before: lists may arrive late, and of each server the latest change counts. */
function follow(tables: Tables, servers: readonly ListedServer[]): void {
  for (const listed of servers) {
    const { id, since } = listed;
    const before = tables.servers.server(id);
    if (before !== undefined && since <= tables.catalogs.sinceOf(id)) continue;
    tables.servers.put(followed(listed, before));
    tables.catalogs.setSince(id, since);
    tables.deletions.setKept(id, listed.state !== 'out');
  }
}

/** What a server reports of itself to each catalog stays: its store and free space. */
function followed(listed: ListedServer, before: ServerInfo | undefined): ServerInfo {
  const { id, url, zone, labels, state, storageId, maintenanceNs } = listed;
  const own = before ?? {
    ...{ storageId, bornAt: FIRST_INODE, freeBytes: 0, totalBytes: 0, registeredNs: UNREGISTERED },
  };
  return {
    ...{ id, url, zone, state, storageId: own.storageId, bornAt: own.bornAt },
    ...{ freeBytes: own.freeBytes, totalBytes: own.totalBytes, registeredNs: own.registeredNs },
    ...(labels === undefined ? {} : { labels }),
    ...(maintenanceNs === undefined ? {} : { maintenanceNs }),
  };
}

/** Raises the limit below which the catalog gives out numbers; it ends with the catalog's own. */
export function extendNumbers(
  tables: Tables,
  { limit }: CommandOf<'extend-numbers'>,
): CommandResults['extend-numbers'] {
  const { end } = inodesOf(tables.own.number);
  return { limit: tables.numbers.raiseLimit(Math.min(limit, end)) };
}

/** Refuses to plan a move to a server that leaves: it is removed once the catalog has confirmed that it left it. */
export function refuseLeavingPlan(
  tables: Tables,
  members: readonly string[],
  present: readonly string[],
): void {
  if (tables.own.isRoot) return;
  const leaving = members.find(
    (id) => !present.includes(id) && (tables.servers.server(id)?.state ?? 'in') !== 'in',
  );
  if (leaving !== undefined)
    throw new ServiceError('precondition-failed', `Server ${leaving} leaves, and takes no more files`);
}

export function catalogState(tables: Tables): QueryResults['catalog-state'] {
  const { own, placements, numbers, catalogs, volumes } = tables;
  const reserved = new Set(numbers.reservedSets().flat());
  const servers = tables.servers.all().map(({ id, state }) => ({
    ...{ id, state, since: catalogs.sinceOf(id) },
    holds: placements.hasFiles(id) || reserved.has(id),
  }));
  const state = own.state();
  const copied = state.imported === undefined ? {} : { inodes: volumes.all()[0]?.inodes ?? 0 };
  return { number: own.number, ...state, ...copied, servers };
}
