import { ServiceError } from '../../base/errors.ts';
import type { Role } from '../../wire/access.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';

/** The role that may give each command; `server`: only servers. A new command needs a line here. */
const COMMANDS: Readonly<Record<Command['kind'], Role | 'server'>> = {
  'volume-create': 'admin',
  'volume-set': 'admin',
  'volume-remove': 'admin',
  'create-file': 'write',
  'reserve-inodes': 'server',
  'void-inodes': 'server',
  bear: 'server',
  forgo: 'server',
  'pin-write': 'server',
  'create-orphan': 'write',
  'keep-orphan': 'write',
  replace: 'write',
  'replace-with-contents': 'server',
  'make-directory': 'write',
  'make-node': 'write',
  'junction-create': 'admin',
  'junction-remove': 'admin',
  'remove-directory': 'write',
  unlink: 'write',
  'unlink-files': 'write',
  'unlink-fenced': 'write',
  rename: 'write',
  'rename-whiteout': 'write',
  symlink: 'write',
  link: 'write',
  'set-attributes': 'write',
  'set-flags': 'write',
  retain: 'write',
  // It only moves access times forward, which reading does too.
  'note-accesses': 'read',
  'open-for-write': 'server',
  settle: 'server',
  'set-xattr': 'write',
  'remove-xattr': 'write',
  collect: 'server',
  'server-register': 'server',
  'server-add': 'admin',
  'server-state': 'admin',
  'server-zone': 'admin',
  'server-label': 'admin',
  'set-placement': 'admin',
  'set-quota': 'admin',
  'walk-quotas': 'server',
  'inherit-placement': 'admin',
  'server-maintenance': 'admin',
  'cluster-set': 'admin',
  'server-remove': 'admin',
  'follow-view': 'server',
  'follow-views': 'server',
  'plan-members': 'server',
  'plan-files': 'server',
  'set-replicas': 'admin',
  'set-voters': 'server',
  'trim-deletions': 'server',
  'catalog-create': 'admin',
  'catalog-report': 'server',
  'volume-attach': 'admin',
  'volume-detach': 'admin',
  'catalog-begin': 'server',
  'catalog-close': 'server',
  'follow-servers': 'server',
  'extend-numbers': 'server',
  'volume-move': 'admin',
  'volume-move-abort': 'admin',
  'volume-split': 'admin',
  'volume-part': 'server',
  'volume-freeze': 'server',
  'volume-number': 'server',
  'volume-forget': 'server',
  'catalog-import': 'server',
  'trash-restore': 'write',
  'trash-empty': 'write',
  'snapshot-create': 'admin',
  'snapshot-remove': 'admin',
  'snapshot-retain': 'admin',
  'clone-create': 'admin',
  'clone-fill': 'server',
  'clone-open': 'server',
  'clone-filled': 'server',
  'clone-flatten': 'admin',
  sweep: 'server',
};

/** Whether a query is about one volume, one inode, the whole cluster, or open to every client. */
const QUERIES: Readonly<Record<Query['kind'], 'volume' | 'one-inode' | 'cluster' | 'any-client'>> = {
  resolve: 'volume',
  lookup: 'volume',
  attributes: 'volume',
  list: 'volume',
  xattr: 'volume',
  xattrs: 'volume',
  'volume-of': 'cluster',
  snapshots: 'volume',
  'snapshot-changes': 'volume',
  'live-files': 'volume',
  reservations: 'cluster',
  sweeps: 'cluster',
  unfilled: 'cluster',
  'shared-contents': 'cluster',
  volume: 'volume',
  // The answer is reduced to the volumes of the grant.
  volumes: 'any-client',
  outcome: 'cluster',
  'missing-commands': 'cluster',
  existing: 'cluster',
  // A mount finds the directory above a file handle by it; servers query the paths of many inodes.
  paths: 'one-inode',
  // A client finds the servers by it.
  servers: 'any-client',
  voters: 'cluster',
  catalogs: 'cluster',
  'catalog-state': 'cluster',
  moves: 'cluster',
  'volume-export': 'cluster',
  'files-on': 'cluster',
  'files-needing': 'cluster',
  'files-miscounted': 'cluster',
  'files-misplaced': 'cluster',
  'placement-classes': 'cluster',
  'directory-quotas': 'volume',
  'quotas-of': 'volume',
  'quota-walks': 'cluster',
  'quota-walk': 'volume',
  plans: 'cluster',
  placed: 'cluster',
  deletions: 'cluster',
  trash: 'volume',
};

