import { ServiceError } from '../../base/errors.ts';
import type { Role } from '../../wire/access.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';

/** Who may give a command: whoever has the role, or only servers among themselves. A new command needs a line here. */
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
  // Reading makes access times later, and this does no more.
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
  'server-remove': 'admin',
  'follow-view': 'server',
  'plan-members': 'server',
  'set-replicas': 'admin',
  'set-voters': 'server',
  'trash-restore': 'write',
  'trash-empty': 'write',
  'snapshot-create': 'admin',
  'snapshot-remove': 'admin',
  sweep: 'server',
};

/** Whether a query is about one volume, about all together, or about what everybody has to know. */
const QUERIES: Readonly<Record<Query['kind'], 'volume' | 'cluster' | 'everybody'>> = {
  resolve: 'volume',
  lookup: 'volume',
  attributes: 'volume',
  list: 'volume',
  xattr: 'volume',
  xattrs: 'volume',
  'volume-of': 'cluster',
  snapshots: 'volume',
  'live-files': 'volume',
  reservations: 'cluster',
  sweeps: 'cluster',
  volume: 'volume',
  // Answered with those that whoever asks may see.
  volumes: 'everybody',
  outcome: 'cluster',
  'missing-commands': 'cluster',
  existing: 'cluster',
  paths: 'cluster',
  // Without it a client would not find the servers.
  servers: 'everybody',
  voters: 'cluster',
  'files-on': 'cluster',
  'files-miscounted': 'cluster',
  plans: 'cluster',
  placed: 'cluster',
  trash: 'volume',
};

/** What a command or a query touches. */
export interface Reach {
  readonly volumes: readonly string[];
  /** Inodes, of which the catalog knows in which volume they are. */
  readonly inodes: readonly number[];
}

/** @returns who may give the command in the body of a request; null where there is none, which its handler says better */
export function commandRole(body: unknown): Role | 'server' | null {
  const kind = kindIn(body, 'command');
  return kind !== null && Object.hasOwn(COMMANDS, kind) ? COMMANDS[kind as Command['kind']] : null;
}

/** @returns kind and names of the command in the body of a request, for the log */
export function describeCommand(body: unknown): Readonly<Record<string, unknown>> {
  const { kind, id, volume, name, inode, url, state, replicas, dead } = objectIn(body, 'command') ?? {};
  return { command: kind, id, volume, name, inode, url, state, replicas, dead };
}

/** @returns what the command in the body of a request touches */
export function commandReach(body: unknown): Reach {
  return reachOf(objectIn(body, 'command') ?? {});
}

/** @returns what the query in the body of a request touches; null where everybody may ask it */
export function queryReach(body: unknown): Reach | null {
  const kind = kindIn(body, 'query');
  const rule = kind !== null && Object.hasOwn(QUERIES, kind) ? QUERIES[kind as Query['kind']] : 'cluster';
  if (rule === 'everybody') return null;
  if (rule === 'cluster') throw new ServiceError('forbidden', 'This is about all volumes together');
  return reachOf(objectIn(body, 'query') ?? {});
}

function reachOf(request: Readonly<Record<string, unknown>>): Reach {
  const volumes: string[] = [];
  const inodes: number[] = [];
  const { kind, name, place, from, to, files } = request;
  if ((kind === 'volume' || String(kind).startsWith('volume-')) && typeof name === 'string')
    volumes.push(name);
  for (const one of [request, place, from, to]) {
    const { volume, inode, parent } = (one ?? {}) as Readonly<Record<string, unknown>>;
    // A snapshot is of its volume: `volume@snapshot`.
    if (typeof volume === 'string') volumes.push(volume.replace(/@.*$/s, ''));
    if (typeof inode === 'number') inodes.push(inode);
    if (typeof parent === 'number') inodes.push(parent);
  }
  if (kind === 'unlink-files' || kind === 'unlink-fenced') inodes.push(...parentsOf(files));
  return { volumes, inodes };
}

/** @returns the directories of names, each once: what has a name is in the volume of its directory */
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
