import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { type CatalogNumber, catalogCell } from '../../../../base/ids.ts';
import { dumpCatalog } from '../../../../catalog/dump.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import { CATALOGS, folderOfCatalog } from '../../../../server/catalog/catalog-disk.ts';
import { PLAN_MS } from '../../../../server/membership/open-plans.ts';
import type { Finding } from '../../../../wire/http-api.ts';
import type { ListedCatalog } from '../../../../wire/volume-catalogs.ts';
import { assertSound } from '../../../catalog/soundness.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { GRACE_MS } from '../simulated-cluster.ts';
import type { Passing } from '../simulated-http.ts';
import type { SimulatedServer } from '../simulated-server.ts';
import { readDatabaseCopy } from './database-copy.ts';
import { RequestTable } from './request-table.ts';

/**
 * The time for settling, catching up, moving, sweeping and collecting to end. The longest case: an interrupted change
 * of members is resumed after a time, and what it left is removed after another one.
 */
const CONVERGE_MS_MAX = PLAN_MS + 4 * GRACE_MS;
/** The time limit of the judge's own requests. */
const ASK_MS_MAX = 60_000;
const LOOK_MS = 4_000;
/** The catalog's unlink time of an inode that a snapshot shows. */
const HELD_NS = 2n ** 63n - 1n;
const CALL = { timeoutMs: 60_000 } as const;
const QUIET_MS = 10_000;
/** The most requests that an idle server makes in a second. */
const QUIET_REQUESTS_MAX = 0.5;
/** More for each volume's catalog: a server reads its log of deletions twice in the grace time. */
const QUIET_OF_CATALOG = 2_500 / GRACE_MS;
/** Gauges that are zero on each idle server. */
const ZERO = [
  ...['uploads', 'downloads', 'named_leases', 'named_lease_watches', 'named_recovering_seconds'],
  ...['recovering_seconds', 'replicas_in_use', 'under_replicated_files', 'lag_files', 'lag_bytes'],
  ...['view_conflicts', 'scrub_unrepairable_objects', 'cache_sessions'],
].map((name) => `leasehold_${name}`);

interface Replica {
  readonly sizeBytes: number;
  /** Its position, view, and versions and checksums of its objects. */
  readonly text: string;
}

interface Placed {
  readonly inode: number;
  /** Null if it may be another one. */
  readonly size: number | null;
  readonly members: readonly string[];
  readonly hasContents: boolean;
}

/** Reserved numbers of files that may still get a name: their contents come before their names. */
interface Reserved {
  readonly first: number;
  readonly last: number;
  /** Servers that have the files, separated by commas. */
  readonly members: string;
}

/**
 * After healing everything becomes idle, equal and empty: the members of each catalog agree and are sound; each server
 * has exactly the replicas that the catalogs place there, or have reserved numbers for, of the size in the catalog; no
 * file is live or left to be collected; nothing is left of removed volumes; and `leasehold check` and `leasehold
 * status` find nothing. Then servers make hardly any requests.
 */
export class ConvergenceJudge implements Judge {
  async quiet(run: Run): Promise<void> {
    const { cluster } = run;
    const { time, http, servers } = cluster;
    const limitMs = CONVERGE_MS_MAX + ASK_MS_MAX;
    const lost: LostContents = new Set();
    const failure = await cluster.program('convergence', (client) => converge(run, client, lost), limitMs);
    if (failure !== null) run.violation(`the cluster cannot be asked whether it has converged: ${failure}`);
    const table = new RequestTable(time.nowMs);
    const ids = new Map(servers.map(({ origin, id }) => [origin, id]));
    http.watch = (request) => {
      if (!isOfLost(request, lost)) table.add(request, ids.get(request.origin) ?? request.origin, time.nowMs);
    };
    await time.run(time.nowMs + QUIET_MS);
    http.watch = null;
    const perSecond = (table.count * 1_000) / QUIET_MS;
    const catalogs = time.asHost(() => listedIn(servers, cluster.serverIds)).length;
    if (perSecond > (QUIET_REQUESTS_MAX + catalogs * QUIET_OF_CATALOG) * servers.length)
      run.violation(`the idle cluster makes ${perSecond.toFixed(1)} requests in a second\n${table.text}`);
  }
}

/**
 * Files whose contents in the catalog were lost with the power of all servers. They stay live until their next write,
 * and settling them fails ever less often.
 */
type LostContents = Set<number>;

