import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { catalogCell } from '../../../base/ids.ts';
import { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import { RealCluster, until } from '../../../test/cluster/real-cluster.ts';
import { systemWorld } from '../../../world/system-world.ts';
import type { Wanted } from '../arguments.ts';
import { LightLoad, readOf } from '../light-load.ts';
import { type Idle, idleOf, quiet } from '../measures.ts';
import { createOwnVolumes, type OwnVolume } from '../own-volumes.ts';
import type { Report } from '../report.ts';
import { cpuBetween, cpuOf } from '../servers.ts';

const SERVERS = 30;
const VOLUMES_FULL = 300;
const IDLE_PART_MAX = 0.02;
const MEMBERS = 3;
const MS_PER_MINUTE = 60_000;
const KIB = 1_024;
/** What a server may take, and what is left to the machine. */
const SERVER_MIB = 300;
const SPARED_MIB = 1_024;
/** Parts of the time after which no more volumes are created, and no more servers are killed. */
const CREATED_PART = 0.4;
const KILLED_PART = 0.8;
/** Longer than a lease: others become primaries of what the servers had. */
const AWAY_MS = 12_000;
const UNAVAILABLE_MS = 5_000;
const DRAIN_MS_MAX = 600_000;

/**
 * Many servers, and many volumes with catalogs of their own, on one machine: what they cost without clients, and
 * whether all is there after servers were killed, drained and added under a light load.
 */
export async function manySection(wanted: Wanted, report: Report): Promise<void> {
  const servers = wanted.servers ?? SERVERS;
  assertMemoryFor(servers);
  const beganMs = performance.now();
  const untilPart = (part: number): number => beganMs + part * wanted.minutes * MS_PER_MINUTE;
  const cluster = await RealCluster.start({ servers, lease: '5s' });
  try {
    report.note(`${servers} servers are ready after ${secondsSince(beganMs)} s`);
    await quiet(cluster, cluster.ids);
    const before = await idleOf(cluster, cluster.ids, wanted.idleS);
    const volumes = await create(cluster, wanted.volumes, untilPart(CREATED_PART), report);
    await quiet(cluster, cluster.ids);
    const after = await idleOf(cluster, cluster.ids, wanted.idleS);
    showIdle(report, { servers, volumes: volumes.length, before, after });
    showDisk(report, cluster, volumes);
    const load = new LightLoad(cluster, volumes);
    const killed = await disturb(cluster, load, untilPart(KILLED_PART), report);
    await joinAndDrain(cluster, report);
    await load.end();
    const missing = await load.missing(cluster.ids);
    report.row(
      `${load.acknowledged.length} acknowledged files after ${killed} kills, a join and a drain`,
      `${missing} are missing; ${load.failed} requests were not acknowledged`,
      '0',
      missing === 0 && load.acknowledged.length > 0,
    );
  } finally {
    await cluster.stop();
  }
}

function assertMemoryFor(servers: number): void {
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1];
  const mib = Number(kib) / KIB;
  const needed = servers * SERVER_MIB + SPARED_MIB;
  if (mib < needed)
    throw new Error(`${servers} servers may need ${needed} MiB; ${mib.toFixed(0)} are available`);
}

async function create(
  cluster: RealCluster,
  wanted: number,
  untilMs: number,
  report: Report,
): Promise<readonly OwnVolume[]> {
  const beganMs = performance.now();
  const cpu = cpuOf(cluster, cluster.ids);
  const volumes: OwnVolume[] = [];
  while (volumes.length < wanted && performance.now() < untilMs)
    volumes.push(...(await createOwnVolumes(cluster, [`v${volumes.length + 1}`])));
  const { all } = cpuBetween(cpu, cpuOf(cluster, cluster.ids));
  const times = volumes.map(({ firstFileMs }) => firstFileMs).toSorted((a, b) => a - b);
  report.row(
    `${volumes.length} of ${wanted} volumes with their own catalogs are created`,
    `${secondsSince(beganMs)} s; from the command to the first file: median ` +
      `${times[Math.floor(times.length / 2)]?.toFixed(0)} ms, at most ${times.at(-1)?.toFixed(0)} ms; ` +
      `${(all / volumes.length).toFixed(0)} ms of processor of all servers for one`,
    `${wanted}`,
    volumes.length === wanted,
  );
  return volumes;
}

interface Costs {
  readonly servers: number;
  readonly volumes: number;
  readonly before: Idle;
  readonly after: Idle;
}

