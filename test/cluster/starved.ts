/**
 * Three servers beside busy loops: ends with code 1 if the catalog's primary changes, or if a call fails.
 * `node test/cluster/starved.ts [--seconds 60] [--loops 8] [--clients 4] [--lease 5s] [--clock-skew 250ms]`
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { parseArgs } from 'node:util';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { RealCluster } from './real-cluster.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    loops: { type: 'string', default: '8' },
    clients: { type: 'string', default: '4' },
    lease: { type: 'string', default: '5s' },
    'clock-skew': { type: 'string', default: '250ms' },
  },
});

const cluster = await RealCluster.start({ lease: values.lease, clockSkew: values['clock-skew'] });
const loops: ChildProcess[] = [];
const failures: string[] = [];
let calls = 0;
let slowestMs = 0;

async function timed(what: string, call: () => Promise<unknown>): Promise<void> {
  const fromMs = performance.now();
  calls++;
  try {
    await call();
  } catch (error) {
    failures.push(`${what}: ${String(error)}`);
  }
  slowestMs = Math.max(slowestMs, performance.now() - fromMs);
}

/** Creates, writes and reads one file after the other. */
async function work(place: number, untilMs: number): Promise<void> {
  const url = cluster.urls[place % cluster.urls.length] as string;
  const client = new ClusterClient({ world: systemWorld, servers: [url, ...cluster.urls] });
  for (let number = 0; performance.now() < untilMs; number++) {
    const path = `f${place}-${number}`;
    const made = { volume: 'main', path: `/${path}` };
    await timed(`create ${path}`, () =>
      client.command({ kind: 'create-file', place: made, mode: 0o644, uid: 0, gid: 0, exclusive: true }),
    );
    for (const [method, body] of [['PUT', 'x'.repeat(1_000)] as const, ['GET', undefined] as const]) {
      await timed(`${method} ${path}`, async () => {
        const options = body === undefined ? {} : { body };
        const { status, text } = await ask(url, method, `/v1/files/main/${path}`, options);
        if (status >= 300) throw new Error(`${status} ${text}`);
      });
    }
  }
  await client.close();
}

try {
  await cluster.createVolume('main');
  const before = (await cluster.status('s1')).catalog.epoch;
  for (let count = 0; count < Number(values.loops); count++)
    loops.push(spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  const untilMs = performance.now() + Number(values.seconds) * 1_000;
  await Promise.all(Array.from({ length: Number(values.clients) }, (_, place) => work(place, untilMs)));
  // Each epoch of the catalog is a change of its primary.
  const changes = (await cluster.status('s1')).catalog.epoch - before;
  process.stdout.write(`${JSON.stringify({ changes, calls, slowestMs, failures }, null, 2)}\n`);
  process.exitCode = changes === 0 && failures.length === 0 ? 0 : 1;
} finally {
  for (const loop of loops) loop.kill('SIGKILL');
  await cluster.stop();
}