function isOfLost({ path, body }: Passing, lost: LostContents): boolean {
  const settled = /^\/v1\/data\/(\d+)\/settle(\?|$)/.exec(path)?.[1];
  if (settled !== undefined) return lost.has(Number(settled));
  if (path !== '/v1/catalog/commands' || !body.includes('"kind":"settle"')) return false;
  return [...body.matchAll(/"inode":(\d+)/g)].every(([, inode]) => lost.has(Number(inode)));
}

/** A finding, in several checks. */
interface Left {
  what: string;
  readonly fromMs: number;
  toMs: number;
}

/** Waits until there is no finding. What is left after the longest time is a violation each. */
async function converge(run: Run, client: ClusterClient, lost: LostContents): Promise<void> {
  const { world } = client;
  const beganMs = world.nowMs();
  const seen = new Map<string, Left>();
  for (;;) {
    const left = [...new Set(await leftOf(run, client, lost))];
    const atMs = world.nowMs() - beganMs;
    run.note(`left to be done: ${left.join('; ')}`);
    if (left.length === 0) return run.count('converged');
    for (const what of left) {
      // The name of a gauge, without its value.
      const key = what.replace(/(leasehold_\S+) \S+$/, '$1');
      const before = seen.get(key);
      if (before === undefined) seen.set(key, { what, fromMs: atMs, toMs: atMs });
      else Object.assign(before, { what, toMs: atMs });
    }
    if (atMs > CONVERGE_MS_MAX) return notConverged(run, seen, atMs);
    await world.sleep(LOOK_MS);
  }
}

/** @param seen the findings of all checks, the last of which was at `nowMs` */
function notConverged(run: Run, seen: ReadonlyMap<string, Left>, nowMs: number): void {
  const all = [...seen.values()];
  const time = ({ fromMs, toMs }: Left): string =>
    `from ${(fromMs / 1_000).toFixed(1)} to ${(toMs / 1_000).toFixed(1)} s`;
  const inUse = run.cluster.servers.flatMap(({ id, filesInUse }) =>
    filesInUse.map((line) => `${id}: ${line}`),
  );
  // A finding of the last check may have begun just then, as the end of a longer one.
  const earlier = all.filter(({ toMs }) => toMs < nowMs).map((one) => `${one.what}, ${time(one)}`);
  const details = [...inUse, ...earlier].map((line) => `\n  ${line}`).join('');
  for (const one of all)
    if (one.toMs === nowMs) run.violation(`not converged: ${one.what}, ${time(one)}${details}`);
}

/** @returns findings as text, of the first of several checks that has any */
async function leftOf(run: Run, client: ClusterClient, lost: LostContents): Promise<string[]> {
  const { verdict, reasons, catalog, moving } = await client.status(CALL);
  const left = verdict === 'healthy' ? [] : [`the cluster is ${verdict}: ${reasons.join('; ')}`];
  if (moving !== undefined && moving.current.length > 0)
    left.push(`${moving.current.length} files are moved`);
  const servers = run.cluster.servers.filter((server) => server.runs);
  left.push(...(await busyOf(run, servers)));
  if (left.length > 0) return left;
  const isWhole = run.cluster.lossesNs.length === 0;
  left.push(...(await findingsOf(client, isWhole ? null : lost)));
  if (left.length > 0) return left;
  return run.cluster.time.asHost(() => disagreementsOf(servers, catalog.members, isWhole, lost));
}

/** @param lost gets the files that have lost contents; null if no file may have */
async function findingsOf(client: ClusterClient, lost: LostContents | null): Promise<string[]> {
  const found: Finding[] = [];
  lost?.clear();
  const unreachable = new Set<string>();
  for (let after: number | null = 0; after !== null; ) {
    const page = await client.admin.check(after, CALL);
    for (const finding of page.findings) {
      if (lost !== null && finding.kind === 'catalog-ahead') lost.add(finding.file);
      else found.push(finding);
    }
    for (const server of page.unreachable) unreachable.add(server);
    after = page.next;
  }
  return [
    ...found.map(({ file, server, kind, what }) => `check: file ${file} at ${server}, ${kind}: ${what}`),
    ...[...unreachable].map((server) => `check: ${server} does not answer`),
  ];
}

/** @returns the gauges that are not zero */
async function busyOf(run: Run, servers: readonly SimulatedServer[]): Promise<string[]> {
  const { http, nemesis } = run.cluster;
  const texts = await Promise.all(
    servers.map(async ({ id, origin }) => {
      const channel = http.channel(nemesis, 'judge', origin);
      const { body } = await channel.request({ method: 'GET', path: '/metrics' });
      return { id, text: await body.text() };
    }),
  );
  return texts.flatMap(({ id, text }) =>
    text.split('\n').flatMap((line) => {
      const [, name = '', value = ''] = /^(\w+)(?:\{.*\})? (\S+)$/.exec(line) ?? [];
      return ZERO.includes(name) && Number(value) !== 0 ? [`${id}: ${line}`] : [];
    }),
  );
}

