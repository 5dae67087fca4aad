import { ServiceError } from '../base/errors.ts';
import { catalogOfInode } from '../base/ids.ts';
import type { Command, Place, Query } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';

type Kind = Command['kind'] | Query['kind'];

/**
 * Which catalogs execute a command or answer a query: the root catalog, or those of volumes, at any time or while they
 * serve; `always`: the root catalog, too. Without an entry: the root catalog, and those of volumes while they serve.
 */
const SCOPES: { readonly [Only in Kind]?: 'root' | 'volume' | 'volume-always' | 'always' } = {
  'volume-create': 'root',
  'volume-remove': 'root',
  'catalog-create': 'root',
  'catalog-report': 'root',
  'volume-move': 'root',
  'volume-split': 'root',
  'volume-part': 'root',
  'volume-move-abort': 'root',
  'volume-freeze': 'root',
  'volume-number': 'root',
  'volume-forget': 'root',
  moves: 'root',
  'clone-create': 'root',
  'clone-fill': 'root',
  'clone-open': 'root',
  'clone-filled': 'root',
  'clone-flatten': 'root',
  unfilled: 'root',
  'volume-attach': 'root',
  'volume-detach': 'root',
  'server-add': 'root',
  'server-state': 'root',
  'server-zone': 'root',
  'server-label': 'root',
  'server-maintenance': 'root',
  'server-remove': 'root',
  'cluster-set': 'root',
  'set-voters': 'root',
  voters: 'root',
  catalogs: 'root',
  'catalog-begin': 'volume-always',
  'catalog-close': 'volume-always',
  'catalog-state': 'volume-always',
  'catalog-import': 'volume-always',
  'volume-export': 'always',
  'follow-servers': 'volume',
  'extend-numbers': 'volume',
};

/** @throws ServiceError if this catalog does not execute the command, or answer the query, at present */
export function refuseElsewhere(tables: Tables, request: Command | Query): void {
  refuseOutOfScope(tables, request.kind);
  refuseForeign(tables, request);
}

/**
 * Whether an inode exists is known to one catalog alone: the one that has given out its number, or to which its volume
 * has moved. A server that asked another one would delete its replica.
 */
function refuseForeign({ own, moves }: Tables, request: Command | Query): void {
  // It names the junction of another catalog.
  if (request.kind === 'volume-attach' || request.kind === 'volume-detach') return;
  const catalogOf = moves.haveNumbers ? (inode: number) => moves.catalogOf(inode) : catalogOfInode;
  const foreign = inodesNamed(request).find((inode) => catalogOf(inode) !== own.number);
  if (foreign === undefined) return;
  const catalog = catalogOf(foreign);
  const text = `Inode ${foreign} is of catalog ${catalog}; this is catalog ${own.number}`;
  // Servers ask about many at once: they must not take the refusal for the answer that there are none.
  const code = 'inodes' in request ? 'bad-request' : 'not-found';
  const hasMoved = catalogOfInode(foreign) === own.number;
  throw new ServiceError(code, text, { elsewhere: true, ...(hasMoved ? { movedTo: catalog } : {}) });
}

/** Fields by which commands and queries name inodes that their catalog is to have. */
interface Naming {
  readonly inode?: number;
  readonly parent?: number;
  readonly inodes?: readonly number[];
  readonly files?: readonly { readonly inode?: number; readonly parent?: number }[];
  readonly place?: Place;
  readonly from?: Place;
  /** A path, if files are restored from the trash. */
  readonly to?: Place | string;
}

export function inodesNamed(request: Command | Query): readonly number[] {
  const { inode, parent, inodes = [], files = [] } = request as Naming;
  const ofFiles = files.flatMap((file) => [file.inode, file.parent]);
  const ofPlaces = placesNamed(request).flatMap((place) => ('parent' in place ? [place.parent] : []));
  return [inode, parent, ...inodes, ...ofFiles, ...ofPlaces].filter((one) => one !== undefined);
}

export function placesNamed(request: Command | Query): readonly Place[] {
  const { place, from, to } = request as Naming;
  return [place, from, to].filter((one) => typeof one === 'object');
}

function refuseOutOfScope({ own }: Tables, kind: Kind): void {
  const scope = SCOPES[kind];
  if (scope === 'always') return;
  if (own.isRoot) {
    if (scope === undefined || scope === 'root') return;
    throw new ServiceError('bad-request', `"${kind}" is for catalogs of volumes; this is the root catalog`);
  }
  if (scope === 'volume-always') return;
  if (scope === 'root')
    throw new ServiceError('bad-request', `"${kind}" is for the root catalog; this is catalog ${own.number}`);
  const { name, begun, closed } = own.state();
  if (closed) throw removed(name);
  // The name is taken already: the volume is about to exist.
  if (!begun) throw new ServiceError('busy', `The volume of catalog ${own.number} is not created yet`);
}

/** @param name empty if the volume was removed before it was created */
export function removed(name: string): ServiceError {
  const text = name === '' ? 'The volume is removed' : `Volume "${name}" is removed`;
  return new ServiceError('not-found', text, { elsewhere: true });
}
