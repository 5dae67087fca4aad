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
  symlink: create,
  link: create,
  replace: store,
  'replace-with-contents': store,
  'remove-directory': remove,
  unlink: remove,
  rename,
  'rename-whiteout': rename,
  'reserve-inodes': ({ count }) => `reserve ${count} numbers for files`,
  'void-inodes': ({ inodes }) => `end the reservation of ${inodes.length} numbers`,
  'unlink-files': removeFiles,
  'unlink-fenced': removeFiles,
  'note-accesses': ({ accesses }) => `tell of ${accesses.length} reads`,
  bear: ({ files }) => `make ${files.length} files`,
  forgo: () => 'forgo a request',
  'pin-write': ({ inode }) => `pin a write of file ${inode}`,
  'create-orphan': ({ volume }) => `create a file in the volume "${volume}"`,
  settle: handleFiles,
  collect: handleFiles,
  'snapshot-create': ({ volume, name }) => `make the snapshot ${volume}@${name}`,
  'snapshot-remove': ({ volume, name }) => `remove the snapshot ${volume}@${name}`,
  sweep: () => 'sweep what only snapshots showed that are gone',
  'keep-orphan': change,
  'set-attributes': change,
  'set-flags': change,
  'open-for-write': change,
  'set-xattr': change,
  'remove-xattr': change,
  'follow-view': change,
  'plan-members': change,
  'set-replicas': change,
  'server-register': addServer,
  'server-add': addServer,
  'server-state': changeServer,
  'server-zone': changeServer,
  'server-remove': ({ id }) => `remove server ${id}`,
  'set-voters': () => 'change who votes on named leases',
  'trash-restore': ({ inode, volume }) => `restore file ${inode} of the volume "${volume}"`,
  'trash-empty': ({ volume }) => `empty the trash of the volume "${volume}"`,
};

const readAttributes = ({ inode }: { readonly inode: number }) => `read the attributes of inode ${inode}`;

const QUERIES: { readonly [Kind in Query['kind']]: (query: QueryOf<Kind>) => string } = {
  resolve: ({ volume, path }) => `find ${volume}:${path}`,
  lookup: ({ name, parent }) => `find "${name}" in directory ${parent}`,
  volume: ({ name }) => `find the volume "${name}"`,
  volumes: () => 'list the volumes',
  outcome: ({ session }) => `ask what became of session ${session}`,
  'volume-of': ({ inode }) => `find the volume of inode ${inode}`,
  snapshots: ({ volume }) => `list the snapshots of volume "${volume}"`,
  sweeps: () => 'ask what is left of removed snapshots',
  'live-files': ({ volume }) => `ask which files of volume "${volume}" are being written`,
  reservations: () => 'ask which files count for more than their size',
  'missing-commands': () => 'ask which commands are missing',
  existing: () => 'ask which files exist',
  paths: () => 'ask where files are to be found',
  placed: () => 'ask where files are',
  plans: () => 'ask which files are moving',
  servers: () => 'list the servers',
  voters: () => 'ask who votes on named leases',
  'files-on': ({ server }) => `list the files on server ${server}`,
  'files-miscounted': () => 'look for files with too few or too many replicas',
  trash: ({ volume }) => `list the trash of the volume "${volume}"`,
  list: ({ inode }) => `list directory ${inode}`,
  attributes: readAttributes,
  xattr: readAttributes,
  xattrs: readAttributes,
};

function textOf(place: Place): string {
  return 'volume' in place ? `${place.volume}:${place.path}` : `"${place.name}" in directory ${place.parent}`;
}
