import { RealCluster } from '../test/cluster/real-cluster.ts';
import { plantedEnv } from '../test/planted/plant.ts';
import { processCpuMs } from './lease/cpu.ts';
import { machineHere, machineText } from './machine.ts';

/**
 * Compares `PUT` of small files as creation with contents and as staged files, in two clusters of three servers, with
 * a round of one and a round of the other in turn. It prints catalog commands, processor time of all servers, and time
 * of one request. `node bench/put.ts [requests per round] [rounds] [bytes]`
 */
const requests = Number(process.argv[2] ?? 100);
const rounds = Number(process.argv[3] ?? 5);
const bytes = Number(process.argv[4] ?? 4096);
const WARM_UP = 20;

/** Servers that behave as if another one had an earlier release. */
const STAGED = plantedEnv([
  {
    file: 'server/file/whole-files.ts',
    in: 'WholeFiles.store',
    find: '!this.#parts.isUnderstood()',
    replace: 'true',
  },
]);
const SERVERS = [{ name: 'created with contents' }, { name: 'staged', environment: () => STAGED }];

interface Sums {
  commands: number;
  cpuMs: number;
  wallMs: number;
}

async function put(cluster: RealCluster, name: string): Promise<void> {
  const body = Buffer.alloc(bytes, name);
  const answer = await fetch(`${cluster.urls[0]}/v1/files/main/${name}`, { method: 'PUT', body });
  if (!answer.ok) throw new Error(`PUT ${name}: ${answer.status} ${await answer.text()}`);
  await answer.arrayBuffer();
}

const commandsOf = (cluster: RealCluster) => cluster.counted('leasehold_catalog_commands_total');
const cpuMsOf = (cluster: RealCluster) => processCpuMs(cluster.ids.map((id) => ({ pid: cluster.pid(id) })));

/** Half of the requests create files, the others replace them. */
async function round(cluster: RealCluster, sums: Sums, number: number): Promise<void> {
  const before = { commands: await commandsOf(cluster), cpuMs: cpuMsOf(cluster), atMs: performance.now() };
  for (let place = 0; place < requests; place++) await put(cluster, `f${number}-${place >> 1}`);
  sums.wallMs += performance.now() - before.atMs;
  sums.cpuMs += cpuMsOf(cluster) - before.cpuMs;
  sums.commands += (await commandsOf(cluster)) - before.commands;
}

const subjects = await Promise.all(
  SERVERS.map(async ({ name, ...options }) => {
    const cluster = await RealCluster.start(options);
    await cluster.createVolume('main');
    for (let place = 0; place < WARM_UP; place++) await put(cluster, `warm${place}`);
    return { name, cluster, sums: { commands: 0, cpuMs: 0, wallMs: 0 } };
  }),
);
for (let number = 0; number < rounds; number++)
  for (const { cluster, sums } of subjects) await round(cluster, sums, number);
const count = requests * rounds;
process.stdout.write(`${machineText(machineHere())}; ${count} requests of ${bytes} bytes each\n`);
for (const { name, sums } of subjects) {
  const [commands, cpuMs, wallMs] = [sums.commands, sums.cpuMs, sums.wallMs].map((sum) =>
    (sum / count).toFixed(2),
  );
  process.stdout.write(`${name}: ${commands} commands, ${cpuMs} ms of processor, ${wallMs} ms for each\n`);
}
const [created, staged] = subjects.map(({ sums }) => sums);
if (created !== undefined && staged !== undefined) {
  const ratios = (['commands', 'cpuMs', 'wallMs'] as const).map((what) =>
    (created[what] / staged[what]).toFixed(2),
  );
  process.stdout.write(
    `created to staged: ${ratios[0]} commands, ${ratios[1]} processor, ${ratios[2]} time\n`,
  );
}
await Promise.all(subjects.map(({ cluster }) => cluster.stop()));