function showIdle(report: Report, { servers, volumes, before, after }: Costs): void {
  const percent = (part: number): string => `${(part * 100).toFixed(2)} %`;
  const members = (volumes * Math.min(MEMBERS, servers)) / servers;
  report.row(
    `idle: processor of a server with ${volumes} catalogs, of which it has ${members.toFixed(0)}`,
    `mean ${percent(after.meanPart)} of a core, at most ${percent(after.largestPart)}; ` +
      `before they were created ${percent(before.meanPart)}`,
    percent(IDLE_PART_MAX),
    volumes >= VOLUMES_FULL ? after.meanPart <= IDLE_PART_MAX : null,
  );
  const added = ((after.meanPart - before.meanPart) * servers) / volumes;
  report.row('idle: processor of all servers for one catalog', `${percent(added)} of a core`);
  const mib = (after.memoryMiB - before.memoryMiB) / members;
  report.row(
    'memory of a server for one catalog of which it has a replica',
    `${mib.toFixed(1)} MiB (${before.memoryMiB} MiB before, ${after.memoryMiB} MiB after)`,
  );
}

function showDisk(report: Report, cluster: RealCluster, volumes: readonly OwnVolume[]): void {
  const sizes = cluster.ids.flatMap((id) =>
    volumes.flatMap(({ catalog }) => {
      const folder = join(cluster.data(id), 'catalogs', String(catalogCell(catalog)));
      const files = ['catalog.db', 'catalog.db-wal'].map((name) => statSync(join(folder, name), QUIETLY));
      const bytes = files.reduce((sum, file) => sum + (file?.size ?? 0), 0);
      return bytes === 0 ? [] : [bytes];
    }),
  );
  const mean = sizes.reduce((sum, bytes) => sum + bytes, 0) / sizes.length;
  report.row('disk of a replica of an almost empty catalog', `${(mean / KIB).toFixed(0)} KiB`);
}

const QUIETLY = { throwIfNoEntry: false } as const;

/**
 * Kills a majority of the servers of one file, again and again: the file is unavailable, and is there after the start
 * of the servers.
 * @returns the number of kills
 */
async function disturb(
  cluster: RealCluster,
  load: LightLoad,
  untilMs: number,
  report: Report,
): Promise<number> {
  await until('a file is acknowledged', async () => load.acknowledged.length > 0);
  let [kills, rounds, answered, lost] = [0, 0, 0, 0];
  while (rounds === 0 || performance.now() < untilMs) {
    const files = load.acknowledged;
    const file = files[(rounds * 7919) % files.length] as (typeof files)[number];
    const { replicas } = await cluster.info(cluster.ids[0] as string, `${file.volume.name}/${file.number}`);
    const away = replicas.slice(0, Math.floor(replicas.length / 2) + 1).map(({ server }) => server);
    for (const id of away) await cluster.kill(id);
    kills += away.length;
    const asked = cluster.ids.find((id) => cluster.isRunning(id)) as string;
    // Until its lease ends, the file's primary may answer alone.
    await delay(AWAY_MS);
    if ((await readOf(cluster, asked, file, UNAVAILABLE_MS)) !== 'unavailable') answered += 1;
    for (const id of away) cluster.spawn(id);
    await cluster.ready(away);
    const isBack = async (): Promise<boolean> => (await readOf(cluster, asked, file)) !== 'unavailable';
    await until('the file is available', isBack);
    if ((await readOf(cluster, asked, file)) === null) lost += 1;
    rounds += 1;
  }
  report.row(
    `${rounds} times, a majority of a file's servers is killed, and started again`,
    `${answered} files were answered without a majority, ${lost} were gone afterwards`,
    '0',
    answered === 0 && lost === 0,
  );
  return kills;
}

async function joinAndDrain(cluster: RealCluster, report: Report): Promise<void> {
  const beganMs = performance.now();
  await cluster.join('joined', [cluster.ids[0] as string]);
  report.row('a server joins', `ready after ${secondsSince(beganMs)} s`);
  const id = cluster.ids.at(-1) as string;
  await using client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const drainedMs = performance.now();
  await client.command({ kind: 'server-state', id, state: 'draining' });
  const replicasLeft = async (): Promise<number> => {
    const { servers } = await client.query({ kind: 'servers', counts: true });
    return servers.find((server) => server.id === id)?.replicas ?? 0;
  };
  await until('the drained server has no replicas', async () => (await replicasLeft()) === 0, DRAIN_MS_MAX);
  report.row('a server is drained', `without replicas of files after ${secondsSince(drainedMs)} s`);
  await client.command({ kind: 'server-state', id, state: 'in' });
}

function secondsSince(ms: number): string {
  return ((performance.now() - ms) / 1_000).toFixed(1);
}