/** @param members servers that have the root catalog */
function disagreementsOf(
  servers: readonly SimulatedServer[],
  members: readonly string[],
  isWhole: boolean,
  lost: LostContents,
): string[] {
  const root: CatalogReplicas = { what: 'the catalog', path: 'catalog.db', members };
  const serving = listedIn(servers, members);
  const found = [root, ...serving.map(replicasOf)].map((catalog) =>
    contentsOf(servers, catalog, isWhole, lost),
  );
  const placed = found.flatMap((one) => one.placed);
  const reserved = found.flatMap((one) => one.reserved);
  return [
    ...found.flatMap(({ left }) => left),
    ...serving.flatMap(({ name, state }) => (state === 'ready' ? [] : [`volume "${name}" is ${state}`])),
    ...foldersLeft(servers, serving),
    ...misplacedOf(servers, placed, reserved),
  ];
}

/** A volume's catalog in the list of the root catalog. */
interface Listed extends Pick<ListedCatalog, 'name' | 'state'> {
  readonly number: CatalogNumber;
  readonly members: readonly string[];
}

/** @returns volumes' catalogs that are not removed, in the root catalog of the first of the members */
function listedIn(servers: readonly SimulatedServer[], members: readonly string[]): Listed[] {
  const member = servers.find(({ id }) => members.includes(id));
  if (member === undefined) return [];
  return readDatabaseCopy<Listed[]>(member.disk.folder, 'catalog.db', [], (database) => {
    const rows = database
      .prepare("SELECT number, name, state, members FROM volume_catalogs WHERE state <> 'removed'")
      .all();
    return (rows as (Omit<Listed, 'members'> & { readonly members: string })[]).map((row) => ({
      ...row,
      members: row.members.split(','),
    }));
  });
}

interface CatalogReplicas {
  readonly what: string;
  /** Of its database, in the data folder of each member. */
  readonly path: string;
  readonly members: readonly string[];
}

function replicasOf({ number, name, members }: Listed): CatalogReplicas {
  return { what: `the catalog of volume "${name}"`, path: `${folderOf(number)}/catalog.db`, members };
}

const folderOf = (number: CatalogNumber): string => folderOfCatalog(catalogCell(number)).join('/');

/** What a catalog says, and what is wrong with its replicas. */
function contentsOf(
  servers: readonly SimulatedServer[],
  { what, path, members }: CatalogReplicas,
  isWhole: boolean,
  lost: LostContents,
): { readonly left: string[]; readonly placed: readonly Placed[]; readonly reserved: readonly Reserved[] } {
  const left: string[] = [];
  const texts = new Map<string, string[]>();
  let placed: readonly Placed[] = [];
  let reserved: readonly Reserved[] = [];
  for (const { id, disk } of servers) {
    if (!members.includes(id)) continue;
    const text = readDatabaseCopy(disk.folder, path, null, (database) => {
      left.push(...unsettledIn(database, lost).map((one) => `${what}: ${one}`));
      placed = placedIn(database, isWhole);
      reserved = database.prepare('SELECT first, last, members FROM reserved').all() as Reserved[];
      return [...dumpCatalog(database)].join('\n');
    });
    if (text === null) left.push(`${what}: ${id} has no replica`);
    else texts.set(text, [...(texts.get(text) ?? []), id]);
  }
  if (texts.size !== 1) {
    const holders = [...texts.values()].map((ids) => ids.join()).join(' and ');
    left.push(`${what}: the replicas of ${holders} differ`);
  }
  return { left, placed, reserved };
}

/** @returns replicas of volumes' catalogs on servers that are no members */
function foldersLeft(servers: readonly SimulatedServer[], serving: readonly Listed[]): string[] {
  return servers.flatMap(({ id, disk }) => {
    const parent = join(disk.folder, CATALOGS);
    if (!existsSync(parent)) return [];
    const own = new Set(
      serving.filter(({ members }) => members.includes(id)).map(({ number }) => folderOf(number)),
    );
    return readdirSync(parent)
      .filter((name) => !own.has(`${CATALOGS}/${name}`))
      .map((name) => `${id} has a replica of catalog ${name}, and is no member`);
  });
}

