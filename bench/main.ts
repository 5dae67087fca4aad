import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { open, readFile, writeFile } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ClusterClient } from '../client/cluster/cluster-client.ts';
import { RealCluster } from '../test/cluster/real-cluster.ts';
import { systemWorld } from '../world/system-world.ts';
import { argumentsOf, USAGE } from './arguments.ts';
import { wantedOrExit } from './command-line.ts';
import { measureFailover } from './failover.ts';
import { LeaseCluster } from './lease/lease-cluster.ts';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const CHUNK = Buffer.alloc(MIB, 0xa5);

const { mib, files, kills, runs } = wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE);

/** One row of the table: the values of each run, on the mount and if useful on the local disk. */
interface Row {
  readonly what: string;
  readonly unit: string;
  readonly ours: readonly number[];
  readonly disk: readonly number[];
}

const rows: Row[] = [];
process.stdout.write(`${cpus().length} cores, Node ${process.versions.node}, ${runs} runs each\n\n`);

await leases();

const cluster = await RealCluster.start();
const local = mkdtempSync(join(tmpdir(), 'leasehold-bench-'));
const mountpoint = join(local, 'mount');
try {
  await cluster.createVolume('main');
  await sequentialRest();
  if (existsSync('/dev/fuse')) {
    mkdirSync(mountpoint);
    await leasehold('mount', 'main', mountpoint);
    await sequentialMount();
    await creates();
    await leasehold('umount', mountpoint);
  } else {
    process.stdout.write('/dev/fuse is missing: nothing is measured through a mount\n');
  }
  const gaps = await measureFailover(cluster, kills);
  print(rows);
  process.stdout.write(
    `\nwrite gap after kill -9 of the primary, ms: ${gaps.gapsMs.map(Math.round).join(' ')}`,
  );
  process.stdout.write(` (promised: at most ${Math.round(gaps.boundMs)})\n`);
} finally {
  await run('umount', ['-l', mountpoint]).catch(() => undefined);
  await cluster.stop();
  rmSync(local, { recursive: true, force: true });
}

/** Measures the lease layer alone; `npm run bench:lease` measures it in detail. */
async function leases(): Promise<void> {
  const servers = await LeaseCluster.start(3, { leaseMs: 15_000, clockSkewMaxMs: 500, algorithm: 'flease' });
  try {
    for (const batch of [1_000, 10_000]) {
      const ours: number[] = [];
      for (let round = 0; round < runs; round++) ours.push(await servers.batch(batch, 3));
      rows.push({ what: `leases acquired, batches of ${batch}`, unit: '/s', ours, disk: [] });
    }
  } finally {
    servers.stop();
  }
}

async function sequentialRest(): Promise<void> {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls, operationTimeoutMs: 60_000 });
  const write: number[] = [];
  const read: number[] = [];
  const diskWrite: number[] = [];
  const diskRead: number[] = [];
  for (let round = 0; round < runs; round++) {
    diskWrite.push(await rate(() => writeLocal(join(local, `disk-${round}`))));
    diskRead.push(await rate(() => readLocal(join(local, `disk-${round}`))));
    const url = `${cluster.urls[round % cluster.urls.length]}/v1/files/main/rest-${round}`;
    write.push(
      await rate(async () => {
        const body = (async function* () {
          for (let sent = 0; sent < mib; sent++) yield CHUNK;
        })();
        const response = await fetch(url, { method: 'PUT', body, duplex: 'half' } as RequestInit);
        if (!response.ok) throw new Error(`PUT: ${response.status} ${await response.text()}`);
      }),
    );
    read.push(
      await rate(async () => {
        const response = await fetch(url);
        if (!response.ok || response.body === null) throw new Error(`GET: ${response.status}`);
        let bytes = 0;
        for await (const piece of response.body) bytes += piece.length;
        if (bytes !== mib * MIB) throw new Error(`GET: ${bytes} bytes`);
      }),
    );
  }
  await client.close();
  rows.push({
    what: 'sequential write through REST, 3 replicas, synced',
    unit: 'MB/s',
    ours: write,
    disk: diskWrite,
  });
  rows.push({ what: 'sequential read through REST', unit: 'MB/s', ours: read, disk: diskRead });
}

async function sequentialMount(): Promise<void> {
  const write: number[] = [];
  const read: number[] = [];
  const diskWrite: number[] = [];
  const diskRead: number[] = [];
  for (let round = 0; round < runs; round++) {
    const ours = join(mountpoint, `mount-${round}`);
    const disk = join(local, `cp-${round}`);
    diskWrite.push(await rate(() => writeLocal(disk)));
    write.push(await rate(() => writeLocal(ours)));
    diskRead.push(await rate(() => readLocal(disk)));
    read.push(await rate(() => readLocal(ours)));
  }
  rows.push({
    what: 'sequential write + fsync through the mount',
    unit: 'MB/s',
    ours: write,
    disk: diskWrite,
  });
  rows.push({ what: 'sequential read through the mount', unit: 'MB/s', ours: read, disk: diskRead });
}

async function creates(): Promise<void> {
  const ours: number[] = [];
  const disk: number[] = [];
  for (let round = 0; round < runs; round++) {
    disk.push(await filesPerSecond(join(local, `files-${round}`)));
    ours.push(await filesPerSecond(join(mountpoint, `files-${round}`)));
  }
  rows.push({ what: 'create + write 4 KiB + close through the mount', unit: 'files/s', ours, disk });
}

async function filesPerSecond(folder: string): Promise<number> {
  mkdirSync(folder);
  const begunMs = performance.now();
  for (let file = 0; file < files; file++) await writeFile(join(folder, `f${file}`), CHUNK.subarray(0, 4096));
  return (files * 1000) / (performance.now() - begunMs);
}

async function writeLocal(path: string): Promise<void> {
  const file = await open(path, 'w');
  for (let written = 0; written < mib; written++) await file.write(CHUNK);
  await file.sync();
  await file.close();
}

async function readLocal(path: string): Promise<void> {
  const bytes = await readFile(path);
  if (bytes.length !== mib * MIB) throw new Error(`${path}: ${bytes.length} bytes`);
}

/** @returns megabytes per second of `work`, which moves `mib` mebibytes */
async function rate(work: () => Promise<void>): Promise<number> {
  const begunMs = performance.now();
  await work();
  return (mib * MIB) / 1000 / (performance.now() - begunMs);
}

async function leasehold(...args: string[]): Promise<void> {
  execFileSync(
    process.execPath,
    [join(import.meta.dirname, '../bin/leasehold.js'), '--servers', cluster.urls.join(','), ...args],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
}

function print(table: readonly Row[]): void {
  const lines = table.map((row) => {
    const ratio =
      row.disk.length === 0 ? '' : `  ${(median(row.ours) / median(row.disk)).toFixed(2)} of the local disk`;
    return `${row.what.padEnd(52)} ${figure(row.ours)} ${row.unit}${ratio}`;
  });
  process.stdout.write(`${lines.join('\n')}\n`);
}

function figure(values: readonly number[]): string {
  return `${Math.round(median(values))} (${Math.round(Math.min(...values))} to ${Math.round(Math.max(...values))})`;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const high = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? high : (high + (sorted[middle - 1] ?? Number.NaN)) / 2;
}
