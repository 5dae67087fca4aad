import { ServiceError } from '../../base/errors.ts';
import type {
  CommandOf,
  CommandResults,
  PlanMark,
  PlanOutcome,
  ServerInfo,
  Voters,
} from '../../wire/catalog-api.ts';
import { joinList, splitList } from '../lists.ts';
import { KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf } from '../tree.ts';
import { refuseLeavingPlan } from './catalog-lifecycle.ts';
import { notFilled } from './clones.ts';
import { refuseNotLeft } from './volume-catalogs.ts';

const FIRST_INODE = 1;
/** Fields that the list of servers has, see `ListedServer`. */
const LISTED = ['id', 'url', 'zone', 'labels', 'state', 'maintenanceNs'] as const;
/** Number of the cluster's initial voters' view. */
const FIRST_VOTERS = 1;

/** Stores what a server reports of itself. A removed one stays removed: other servers may have replaced its files. */
export function serverRegister(
  tables: Tables,
  command: CommandOf<'server-register'>,
  atNs: string,
): CommandResults['server-register'] {
  const { id, url, storageId, freeBytes, totalBytes } = command;
  const before = tables.servers.server(id);
  if (before?.state === 'out') return { server: before };
  const { isRoot } = tables.own;
  if (!isRoot && before === undefined)
    throw new ServiceError('busy', `This catalog does not know server ${id} yet: retry later`);
  if (tables.servers.isRetired(storageId)) {
    throw new ServiceError(
      'precondition-failed',
      `Server ${id} has run with another data folder since: what it acknowledged there is not in this one`,
    );
  }
  refuseTakenUrl(tables, id, url);
  if (before !== undefined && before.storageId !== '' && before.storageId !== storageId)
    tables.servers.retireStore(before.storageId);
  const server: ServerInfo = {
    id,
    url,
    // A volume's catalog follows the root in all but what the server alone knows.
    zone: (isRoot ? command.zone : undefined) ?? before?.zone ?? '',
    state: before?.state ?? 'in',
    storageId,
    bornAt: firstFileOfStore(tables, before, storageId),
    freeBytes,
    totalBytes,
    registeredNs: atNs,
    ...(before?.labels === undefined ? {} : { labels: before.labels }),
    ...(before?.maintenanceNs === undefined ? {} : { maintenanceNs: before.maintenanceNs }),
  };
  store(tables, before, server);
  const { catalogs } = tables;
  if (!isRoot || !catalogs.isVersioned) return { server };
  if (before?.storageId !== storageId) catalogs.storeChanged(id);
  return { server, catalogsVersion: catalogs.version, storedAt: catalogs.storedAt(id) };
}

/** Stores a server. What volumes' catalogs have to know of it gets the next version of the list. */
function store(tables: Tables, before: ServerInfo | undefined, server: ServerInfo): void {
  tables.servers.put(server);
  const isChanged = LISTED.some((field) => before?.[field]?.toString() !== server[field]?.toString());
  if (isChanged && tables.own.isRoot && tables.catalogs.isVersioned) tables.catalogs.serverChanged(server.id);
}

/** Next inode number when the server's present store replaced another one; 1 if it replaced none. */
function firstFileOfStore(tables: Tables, before: ServerInfo | undefined, storageId: string): number {
  if (before === undefined || before.storageId === '') return FIRST_INODE;
  return before.storageId === storageId ? before.bornAt : tables.numbers.next();
}

export function serverAdd(
  tables: Tables,
  command: CommandOf<'server-add'>,
  atNs: string,
): CommandResults['server-add'] {
  const { id, url } = command;
  const before = tables.servers.server(id);
  if (before !== undefined && before.state !== 'out') {
    throw new ServiceError('exists', `There is a server ${id} already, at ${before.url}`);
  }
  refuseTakenUrl(tables, id, url);
  tables.deletions.setKept(id, true);
  const server: ServerInfo = {
    id,
    url,
    zone: command.zone ?? before?.zone ?? '',
    state: 'in',
    storageId: before?.storageId ?? '',
    bornAt: before?.bornAt ?? FIRST_INODE,
    freeBytes: 0,
    totalBytes: 0,
    registeredNs: atNs,
    ...(before?.labels === undefined ? {} : { labels: before.labels }),
  };
  store(tables, before, server);
  return { server };
}