const WAITING: Readonly<Record<string, string>> = {
  'files are live': 'SELECT id FROM inodes WHERE live = 1 AND orphaned_ns IS NULL',
  'files may grow': 'SELECT id FROM inodes WHERE allowed > size',
  // What snapshots show is kept for ever.
  'inodes wait to be collected': `SELECT id FROM inodes WHERE orphaned_ns < ${HELD_NS} AND id NOT IN (SELECT inode FROM trash)`,
};

/** @returns the errors in a catalog, whose counters must equal a recount, and what waits in it */
function unsettledIn(database: Database.Database, lost: LostContents): string[] {
  const left = Object.entries(WAITING).flatMap(([what, query]) => {
    const rows = (database.prepare(query).pluck().all() as number[]).filter((file) => !lost.has(file));
    return rows.length === 0 ? [] : [`${what}: ${rows.slice(0, 5).join()}`];
  });
  try {
    assertSound(database);
  } catch (error) {
    left.push(`it is unsound: ${(error as Error).message}`);
  }
  return left;
}

/**
 * @returns the files of the catalog with a number of their own. A file that preserves the contents of another one has
 * the replicas of that file: if the primary has ended meanwhile, it waits for the next change of that file.
 */
function placedIn(database: Database.Database, isWhole: boolean): Placed[] {
  const rows = database
    .prepare(
      `SELECT inodes.id AS inode, inodes.size, inodes.live, inodes.replicas = '' AS isWaiting, inodes.contents_seq AS seq,
         CASE inodes.replicas WHEN '' THEN coalesce(preserved.replicas, '') ELSE inodes.replicas END AS replicas
       FROM inodes LEFT JOIN inodes AS preserved ON preserved.preserving = inodes.id
       WHERE inodes.kind = 1 ORDER BY inodes.id`,
    )
    .all() as (Record<'inode' | 'size' | 'live' | 'seq' | 'isWaiting', number> & { replicas: string })[];
  return rows.map(({ inode, size, live, replicas, seq, isWaiting }) => ({
    ...{ inode, size: live === 1 || isWaiting === 1 || !isWhole ? null : size },
    hasContents: seq > 0 && isWaiting === 0,
    members: replicas.split(',').filter((one) => one !== ''),
  }));
}

/** @returns replicas that are missing, of another size, or in excess */
function misplacedOf(
  servers: readonly SimulatedServer[],
  placed: readonly Placed[],
  reserved: readonly Reserved[],
): string[] {
  const stores = new Map(servers.map(({ id, disk }) => [id, replicasIn(disk.folder)]));
  const left: string[] = [];
  for (const { inode, size, members, hasContents } of placed) {
    const texts = new Set<string>();
    for (const member of members) {
      const replica = stores.get(member)?.get(inode);
      if (replica === undefined) {
        if (hasContents) left.push(`${member} has no replica of file ${inode}`);
        continue;
      }
      stores.get(member)?.delete(inode);
      texts.add(replica.text);
      if (size !== null && replica.sizeBytes !== size)
        left.push(`file ${inode} has ${size} bytes in the catalog, and ${replica.sizeBytes} at ${member}`);
    }
    if (texts.size > 1)
      left.push(`the replicas of file ${inode} at ${members.join()} differ: ${[...texts].join(' / ')}`);
  }
  // Replicas of a file without a name stay until its number is void, which takes longer than a run.
  const isAwaited = (file: number, id: string): boolean =>
    reserved.some(
      ({ first, last, members }) => first <= file && file <= last && members.split(',').includes(id),
    );
  for (const [id, rest] of stores)
    for (const file of rest.keys())
      if (!isAwaited(file, id)) left.push(`${id} has a replica of file ${file}, which has none there`);
  return left;
}

function replicasIn(folder: string): Map<number, Replica> {
  return readDatabaseCopy(folder, 'index.db', new Map<number, Replica>(), (database) => {
    const rows = database
      .prepare(
        `SELECT file, view, seq, size_bytes AS sizeBytes, (
           SELECT group_concat(idx || ':' || version_epoch || '.' || version_seq || ':' || length || ':' || crc32, ' ')
           FROM (SELECT * FROM objects WHERE objects.file = files.file ORDER BY idx)) AS objects
         FROM files WHERE file > 0`,
      )
      .all() as { file: number; view: string; seq: number; sizeBytes: number; objects: string }[];
    return new Map(
      rows.map(({ file, view, seq, sizeBytes, objects }) => [
        file,
        { sizeBytes, text: `operation ${seq}, ${sizeBytes} bytes, ${view}, objects ${objects}` },
      ]),
    );
  });
}
