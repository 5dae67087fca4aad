import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, catalogOfInode, ROOT_CATALOG } from '../../base/ids.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG } from '../../wire/http-api.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import { commandTarget } from './catalog-target.ts';
import type { Gateway } from './gateway.ts';
import type { CallOptions } from './router.ts';

/** The list that says where a volume is comes with one of the next requests. */
const MOVING_RETRY_MS = 100;

/**
 * Executes a client's command in the catalog that the client names, and in no other: without a name, the root catalog.
 * By the epoch of that catalog, and by its latest commands there, a client finds out whether a loss of power of all
 * servers took some of its commands. In another catalog a loss would go unnoticed, and a command that the named one has
 * executed would be executed again.
 */
export async function commandInNamedCatalog(
  gateway: Gateway,
  command: Command,
  request: NumberedRequest,
  options: CallOptions,
): Promise<CommandResults[Command['kind']]> {
  // The server that forwards it has checked it.
  if (options.forwarded === true) return gateway.command(command, request, options);
  const named = options.catalog ?? ROOT_CATALOG;
  const target = commandTarget(command);
  // These have never been in the named catalog.
  for (const inode of target.kind === 'inodes' ? target.inodes : [])
    if (catalogOfInode(inode) !== ROOT_CATALOG)
      assertCatalogNamed(gateway.ofInode(inode).number, options.catalog);
  const { catalogs } = gateway.services;
  if (named !== ROOT_CATALOG && catalogs.row(named) === null) await catalogs.refresh();
  try {
    return await gateway.command(command, request, { ...options, catalog: named, onlyThere: true });
  } catch (error) {
    if (!(error instanceof ServiceError) || error.details.elsewhere !== true) throw error;
    throw await refusalElsewhere(gateway, command, error, options.catalog);
  }
}

/** What a client learns if the catalog that it names, if any, refuses a command because another one has the volume. */
async function refusalElsewhere(
  gateway: Gateway,
  command: Command,
  error: ServiceError,
  named: CatalogNumber | undefined,
): Promise<ServiceError> {
  const { catalogs } = gateway.services;
  const { movedTo } = error.details;
  // The root catalog flushes the list first: its refusal alone may be undone by a loss of power.
  await catalogs.refresh();
  if (movedTo !== undefined && named !== undefined)
    return catalogs.row(movedTo)?.state === 'creating' ? stillMoving() : error;
  const target = commandTarget(command);
  if (target.kind === 'volume') return refusalNamed(gateway.ofVolume(target.name).number, named) ?? error;
  if (target.kind !== 'inodes') return error;
  const numbers = target.inodes.map((inode) => gateway.ofInode(inode).number);
  const other = numbers.find((number) => number !== (named ?? ROOT_CATALOG));
  return (other === undefined ? null : refusalNamed(other, named)) ?? error;
}

function stillMoving(): ServiceError {
  const text = 'The volume moves to a catalog of its own: retry';
  return new ServiceError('moving', text, { retryAfterMs: MOVING_RETRY_MS });
}

/** The refusal of a request that the root catalog has not executed, and will not: the volume has left it. */
export function movedRefusal(movedTo: CatalogNumber): ServiceError {
  const text = `The volume has a catalog of its own now, ${movedTo}`;
  return new ServiceError('not-found', text, { elsewhere: true, movedTo });
}

/** @throws ServiceError `read-only` if a change is for another catalog than the one that its client names, if any */
export function assertCatalogNamed(number: CatalogNumber, named?: CatalogNumber): void {
  const refusal = refusalNamed(number, named);
  if (refusal !== null) throw refusal;
}

function refusalNamed(number: CatalogNumber, named: CatalogNumber = ROOT_CATALOG): ServiceError | null {
  if (number === named) return null;
  return new ServiceError(
    'read-only',
    number === ROOT_CATALOG
      ? `The volume is in the root catalog, but the request names catalog ${named}`
      : `The volume has a catalog of its own, which the request does not name (${HEADER_CATALOG}: ${number}): ` +
          'upgrade the client, which can only read this volume',
  );
}
