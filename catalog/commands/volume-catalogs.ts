/** The root catalog's list of volumes that have a catalog of their own: model/volumes has its rules. */
import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { CATALOGS_END } from '../../base/ids.ts';
import { laterNs } from '../../base/times.ts';
import type { CommandOf, CommandResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { VolumeSettings } from '../../wire/catalog-values.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import type { CatalogReport, CatalogState, ListedCatalog } from '../../wire/volume-catalogs.ts';
import { attachPart } from '../attached-part.ts';
import { completeMove } from '../completed-moves.ts';
import { timeCheck } from '../names.ts';
import { assertNotRetained } from '../retention.ts';
import type { Tables } from '../tables.ts';
import type { MoveRow } from '../volume-move-tables.ts';
import { detachAllIn, refuseAttached } from './attachments.ts';

const FIRST_VIEW = 1;
/** Members of a volume's catalog at its creation, if there are so many servers. */
export const CATALOG_MEMBERS = 3;

/** @param chosen the members if the command names none */
export function catalogCreate(
  tables: Tables,
  command: CommandOf<'catalog-create'>,
  chosen: readonly string[],
): CommandResults['catalog-create'] {
  const { name, members = chosen } = command;
  refuseTakenName(tables, name);
  return { catalog: addCatalog(tables, { name, members, settings: settingsOf(command) }) };
}

/** Lists a new catalog, whose members open it then. */
export function addCatalog(
  tables: Tables,
  { name, members, settings }: Pick<ListedCatalog, 'name' | 'members' | 'settings'>,
): ListedCatalog {
  if (new Set(members).size !== members.length)
    throw new ServiceError('bad-request', 'A catalog names each of its members once');
  const away = members.find((id) => tables.servers.server(id)?.state !== 'in');
  if (away !== undefined)
    throw new ServiceError('precondition-failed', `Server ${away} cannot hold a new catalog: it is not "in"`);
  // Its disk would be newer than the catalog, and its replica count only once it is caught up.
  const unregistered = members.find((id) => tables.servers.server(id)?.storageId === '');
  if (unregistered !== undefined)
    throw new ServiceError(
      'precondition-failed',
      `Server ${unregistered} cannot hold a new catalog: it has not registered yet`,
    );
  const number = tables.catalogs.nextNumber();
  if (number >= CATALOGS_END)
    throw new ServiceError('no-space', `There have been ${number - 1} volumes with a catalog of their own`);
  const version = tables.catalogs.nextVersion();
  const at = { made: version, since: version };
  const catalog = { number, name, state: 'creating', view: FIRST_VIEW, members, ...at, settings } as const;
  tables.catalogs.put(catalog);
  return catalog;
}

/** In a fixed order, because replicas are equal byte by byte. */
export function settingsOf(
  command: Omit<VolumeSettings, keyof PlacementClass> & PlacementClass,
): VolumeSettings {
  const { replicas, objectBytes, mode, uid, gid, policy, quotaBytes, quotaInodes, trashMs } = command;
  const { labels, zones } = command;
  const limits = { quotaBytes, quotaInodes, trashMs, labels, zones };
  const all = { replicas, objectBytes, mode, uid, gid, policy, ...limits };
  return JSON.parse(JSON.stringify(all)) as VolumeSettings;
}

/**
 * The name stays taken until the volume's catalog has closed. It may serve nothing by then, so that the volume neither
 * exists nor can be created: the caller retries. Not stored as an outcome.
 */
export function refuseWhileRemoved(tables: Tables, name: string): void {
  if (tables.catalogs.byName(name)?.state === 'removing')
    throw new ServiceError('busy', `The volume "${name}" is still being removed`);
}

export function refuseTakenName(tables: Tables, name: string): void {
  const listed = tables.catalogs.byName(name);
  if (listed !== undefined || tables.volumes.byName(name) !== undefined)
    throw new ServiceError('exists', `There is a volume "${name}" already`);
}

/** Has the catalog close. @returns its row */
export function beginRemoval(tables: Tables, catalog: ListedCatalog): ListedCatalog {
  refuseAttached(catalog);
  return catalog.state === 'removing' ? catalog : moved(tables, catalog, 'removing');
}

/** Has the members drop the catalog without its consent: what is left of it cannot decide any more. @returns its row */
export function removeLost(tables: Tables, catalog: ListedCatalog): ListedCatalog {
  // Its servers may return.
  assertNotRetained(tables, `What volume "${catalog.name}" had`, catalog.retainedNs ?? null);
  const { attached: _, ...row } = catalog;
  return moved(tables, row, 'removed');
}

/** A report of what is known already, or is no longer true, changes nothing. */
export function catalogReport(
  tables: Tables,
  { number, report }: CommandOf<'catalog-report'>,
  atNs: string,
): CommandResults['catalog-report'] {
  const catalog = tables.catalogs.byNumber(number);
  if (catalog === undefined) throw new ServiceError('not-found', `There is no catalog ${number}`);
  receive(tables, catalog, report, atNs);
  return {};
}

function receive(tables: Tables, catalog: ListedCatalog, report: CatalogReport, atNs: string): void {
  const { number, state, since } = catalog;
  switch (report.kind) {
    case 'created':
      if (state === 'creating') created(tables, catalog, atNs);
      return;
    case 'closed':
      if (state === 'removing') moved(tables, catalog, 'removed');
      return;
    case 'refused': {
      // A late refusal of an earlier removal says nothing about this one.
      if (state !== 'removing' || report.since !== since) return;
      moved(tables, { ...catalog, refused: { since, why: report.why } }, 'ready');
      return;
    }
    case 'view':
      if (report.view <= catalog.view) return;
      tables.catalogs.nextVersion();
      tables.catalogs.put({ ...catalog, view: report.view, members: report.members });
      return;
    case 'none-left': {
      const isDraining = tables.servers.server(report.server)?.state === 'draining';
      // The server may have been let in and drained again since.
      if (isDraining && tables.catalogs.sinceOf(report.server) === report.since)
        tables.catalogs.confirm(report.server, number);
      return;
    }
    case 'retained': {
      const retainedNs = laterNs(timeCheck(report.untilNs), catalog.retainedNs ?? '0');
      if (retainedNs === catalog.retainedNs) return;
      tables.catalogs.nextVersion();
      tables.catalogs.put({ ...catalog, retainedNs });
      return;
    }
    default:
      unreachable(report);
  }
}

/** The catalog of a volume that moves can have all its rows only once their numbers are recorded. */
function created(tables: Tables, catalog: ListedCatalog, atNs: string): void {
  if (catalog.moving !== undefined && catalog.moving !== 'numbered') return;
  const move = tables.moves.row(catalog.number);
  const isPart = move !== undefined && move.part > 0;
  const attached = isPart ? attachPart(tables, catalog, move, atNs) : catalog;
  moved(tables, move === undefined ? attached : { ...attached, ...retainedOf(tables, move) }, 'ready');
  if (move !== undefined) completeMove(tables, move);
}

/** The latest date of the volume that has moved. */
function retainedOf({ volumes }: Tables, { volume }: MoveRow): Pick<ListedCatalog, 'retainedNs'> {
  const { retainedNs } = volumes.row(volume);
  return retainedNs === '0' ? {} : { retainedNs };
}

/** @returns the row */
export function moved(tables: Tables, before: ListedCatalog, state: CatalogState): ListedCatalog {
  const { moving: _, ...row } = before;
  const catalog = { ...row, state, since: tables.catalogs.nextVersion() };
  tables.catalogs.put(catalog);
  if (state === 'removed') detachAllIn(tables, catalog.number);
  return catalog;
}

/** Refuses to remove a server before each volume's catalog has left it, or is removed. */
export function refuseNotLeft(tables: Tables, { id }: ServerInfo): void {
  for (const { number, name, state, members } of tables.catalogs.all()) {
    if (state === 'removed') continue;
    const isMember = members.includes(id);
    if (!isMember && tables.catalogs.hasConfirmed(id, number)) continue;
    const why = isMember
      ? `Server ${id} has a replica of the catalog of volume "${name}": drain it first, and wait until the catalog has moved`
      : `Volume "${name}" has not confirmed that it has nothing at server ${id}: drain it first, and wait`;
    const lost = `If most servers of its catalog (${members.join(', ')}) are lost for good, remove the volume with --lost`;
    throw new ServiceError('precondition-failed', `${why}. ${lost}`);
  }
}
