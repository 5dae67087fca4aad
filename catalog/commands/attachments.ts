/**
 * Volumes that are attached in others: the root catalog's list says at which junction. Each volume is attached at one
 * of them at the most, and never below itself. A junction of which the list does not say so leads nowhere.
 */
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { doesServe, type ListedCatalog } from '../../wire/volume-catalogs.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';

export function volumeAttach(
  tables: Tables,
  { name, inode }: CommandOf<'volume-attach'>,
): CommandResults['volume-attach'] {
  const catalog = listedOf(tables, name);
  if (catalog.attached === inode) return { catalog };
  refuseAttached(catalog);
  if (catalog.state !== 'ready')
    throw new ServiceError('precondition-failed', `The volume "${name}" is ${textOf(catalog)}`);
  const other = tables.catalogs.all().find(({ attached }) => attached === inode);
  if (other !== undefined)
    throw new ServiceError('attached', `The volume "${other.name}" is attached at directory ${inode}`);
  refuseMissing(tables, catalog, inode);
  refuseBelowItself(tables, catalog, inode);
  return { catalog: attachedAt(tables, catalog, inode) };
}

export function volumeDetach(
  tables: Tables,
  { name, inode }: CommandOf<'volume-detach'>,
): CommandResults['volume-detach'] {
  // The volume may have been removed since it was attached there.
  if (inode !== undefined && tables.catalogs.byName(name) === undefined) return {};
  const catalog = listedOf(tables, name);
  if (catalog.attached === undefined || (inode ?? catalog.attached) !== catalog.attached) return { catalog };
  return { catalog: attachedAt(tables, catalog, undefined) };
}

/** @throws ServiceError `attached` */
export function refuseAttached({ name, attached }: ListedCatalog): void {
  if (attached === undefined) return;
  throw new ServiceError(
    'attached',
    `The volume "${name}" is attached at directory ${attached} of another volume: detach it first (leasehold volume detach)`,
  );
}

/** The catalog is removed: nothing is attached in it any more. */
export function detachAllIn(tables: Tables, number: number): void {
  for (const catalog of tables.catalogs.all())
    if (catalog.attached !== undefined && tables.moves.catalogOf(catalog.attached) === number)
      attachedAt(tables, catalog, undefined);
}

function attachedAt(tables: Tables, before: ListedCatalog, inode: number | undefined): ListedCatalog {
  const { attached: _, ...row } = before;
  const catalog = { ...row, ...(inode === undefined ? {} : { attached: inode }) };
  tables.catalogs.nextVersion();
  tables.catalogs.put(catalog);
  return catalog;
}

function listedOf(tables: Tables, name: string): ListedCatalog {
  const catalog = tables.catalogs.byName(name);
  if (catalog !== undefined) return catalog;
  volumeOf(tables, name);
  throw new ServiceError(
    'precondition-failed',
    `The volume "${name}" has no catalog of its own, and so cannot be attached in another one`,
  );
}

function textOf({ state }: ListedCatalog): string {
  return state === 'creating' ? 'still being created' : 'being removed';
}

/** Refuses inodes of catalogs that do not serve. The root catalog knows its own junctions, and only those. */
function refuseMissing(tables: Tables, { number, name }: ListedCatalog, inode: number): void {
  const parent = tables.moves.catalogOf(inode);
  const isThere =
    parent === ROOT_CATALOG
      ? tables.junctions.row(inode)?.catalog === number
      : doesServe(tables.catalogs.byNumber(parent) ?? { state: 'removed' });
  if (!isThere)
    throw new ServiceError(
      'not-found',
      `There is no directory ${inode} for the volume "${name}" to be attached at`,
    );
}

function refuseBelowItself(tables: Tables, { number, name }: ListedCatalog, inode: number): void {
  let at: number | undefined = inode;
  while (at !== undefined) {
    const above: CatalogNumber = tables.moves.catalogOf(at);
    if (above === number)
      throw new ServiceError(
        'precondition-failed',
        `The volume "${name}" cannot be attached below itself: directory ${inode} is in it, or in a volume below it`,
      );
    at = tables.catalogs.byNumber(above)?.attached;
  }
}
