import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import type { Command, CommandOf, Query } from '../../wire/catalog-api.ts';
import type { Catalogs } from './service-interfaces.ts';

/** Which catalog executes a command or answers a query, if each volume has its own. */
export type CatalogTarget =
  /** The root catalog: servers, volumes' names, settings of the cluster. */
  | { readonly kind: 'root' }
  /** The catalog of this volume. */
  | { readonly kind: 'volume'; readonly name: string }
  /** The catalogs of these inodes: one, except for requests of servers about files of several volumes. */
  | { readonly kind: 'inodes'; readonly inodes: readonly number[] }
  /** Every catalog, because it is about a server's files, or about a session, which each catalog knows for itself. */
  | { readonly kind: 'every' };

type QueryOf<Kind extends Query['kind']> = Extract<Query, { kind: Kind }>;
type CommandTargets = { readonly [Kind in Command['kind']]: (command: CommandOf<Kind>) => CatalogTarget };
type QueryTargets = { readonly [Kind in Query['kind']]: (query: QueryOf<Kind>) => CatalogTarget };
type Place = CommandOf<'create-file'>['place'];

const ROOT: CatalogTarget = { kind: 'root' };
const EVERY: CatalogTarget = { kind: 'every' };

const root = (): CatalogTarget => ROOT;
const every = (): CatalogTarget => EVERY;
const ofInode = ({ inode }: { readonly inode: number }): CatalogTarget => inodesOf([inode]);
const ofInodes = ({ inodes }: { readonly inodes: readonly number[] }): CatalogTarget => inodesOf(inodes);
const ofVolume = ({ volume }: { readonly volume: string }): CatalogTarget => volumeOf(volume);
const ofPlace = ({ place }: { readonly place: Place }): CatalogTarget => placeOf(place);

/** A place in a snapshot, `volume@snapshot`, is in the catalog of the volume. */
function volumeOf(tree: string): CatalogTarget {
  return { kind: 'volume', name: tree.replace(/@.*$/s, '') };
}

function inodesOf(inodes: readonly number[]): CatalogTarget {
  return { kind: 'inodes', inodes: [...new Set(inodes)] };
}

function placeOf(place: Place): CatalogTarget {
  return 'parent' in place ? inodesOf([place.parent]) : volumeOf(place.volume);
}

function ofFiles({ files }: { readonly files: readonly { readonly inode: number }[] }): CatalogTarget {
  return inodesOf(files.map(({ inode }) => inode));
}

/** Entries of directories: a file is in the catalog of its directory. */
function ofEntries({ files }: { readonly files: readonly { readonly parent: number }[] }): CatalogTarget {
  return inodesOf(files.map(({ parent }) => parent));
}

const COMMANDS: CommandTargets = {
  'volume-create': root,
  'volume-set': ({ name }) => volumeOf(name),
  'volume-remove': root,
  'create-file': ofPlace,
  // The numbers are those of the catalog that executes it.
  'reserve-inodes': every,
  'void-inodes': ofInodes,
  bear: ofEntries,
  forgo: every,
  'pin-write': ofInode,
  'create-orphan': ofVolume,
  'keep-orphan': ofInode,
  replace: ofPlace,
  'replace-with-contents': ofPlace,
  'make-directory': ofPlace,
  'make-node': ofPlace,
  'junction-create': ofPlace,
  'junction-remove': ofInode,
  'remove-directory': ofPlace,
  unlink: ofPlace,
  'unlink-files': ofEntries,
  'unlink-fenced': ofEntries,
  // Across volumes it is refused.
  rename: ({ from }) => placeOf(from),
  'rename-whiteout': ({ from }) => placeOf(from),
  symlink: ofPlace,
  link: ofPlace,
  'set-attributes': ofInode,
  'set-flags': ofInode,
  retain: ofInode,
  'note-accesses': ofVolume,
  'open-for-write': ofInode,
  settle: ofFiles,
  'set-xattr': ofInode,
  'remove-xattr': ofInode,
  collect: every,
  'server-register': every,
  'server-add': root,
  'server-state': root,
  'server-zone': root,
  'server-label': root,
  'set-placement': ofInode,
  'set-quota': ofInode,
  'walk-quotas': every,
  'inherit-placement': ofInode,
  'server-maintenance': root,
  'server-remove': root,
  'cluster-set': root,
  'follow-view': ofInode,
  'follow-views': ofFiles,
  'plan-members': ofInode,
  'plan-files': ofFiles,
  'trim-deletions': every,
  'set-replicas': ofInode,
  'set-voters': root,
  'catalog-create': root,
  'catalog-report': root,
  'volume-attach': root,
  'volume-detach': root,
  // They are sent to the catalog that they are about.
  'catalog-begin': every,
  'catalog-close': every,
  'follow-servers': every,
  'extend-numbers': every,
  'volume-move': root,
  'volume-split': root,
  'volume-part': root,
  'volume-move-abort': root,
  'volume-freeze': root,
  'volume-number': root,
  'volume-forget': root,
  'catalog-import': every,
  'trash-restore': ofVolume,
  'trash-empty': ofVolume,
  'snapshot-create': ofVolume,
  'snapshot-remove': ofVolume,
  'snapshot-retain': ofVolume,
  'clone-create': root,
  'clone-fill': root,
  'clone-open': root,
  'clone-filled': root,
  'clone-flatten': root,
  sweep: every,
};

