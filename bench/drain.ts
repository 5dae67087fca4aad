/**
 * What it costs to empty a server: files per second, processor time of all servers for each moved file, and what
 * clients notice. `node bench/drain.ts [FILES] [BYTES] [--profile FOLDER]`; four servers, three replicas of each file.
 */
import { mkdirSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ClusterClient } from '../client/cluster/cluster-client.ts';
import { RealCluster, until } from '../test/cluster/real-cluster.ts';
import { systemWorld } from '../world/system-world.ts';
import { processCpuMs } from './lease/cpu.ts';
import { machineHere, machineText } from './machine.ts';

const SERVERS = 4;
const DRAINED = 's4';
const WORKERS = 16;
/** Until the files of the filling have no primary any more. */
const REST_MS = 15_000;
const IDLE_MS = 5_000;
const CHECK_MS = 100;
const DRAIN_MS_MAX = 3_600_000;
/** Pause of the client whose latency is measured, between two requests. */
const CLIENT_PAUSE_MS = 20;
const CLIENT_FILES = 10;

const { values, positionals } = parseArgs({
  options: { profile: { type: 'string' } },
  allowPositionals: true,
});
const files = Number(positionals[0] ?? 2_000);
const bytes = Number(positionals[1] ?? 2_048);
const { profile } = values;
if (profile !== undefined) mkdirSync(profile, { recursive: true });

const cluster = await RealCluster.start({
  servers: SERVERS,
  lease: '6s',
  environment: () => (profile === undefined ? {} : { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${profile}` }),
});
const admin = new ClusterClient({ world: systemWorld, servers: cluster.urls });
try {
  await cluster.createVolume('main', 3);
  await fill();
  await delay(REST_MS);
  const idle = await measured(() => delay(IDLE_MS));
  const before = await served(() => delay(IDLE_MS));
  const toMove = await replicasOnDrained();
  process.stdout.write(
    `${machineText(machineHere())}; ${files} files of ${bytes} bytes, ${toMove} to move\n`,
  );
  const drain = await served(drained);
  const idleCpu = idle.cpuMs / idle.wallMs;
  const requestCpuMs = (before.cpuMs - idleCpu * before.wallMs) / before.durationsMs.length;
  const drainCpuMs = drain.cpuMs - idleCpu * drain.wallMs - requestCpuMs * drain.durationsMs.length;
  process.stdout.write(
    `drain: ${(drain.wallMs / 1_000).toFixed(1)} s, ${((toMove * 1_000) / drain.wallMs).toFixed(1)} files/s, ` +
      `${(drainCpuMs / toMove).toFixed(2)} ms of processor for each file\n`,
  );
  process.stdout.write(`client: ${spread(before)} before, ${spread(drain)} during the drain\n`);
  if (profile !== undefined) for (const id of cluster.ids) await cluster.kill(id, 'SIGTERM');
} finally {
  await admin.close();
  await cluster.stop();
}

async function fill(): Promise<void> {
  const numbers = Array.from({ length: files }, (_, number) => number).values();
  const worker = async (): Promise<void> => {
    for (const number of numbers) await put(`f${number}`, number);
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
}

/** Repeats the request while no server takes it: the machine may have too few cores for all servers. */
async function put(name: string, place = 0): Promise<void> {
  await until(`${name} is stored`, async () => {
    await putOnce(name, place);
    return true;
  });
}

async function putOnce(name: string, place: number): Promise<void> {
  const url = cluster.url(`s${1 + (place % (SERVERS - 1))}`);
  const answer = await fetch(`${url}/v1/files/main/${name}`, {
    method: 'PUT',
    body: Buffer.alloc(bytes, name),
  });
  if (!answer.ok) throw new Error(`PUT ${name}: ${answer.status} ${await answer.text()}`);
  await answer.arrayBuffer();
}

async function replicasOnDrained(): Promise<number> {
  const { servers } = await admin.query({ kind: 'servers', counts: true });
  return servers.find(({ id }) => id === DRAINED)?.replicas ?? 0;
}

async function drained(): Promise<void> {
  await admin.command({ kind: 'server-state', id: DRAINED, state: 'draining' });
  await until(
    `${DRAINED} is drained`,
    async () => {
      await delay(CHECK_MS);
      return (await replicasOnDrained()) === 0;
    },
    DRAIN_MS_MAX,
  );
}

interface Cost {
  readonly cpuMs: number;
  readonly wallMs: number;
}

async function measured(work: () => Promise<unknown>): Promise<Cost> {
  const processes = cluster.ids.map((id) => ({ pid: cluster.pid(id) }));
  const [cpuMs, atMs] = [processCpuMs(processes), performance.now()];
  await work();
  return { cpuMs: processCpuMs(processes) - cpuMs, wallMs: performance.now() - atMs };
}

/** Measures `work` while a client replaces a file again and again. */
async function served(work: () => Promise<unknown>): Promise<Cost & { readonly durationsMs: number[] }> {
  const durationsMs: number[] = [];
  let isDone = false;
  const client = async (): Promise<void> => {
    for (let number = 0; !isDone; number++) {
      const startMs = performance.now();
      await put(`client${number % CLIENT_FILES}`);
      durationsMs.push(performance.now() - startMs);
      await delay(CLIENT_PAUSE_MS);
    }
  };
  const ended = client();
  const cost = await measured(work);
  isDone = true;
  await ended;
  return { ...cost, durationsMs: durationsMs.toSorted((a, b) => a - b) };
}

function spread({ durationsMs }: { readonly durationsMs: readonly number[] }): string {
  const at = (part: number): string => (durationsMs[Math.floor(durationsMs.length * part)] ?? 0).toFixed(1);
  return `${at(0.5)} ms (p95 ${at(0.95)}, p99 ${at(0.99)}; ${durationsMs.length} requests)`;
}