export function serverState(
  tables: Tables,
  command: CommandOf<'server-state'>,
): CommandResults['server-state'] {
  const before = serverOf(tables, command.id);
  if (before.state === 'out') {
    throw new ServiceError(
      'precondition-failed',
      `Server ${before.id} is removed: add it to let it in again`,
    );
  }
  const server = { ...before, state: command.state };
  store(tables, before, server);
  return { server };
}

export function serverZone(tables: Tables, command: CommandOf<'server-zone'>): CommandResults['server-zone'] {
  const before = serverOf(tables, command.id);
  const server = { ...before, zone: command.zone };
  store(tables, before, server);
  return { server };
}

export function serverLabel(
  tables: Tables,
  { id, labels }: CommandOf<'server-label'>,
): CommandResults['server-label'] {
  const { labels: _, ...unlabelled } = serverOf(tables, id);
  const sorted = splitList(joinList(labels));
  const server = { ...unlabelled, ...(sorted.length === 0 ? {} : { labels: sorted }) };
  store(tables, serverOf(tables, id), server);
  return { server };
}

/** Begins or ends maintenance. The end is a time of the catalog's clock, so that every primary knows it. */
export function serverMaintenance(
  tables: Tables,
  { id, forMs }: CommandOf<'server-maintenance'>,
  atNs: string,
): CommandResults['server-maintenance'] {
  const before = serverOf(tables, id);
  const { maintenanceNs: _, ...withoutMaintenance } = before;
  if (forMs !== null && before.state === 'out')
    throw new ServiceError('precondition-failed', `Server ${id} is removed`);
  const until = forMs === null ? {} : { maintenanceNs: String(BigInt(atNs) + BigInt(forMs) * 1_000_000n) };
  const server = { ...withoutMaintenance, ...until };
  store(tables, before, server);
  return { server };
}

export function clusterSet(
  tables: Tables,
  { catalogReplicas }: CommandOf<'cluster-set'>,
): CommandResults['cluster-set'] {
  if (typeof catalogReplicas === 'number' && catalogReplicas % 2 === 0)
    throw new ServiceError(
      'bad-request',
      `"catalogReplicas" must be 3, 5 or 7: ${catalogReplicas} replicas survive no more failures than ${catalogReplicas - 1}`,
    );
  if (catalogReplicas !== undefined) tables.servers.setSettings({ catalogReplicas });
  return { settings: tables.servers.settings() };
}

export function serverRemove(
  tables: Tables,
  command: CommandOf<'server-remove'>,
): CommandResults['server-remove'] {
  const before = serverOf(tables, command.id);
  if (!command.dead && tables.placements.hasFiles(before.id)) {
    throw new ServiceError(
      'precondition-failed',
      `Server ${before.id} holds or is to hold replicas of ${tables.placements.count(before.id)} files: drain it first`,
    );
  }
  if (!command.dead && tables.clones.areCopiedTo(before.id)) {
    throw new ServiceError(
      'busy',
      `Server ${before.id} is copying files of a clone: they get their other servers when that has ended`,
    );
  }
  if (!command.dead && isNeededVoter(tables, before.id)) {
    throw new ServiceError(
      'precondition-failed',
      `Server ${before.id} is needed to decide named leases: drain it, and wait until others vote in its place`,
    );
  }
  if (!command.dead) refuseNotLeft(tables, before);
  const server: ServerInfo = { ...before, state: 'out' };
  store(tables, before, server);
  tables.deletions.setKept(before.id, false);
  return { server };
}

/** Whether removing this server leaves some lease name without a majority of its voters. */
function isNeededVoter(tables: Tables, id: string): boolean {
  const { members, joint } = tables.servers.voters() ?? {};
  return [members, joint].some((set) => {
    if (set === undefined || !set.servers.includes(id)) return false;
    const missing = set.servers.filter(
      (voter) => voter === id || tables.servers.server(voter)?.state === 'out',
    );
    return missing.length > Math.floor((Math.min(set.perCell, set.servers.length) - 1) / 2);
  });
}

/** A server has finished with the rows of its log up to `through`. */
export function trimDeletions(
  tables: Tables,
  { server, through }: CommandOf<'trim-deletions'>,
): CommandResults['trim-deletions'] {
  tables.deletions.trim(server, through);
  return {};
}