const QUERIES: QueryTargets = {
  resolve: ofVolume,
  lookup: ({ parent }) => inodesOf([parent]),
  attributes: ofInode,
  list: ofInode,
  xattr: ofInode,
  xattrs: ofInode,
  'volume-of': ofInode,
  snapshots: ofVolume,
  'snapshot-changes': ofVolume,
  sweeps: every,
  unfilled: root,
  'shared-contents': ofInode,
  'live-files': ofVolume,
  reservations: every,
  volume: ({ name }) => volumeOf(name),
  // With what each uses.
  volumes: every,
  outcome: every,
  'missing-commands': every,
  existing: ofInodes,
  paths: ofInodes,
  servers: ({ counts }) => (counts ? EVERY : ROOT),
  voters: root,
  catalogs: root,
  'catalog-state': every,
  moves: root,
  'volume-export': root,
  'files-on': every,
  'files-miscounted': every,
  'files-misplaced': every,
  'placement-classes': every,
  'directory-quotas': ofVolume,
  'quotas-of': ofInode,
  'quota-walks': every,
  'quota-walk': ofInode,
  'files-needing': every,
  plans: every,
  deletions: every,
  placed: ofInodes,
  trash: ofVolume,
};

/** The second place or inode that a command names: it must be in the same catalog. Null if there is none. */
export function secondTarget(command: Command): CatalogTarget | null {
  switch (command.kind) {
    case 'rename':
    case 'rename-whiteout':
      return placeOf(command.to);
    case 'link':
      return inodesOf([command.inode]);
    default:
      return null;
  }
}

export function commandTarget<Kind extends Command['kind']>(command: CommandOf<Kind>): CatalogTarget {
  return COMMANDS[command.kind as Kind](command);
}

export function queryTarget<Kind extends Query['kind']>(query: QueryOf<Kind>): CatalogTarget {
  return QUERIES[query.kind as Kind](query);
}

/** The parts of a query that several catalogs answer, by catalog; the root catalog's comes first. */
export function partsOf<Q extends Query>(
  query: Q,
  target: CatalogTarget,
  catalogs: Pick<Catalogs, 'numbers' | 'ofInode'>,
): (readonly [CatalogNumber, Q])[] {
  switch (target.kind) {
    case 'every':
      return catalogs.numbers().map((number) => [number, query]);
    case 'inodes': {
      const byCatalog = Map.groupBy(target.inodes, (inode) => catalogs.ofInode(inode));
      if (byCatalog.size < 2) return [[[...byCatalog.keys()][0] ?? ROOT_CATALOG, query]];
      return [...byCatalog].map(([number, inodes]) => [number, { ...query, inodes }]);
    }
    default:
      return [[ROOT_CATALOG, query]];
  }
}
