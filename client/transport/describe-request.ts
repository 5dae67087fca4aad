import type { Command, CommandOf, Place, Query } from '../../wire/catalog-api.ts';

/** What a request of the catalog does, to complete an error message that begins with `Cannot …`. */

type QueryOf<Kind extends Query['kind']> = Extract<Query, { kind: Kind }>;

export function describeCommand<Kind extends Command['kind']>(command: CommandOf<Kind>): string {
  return COMMANDS[command.kind as Kind](command);
}

export function describeQuery<Kind extends Query['kind']>(query: QueryOf<Kind>): string {
  return QUERIES[query.kind as Kind](query);
}

const create = ({ place }: { readonly place: Place }) => `create ${textOf(place)}`;
const store = ({ place }: { readonly place: Place }) => `store ${textOf(place)}`;
const remove = ({ place }: { readonly place: Place }) => `remove ${textOf(place)}`;
const rename = ({ from, to }: { readonly from: Place; readonly to: Place }) =>
  `rename ${textOf(from)} to ${textOf(to)}`;
const removeFiles = ({ files }: { readonly files: readonly unknown[] }) => `remove ${files.length} files`;
const handleFiles = ({ kind }: { readonly kind: string }) => `${kind} files`;
const change = ({ inode, kind }: { readonly inode: number; readonly kind: string }) =>
  `change inode ${inode} (${kind})`;
const addServer = ({ id }: { readonly id: string }) => `add server ${id}`;
const changeServer = ({ id }: { readonly id: string }) => `change server ${id}`;

const COMMANDS: { readonly [Kind in Command['kind']]: (command: CommandOf<Kind>) => string } = {
  'volume-create': ({ name }) => `create the volume "${name}"`,
  'volume-set': ({ name }) => `change the volume "${name}"`,
  'volume-remove': ({ name }) => `remove the volume "${name}"`,
  'create-file': create,
  'make-directory': create,
  'make-node': create,
  'junction-create': create,
  'junction-remove': change,
  symlink: create,
  link: create,
  replace: store,
  'replace-with-contents': store,
  'remove-directory': remove,
  unlink: remove,
  rename,
  'rename-whiteout': rename,
  'reserve-inodes': ({ count }) => `reserve ${count} inode numbers`,
  'void-inodes': ({ inodes }) => `void ${inodes.length} reserved inode numbers`,
  'unlink-files': removeFiles,
  'unlink-fenced': removeFiles,
  'note-accesses': ({ accesses }) => `record ${accesses.length} access times`,
  bear: ({ files }) => `create ${files.length} files`,
  forgo: () => 'exclude the late execution of a request',
  'pin-write': ({ inode }) => `pin a write of file ${inode}`,
  'create-orphan': ({ volume }) => `create a file in the volume "${volume}"`,
  settle: handleFiles,
  collect: handleFiles,
  'snapshot-create': ({ volume, name }) => `create the snapshot ${volume}@${name}`,
  'snapshot-remove': ({ volume, name }) => `remove the snapshot ${volume}@${name}`,
  'snapshot-retain': ({ volume, name }) => `retain the snapshot ${volume}@${name}`,
  'clone-create': ({ name, volume, snapshot }) => `create "${name}", a clone of ${volume}@${snapshot}`,
  'clone-fill': ({ inode }) => `copy the entries of directory ${inode} from its snapshot`,
  'clone-open': ({ inode }) => `choose servers for the contents of file ${inode}`,
  'clone-filled': ({ inode }) => `give file ${inode} contents of its own`,
  'clone-flatten': ({ name }) => `copy what the clone "${name}" shares with its snapshot`,
  sweep: () => 'remove the data of deleted snapshots',
  'keep-orphan': change,
  'set-attributes': change,
  'set-flags': change,
  retain: ({ inode }) => `retain file ${inode}`,
  'open-for-write': change,
  'set-xattr': change,
  'remove-xattr': change,
  'follow-view': change,
  'plan-members': change,
  'follow-views': handleFiles,
  'plan-files': handleFiles,
  'set-replicas': change,
  'server-register': addServer,
  'server-add': addServer,
  'server-state': changeServer,
  'server-zone': changeServer,
  'server-label': changeServer,
  'set-placement': change,
  'set-quota': change,
  'walk-quotas': () => 'count what is in directories that get or lose a quota',
  'inherit-placement': change,
  'server-maintenance': changeServer,
  'cluster-set': () => 'change the settings of the cluster',
  'server-remove': ({ id }) => `remove server ${id}`,
  'trim-deletions': ({ server }) => `trim the log of deletions of server ${server}`,
  'set-voters': () => 'change the voters of named leases',
  'catalog-create': ({ name }) => `create the volume "${name}" with a catalog of its own`,
  'volume-attach': ({ name }) => `attach the volume "${name}"`,
  'volume-detach': ({ name }) => `detach the volume "${name}"`,
  'catalog-report': ({ number }) => `report the state of catalog ${number}`,
  'catalog-begin': ({ name }) => `begin the catalog of volume "${name}"`,
  'catalog-close': () => 'close the catalog of a volume',
  'follow-servers': () => "follow the root catalog's servers",
  'extend-numbers': () => 'extend the inode numbers of a catalog',
  'volume-move': ({ name }) => `move the volume "${name}" to a catalog of its own`,
  'volume-move-abort': ({ name }) => `end the move of the volume "${name}"`,
  'volume-split': ({ name, volume, path }) => `make "${volume}:${path}" the volume "${name}"`,
  'volume-part': ({ number }) => `visit what becomes the volume of catalog ${number}`,
  'volume-freeze': ({ number }) => `have changes wait for the move to catalog ${number}`,
  'volume-number': ({ number }) => `record the numbers that move to catalog ${number}`,
  'volume-forget': ({ number }) => `delete what has moved to catalog ${number}`,
  'catalog-import': ({ number }) => `import the volume of catalog ${number}`,
  'trash-restore': ({ inode, volume }) => `restore file ${inode} of the volume "${volume}"`,
  'trash-empty': ({ volume }) => `empty the trash of the volume "${volume}"`,
};