/** Stores a file's newer view. Skips deleted files: a primary may learn of that later than it changes the view. */
export function followView(tables: Tables, command: FollowedFile): CommandResults['follow-view'] {
  const { number, members } = command.view;
  if (new Set(members).size !== members.length) {
    throw new ServiceError('bad-request', 'A view names each of its members once');
  }
  const inode = tables.inode(command.inode);
  if (inode === undefined || inode.kind !== KIND_FILE || number <= inode.view) return { followed: false };
  // It has no replicas: what a server reports is of a file that it does not know to be a clone's.
  if (inode.shared === 1) return { followed: false };
  tables.inodes.setView(inode, number, members.join(','));
  return { followed: true };
}

/** Stores servers that a change may make members, so that none is removed meanwhile. A later plan or view counts. */
export function planMembers(
  tables: Tables,
  { inode: id, view, mark, members }: PlannedFile,
): CommandResults['plan-members'] {
  const inode = inodeOf(tables, id);
  if (inode.kind !== KIND_FILE) throw new ServiceError('bad-request', `Inode ${id} is no file`);
  if (inode.shared === 1) throw notFilled(inode);
  if (new Set(members).size !== members.length)
    throw new ServiceError('bad-request', 'A plan names each of its servers once');
  const out = members.find((member) => tables.servers.server(member)?.state === 'out');
  if (out !== undefined) throw new ServiceError('precondition-failed', `Server ${out} is removed`);
  const before = tables.placements.planOf(id);
  const isLater = before === null || comparePlans(mark, before.mark) >= 0;
  if (!isLater || view < inode.view) return { planned: before?.servers ?? [] };
  refuseLeavingPlan(tables, members, [...inode.replicas.split(','), ...(before?.servers ?? [])]);
  // Replaces the earlier plan: the primary of `mark` has committed `view`, so no earlier change is under way.
  tables.placements.plan(id, members, view, mark);
  return { planned: members };
}

export function followViews(
  tables: Tables,
  { files }: CommandOf<'follow-views'>,
): CommandResults['follow-views'] {
  return { followed: files.map((file) => followView(tables, file).followed) };
}

export function planFiles(tables: Tables, { files }: CommandOf<'plan-files'>): CommandResults['plan-files'] {
  const plans = files.map((file): PlanOutcome => {
    try {
      return planMembers(tables, file);
    } catch (error) {
      // It is thrown before anything is changed.
      if (error instanceof ServiceError) return { code: error.code, message: error.message };
      throw error;
    }
  });
  return { plans };
}

type FollowedFile = Omit<CommandOf<'follow-view'>, 'kind'>;
type PlannedFile = Omit<CommandOf<'plan-members'>, 'kind'>;

function comparePlans(a: PlanMark, b: PlanMark): number {
  return a.epoch - b.epoch || a.turn - b.turn;
}

/** Stores the next view of named leases' voters. Numbers are consecutive, so that each means the same everywhere. */
export function setVoters(tables: Tables, { view }: CommandOf<'set-voters'>): CommandResults['set-voters'] {
  const { number, members, joint, clockMs } = view;
  const before = tables.servers.voters()?.number ?? FIRST_VOTERS;
  if (number !== before + 1) {
    throw new ServiceError('precondition-failed', `View ${number} of voters does not follow view ${before}`);
  }
  // A fixed field order, because replicas are equal byte by byte.
  const set = ({ servers, perCell }: Voters['members']): Voters['members'] => {
    if (new Set(servers).size === servers.length) return { servers, perCell };
    throw new ServiceError('bad-request', 'A set of voters names each of its servers once');
  };
  const sides = joint === undefined ? {} : { joint: set(joint) };
  tables.servers.setVoters({ number, members: set(members), ...sides, clockMs });
  return {};
}

/** Sets how many replicas a file should have; without `count`, as many as its volume has. */
export function setReplicas(
  tables: Tables,
  command: CommandOf<'set-replicas'>,
): CommandResults['set-replicas'] {
  const inode = inodeOf(tables, command.inode);
  if (inode.kind !== KIND_FILE) throw new ServiceError('bad-request', `Inode ${inode.id} is no file`);
  tables.inodes.setWanted(inode.id, command.count ?? 0);
  return {};
}

function serverOf(tables: Tables, id: string): ServerInfo {
  const server = tables.servers.server(id);
  if (server === undefined) throw new ServiceError('not-found', `There is no server ${id}`);
  return server;
}

/** Refuses the URL of another server that is not removed. */
function refuseTakenUrl(tables: Tables, id: string, url: string): void {
  const other = tables.servers.all().find((server) => server.url === url && server.id !== id);
  if (other !== undefined && other.state !== 'out') {
    throw new ServiceError('exists', `Server ${other.id} is at ${url} already`);
  }
}
