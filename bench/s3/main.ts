import { createHash } from 'node:crypto';
import { freePorts } from '../../client/dev/free-ports.ts';
import { Pool } from '../../platform/undici.ts';
import { RealCluster } from '../../test/cluster/real-cluster.ts';
import { wantedOrExit } from '../command-line.ts';
import { processCpuMs } from '../lease/cpu.ts';
import { machineHere, machineText } from '../machine.ts';
import { argumentsOf, USAGE } from './arguments.ts';

const BYTES = 64 * 1024;
const PARALLEL = 16;
const BUCKET = 'bench';

interface Interface {
  readonly name: string;
  readonly pools: readonly Pool[];
  path(key: string): string;
  headers(body: Buffer): Record<string, string>;
}

interface Rate {
  readonly perS: number;
  /** Of all servers, for one request. */
  readonly cpuUs: number;
}

const { objects, runs } = wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE);
process.stdout.write(
  `${machineText(machineHere())}\n${objects} objects of 64 KiB, ${PARALLEL} at a time\n\n`,
);

const ports = await freePorts(3);
const cluster = await RealCluster.start({
  servers: 3,
  environment: (place) => ({ LEASEHOLD_S3_LISTEN: `127.0.0.1:${ports[place]}` }),
});
try {
  await cluster.createVolume(BUCKET);
  const poolsOf = (urls: readonly string[]): Pool[] =>
    urls.map((url) => new Pool(url, { connections: PARALLEL }));
  const interfaces: readonly Interface[] = [
    {
      name: 'REST',
      pools: poolsOf(cluster.ids.map((id) => cluster.url(id))),
      path: (key) => `/v1/files/${BUCKET}/${key}`,
      headers: (body) => ({ 'content-md5': md5(body) }),
    },
    {
      name: 'S3',
      pools: poolsOf(ports.map((port) => `http://127.0.0.1:${port}`)),
      path: (key) => `/${BUCKET}/${key}`,
      headers: () => ({ 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' }),
    },
  ];
  const rates = new Map<string, Rate[]>();
  for (let run = 0; run < runs; run++)
    for (const [method, { name, ...one }] of interfaces.flatMap((each) =>
      (['PUT', 'GET'] as const).map((verb) => [verb, each] as const),
    )) {
      const rate = await measured(method, { name, ...one }, run);
      rates.set(`${method} ${name}`, [...(rates.get(`${method} ${name}`) ?? []), rate]);
    }
  for (const method of ['PUT', 'GET']) {
    const [rest, s3] = ['REST', 'S3'].map((name) => medianOf(rates.get(`${method} ${name}`) ?? []));
    if (rest === undefined || s3 === undefined) continue;
    for (const [name, { perS, cpuUs }] of [['REST', rest] as const, ['S3', s3] as const])
      process.stdout.write(
        `${method} ${name.padEnd(4)} ${perS.toFixed(0).padStart(6)}/s ${cpuUs.toFixed(0).padStart(6)} µs\n`,
      );
    process.stdout.write(
      `${method} S3 : REST  rate ${(s3.perS / rest.perS).toFixed(2)}, processor ${(s3.cpuUs / rest.cpuUs).toFixed(2)}\n\n`,
    );
  }
} finally {
  await cluster.stop();
}
process.exit();

async function measured(
  method: 'PUT' | 'GET',
  { name, pools, path, headers }: Interface,
  run: number,
): Promise<Rate> {
  const beforeMs = cpuMs();
  const beganMs = performance.now();
  let next = 0;
  const work = async (): Promise<void> => {
    for (let number = next++; number < objects; number = next++) {
      const key = `${name}-${run}/${number % 100}-${number}`;
      const pool = pools[number % pools.length] as Pool;
      const body = method === 'PUT' ? Buffer.alloc(BYTES, key) : null;
      const parents = method === 'PUT' && name === 'REST' ? '?parents=true' : '';
      const answer = await pool.request({
        ...{ method, path: path(key) + parents, body },
        headers: body === null ? {} : headers(body),
      });
      const received = (await answer.body.arrayBuffer()).byteLength;
      if (answer.statusCode >= 300 || (method === 'GET' && received !== BYTES))
        throw new Error(`${method} ${key}: ${answer.statusCode}`);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  const seconds = (performance.now() - beganMs) / 1_000;
  return { perS: objects / seconds, cpuUs: ((cpuMs() - beforeMs) * 1_000) / objects };
}

/** Processor time of the servers. */
function cpuMs(): number {
  return processCpuMs(cluster.ids.map((id) => ({ pid: cluster.pid(id) })));
}

function md5(body: Buffer): string {
  return createHash('md5').update(body).digest('base64');
}

function medianOf(rates: readonly Rate[]): Rate | undefined {
  const middle = (values: readonly number[]): number =>
    values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
  if (rates.length === 0) return undefined;
  return { perS: middle(rates.map(({ perS }) => perS)), cpuUs: middle(rates.map(({ cpuUs }) => cpuUs)) };
}