/** Kinds of requests whose `name` is a volume's. */
const NAMING_VOLUMES = /^(volume|volume-.*|catalog-(create|remove)|clone-(create|flatten))$/;

export interface AccessTargets {
  readonly volumes: readonly string[];
  /** The catalog knows their volumes. */
  readonly inodes: readonly number[];
}

/** Returns who may give the command in a body; null for an invalid one, which its handler refuses. */
export function commandRole(body: unknown): Role | 'server' | null {
  const kind = kindIn(body, 'command');
  return kind !== null && Object.hasOwn(COMMANDS, kind) ? COMMANDS[kind as Command['kind']] : null;
}

export function describeCommand(body: unknown): Readonly<Record<string, unknown>> {
  const { kind, id, volume, name, inode, url, state, replicas, dead } = objectIn(body, 'command') ?? {};
  return { command: kind, id, volume, name, inode, url, state, replicas, dead };
}

export function commandTargets(body: unknown): AccessTargets {
  return targetsOf(objectIn(body, 'command') ?? {});
}

/** Returns the volumes and inodes that the query in a body is about; null if every client may send it. */
export function queryTargets(body: unknown): AccessTargets | null {
  const kind = kindIn(body, 'query');
  const rule = kind !== null && Object.hasOwn(QUERIES, kind) ? QUERIES[kind as Query['kind']] : 'cluster';
  if (rule === 'any-client') return null;
  const request = objectIn(body, 'query') ?? {};
  const { inodes } = request;
  const [inode, ...others]: unknown[] = Array.isArray(inodes) ? inodes : [];
  if (rule === 'one-inode' && typeof inode === 'number' && others.length === 0)
    return { volumes: [], inodes: [inode] };
  if (rule !== 'volume')
    throw new ServiceError(
      'forbidden',
      'This query is about the whole cluster, and the credentials are for some volumes only',
    );
  return targetsOf(request);
}

function targetsOf(request: Readonly<Record<string, unknown>>): AccessTargets {
  const volumes: string[] = [];
  const inodes: number[] = [];
  const { kind, name, place, from, to, files } = request;
  if (NAMING_VOLUMES.test(String(kind)) && typeof name === 'string') volumes.push(name);
  for (const one of [request, place, from, to]) {
    const { volume, inode, parent } = (one ?? {}) as Readonly<Record<string, unknown>>;
    // `volume@snapshot` belongs to its volume.
    if (typeof volume === 'string') volumes.push(volume.replace(/@.*$/s, ''));
    if (typeof inode === 'number') inodes.push(inode);
    if (typeof parent === 'number') inodes.push(parent);
  }
  if (kind === 'unlink-files' || kind === 'unlink-fenced') inodes.push(...parentsOf(files));
  return { volumes, inodes };
}

/** Returns the directories of directory entries, each once; a file is in the volume of its directory. */
function parentsOf(files: unknown): ReadonlySet<number> {
  const places = Array.isArray(files) ? (files as unknown[]) : [];
  const parents = places.map((place) => (place as { readonly parent?: unknown } | null)?.parent);
  return new Set(parents.filter((parent) => typeof parent === 'number'));
}

function kindIn(body: unknown, name: 'command' | 'query'): string | null {
  const kind = objectIn(body, name)?.kind;
  return typeof kind === 'string' ? kind : null;
}

function objectIn(body: unknown, name: 'command' | 'query'): Readonly<Record<string, unknown>> | null {
  if (typeof body !== 'object' || body === null) return null;
  const value = (body as Readonly<Record<string, unknown>>)[name];
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : null;
}