const readAttributes = ({ inode }: { readonly inode: number }) => `read the attributes of inode ${inode}`;

const QUERIES: { readonly [Kind in Query['kind']]: (query: QueryOf<Kind>) => string } = {
  resolve: ({ volume, path }) => `find ${volume}:${path}`,
  lookup: ({ name, parent }) => `find "${name}" in directory ${parent}`,
  volume: ({ name }) => `find the volume "${name}"`,
  volumes: () => 'list the volumes',
  outcome: ({ session }) => `query the outcomes of session ${session}`,
  'volume-of': ({ inode }) => `find the volume of inode ${inode}`,
  snapshots: ({ volume }) => `list the snapshots of volume "${volume}"`,
  'snapshot-changes': ({ volume }) => `compare two snapshots of volume "${volume}"`,
  sweeps: () => 'query the remaining data of removed snapshots',
  unfilled: () => 'list what clones are about to copy from their snapshots',
  'shared-contents': ({ inode }) => `find the contents of file ${inode}`,
  'live-files': ({ volume }) => `list the files of volume "${volume}" that are being written`,
  reservations: () => 'list the space reservations of files',
  'missing-commands': () => 'query which commands are missing',
  existing: () => 'query which files exist',
  paths: () => 'query the paths of files',
  placed: () => 'query the replicas of files',
  plans: () => 'list the planned moves of replicas',
  deletions: ({ server }) => `list the replicas that server ${server} may not need`,
  servers: () => 'list the servers',
  voters: () => 'list the voters of named leases',
  catalogs: () => 'list the catalogs of volumes',
  'catalog-state': () => 'query the state of a catalog',
  moves: () => 'list the moves of volumes to catalogs of their own',
  'volume-export': ({ number }) => `export the volume of catalog ${number}`,
  'files-needing': ({ server }) => `count the files that need server ${server}`,
  'files-on': ({ server }) => `list the files on server ${server}`,
  'files-miscounted': () => 'list files with too few or too many replicas',
  'directory-quotas': ({ volume }) => `list the quotas of directories of the volume "${volume}"`,
  'quotas-of': ({ inode }) => `query the quotas that inode ${inode} counts against`,
  'quota-walks': () => 'query whether quotas are being counted',
  'quota-walk': ({ inode }) => `query whether the quota of directory ${inode} is being counted`,
  'placement-classes': () => 'list directories with a placement class',
  'files-misplaced': () => 'list files on servers that their volumes do not allow',
  trash: ({ volume }) => `list the trash of the volume "${volume}"`,
  list: ({ inode }) => `list directory ${inode}`,
  attributes: readAttributes,
  xattr: readAttributes,
  xattrs: readAttributes,
};

function textOf(place: Place): string {
  return 'volume' in place ? `${place.volume}:${place.path}` : `"${place.name}" in directory ${place.parent}`;
}
