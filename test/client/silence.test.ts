import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';
import { FakeCluster } from './fake-cluster.ts';

/**
 * Goal: a server that keeps its connections open and does not answer delays no operation.
 * Method: one attempt may take longer than the whole operation, so that nothing but silence moves a request to another
 * server.
 */
const ATTEMPT_MS = 120_000;
const OPERATION_MS = 60_000;

async function withCluster(
  action: (cluster: FakeCluster, client: ClusterClient) => Promise<void>,
): Promise<void> {
  await using cluster = await FakeCluster.start();
  await using client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: OPERATION_MS,
  });
  await action(cluster, client);
}

const patient = { attemptMs: ATTEMPT_MS } as const;

/** Blocks this process. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test('a server that falls silent is left, and not asked again until it answers', () =>
  withCluster(async (cluster, client) => {
    const [silent, ...others] = cluster.servers;
    assert.ok(silent !== undefined);
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1, patient);
    silent.mute();
    const before = silent.livez;
    await file.read(0, 1, patient);
    assert.ok(silent.livez > before, 'It received a health check');
    for (let count = 0; count < 20; count++) await file.read(0, 1, patient);
    assert.ok(others.reduce((sum, { asked }) => sum + asked, 0) >= 21);
    const asked = silent.asked;
    silent.speak();
    await until('it is used again', async () => {
      await file.read(0, 1, patient);
      return silent.asked > asked + 1;
    });
  }));

test('a server that was silent before its id was known is used again once it answers', () =>
  withCluster(async (cluster, client) => {
    const [silent] = cluster.servers;
    assert.ok(silent !== undefined);
    silent.mute();
    const file = client.openFile(cluster.addFile('x'));
    // Until the health check has ended that moved the first read away.
    const untilMs = performance.now() + 2_000;
    while (performance.now() < untilMs) await file.read(0, 1, patient);
    const asked = silent.asked;
    silent.speak();
    await until(
      'it is used again',
      async () => {
        await file.read(0, 1, patient);
        return silent.asked > asked + 1;
      },
      30_000,
    );
  }));

test('all requests at a silent server move away, after one health check on a separate connection', () =>
  withCluster(async (cluster, client) => {
    const [silent] = cluster.servers;
    assert.ok(silent !== undefined);
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1, patient);
    silent.mute();
    // More than the pool has connections.
    await Promise.all(Array.from({ length: 200 }, () => file.read(0, 1, patient)));
    assert.equal(silent.livezAtOnceMax, 1);
    assert.ok(silent.livez < 20, `${silent.livez} health checks, and not one for each request`);
  }));

test('a server that answers health checks keeps its request as long as it takes', () =>
  withCluster(async (cluster, client) => {
    const [slow, ...others] = cluster.servers;
    assert.ok(slow !== undefined);
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1, patient);
    const { promise, resolve } = Promise.withResolvers<void>();
    slow.intercept = () => ({ kind: 'wait', until: promise });
    const reading = file.read(0, 1, patient);
    await until('it has said several times that it lives', async () => slow.livez >= 4);
    resolve();
    assert.equal(Buffer.from((await reading).bytes).toString(), 'x');
    assert.equal(slow.asked, 2);
    for (const { asked } of others) assert.equal(asked, 0, 'No other server was asked');
  }));

test('a write that a silent server has already received, and that another one executes, is executed once', () =>
  withCluster(async (cluster, client) => {
    const [silent] = cluster.servers;
    assert.ok(silent !== undefined);
    const id = cluster.addFile('');
    const file = client.openFile(id);
    await file.write('append', Buffer.from('a'), patient);
    silent.mute();
    assert.equal((await file.write('append', Buffer.from('b'), patient)).offset, 1);
    silent.speak();
    await until('what lay at the silent server was handled', async () => silent.asked >= 2);
    assert.equal((await file.write('append', Buffer.from('c'), patient)).offset, 2);
    assert.equal(cluster.contents(id), 'abc');
    const puts = cluster.servers.flatMap(({ seen }) => seen).filter(({ method }) => method === 'PUT');
    assert.equal(puts.length, 4);
    assert.equal(new Set(puts.map(({ search }) => search.get('number'))).size, 3);
  }));

test('if all servers are silent, a request waits until one answers', () =>
  withCluster(async (cluster, client) => {
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1, patient);
    for (const server of cluster.servers) server.mute();
    const reading = file.read(0, 1, patient);
    await until('each was asked whether it lives', async () =>
      cluster.servers.every(({ livez }) => livez > 0),
    );
    cluster.server(2).speak();
    assert.equal(Buffer.from((await reading).bytes).toString(), 'x');
  }));

test('a single server that is silent for a while is waited for', async () => {
  await using cluster = await FakeCluster.start(1);
  await using client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: OPERATION_MS,
  });
  const server = cluster.server(0);
  const file = client.openFile(cluster.addFile('x'));
  server.mute();
  const reading = file.read(0, 1, patient);
  await until('it was asked twice', async () => server.livez >= 2);
  server.speak();
  assert.equal(Buffer.from((await reading).bytes).toString(), 'x');
  assert.equal(server.asked, 1, 'The request was not sent again');
});

test('a pause of this process is not mistaken for silence of the servers', () =>
  withCluster(async (cluster, client) => {
    const [slow, ...others] = cluster.servers;
    assert.ok(slow !== undefined);
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1, patient);
    const { promise, resolve } = Promise.withResolvers<void>();
    slow.intercept = () => ({ kind: 'wait', until: promise });
    const reading = file.read(0, 1, patient);
    let pauses = 0;
    // The check is sent, its answer is not, and all timers are due when the pause ends.
    slow.onLivez = () => {
      pauses++;
      stall(1_500);
    };
    await until('it was asked several times whether it lives', async () => pauses >= 3);
    slow.onLivez = () => undefined;
    resolve();
    await reading;
    for (const { asked } of others) assert.equal(asked, 0, 'No other server was asked');
  }));

test('an answer that arrives slowly counts like an answered health check', async () => {
  await using cluster = await FakeCluster.start(2);
  await using client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: OPERATION_MS,
  });
  const [slow, other] = [cluster.server(0), cluster.server(1)];
  const { promise, resolve } = Promise.withResolvers<void>();
  slow.intercept = () => ({ kind: 'trickle', until: promise });
  // Its process would not even answer the check.
  slow.muteLivez();
  const reading = client.openFile(cluster.addFile('x'.repeat(1_000))).read(0, 1_000, patient);
  await until('a part of the answer was sent, byte by byte', async () => slow.trickled >= 25);
  resolve();
  assert.equal((await reading).bytes.length, 1_000);
  assert.equal(other.asked, 0, 'No other server was asked');
});

const PROGRAM = `
  const [library, world, ...servers] = process.argv.slice(1);
  const { ClusterClient } = await import(library);
  const { systemWorld } = await import(world);
  const client = new ClusterClient({ world: systemWorld, servers, operationTimeoutMs: ${OPERATION_MS} });
  await client.query({ kind: 'volumes' }, { attemptMs: ${ATTEMPT_MS} });
  const waiting = client.openFile(1).read(0, 1, { attemptMs: ${ATTEMPT_MS} });
  if (process.env.CLOSES === '1') {
    const failed = waiting.catch((error) => error);
    await client.close();
    if (!/this client was closed/.test((await failed).message)) process.exitCode = 1;
    const open = () => process.getActiveResourcesInfo().filter((name) => /Timeout|TCP|TLS|Connect/.test(name));
    // A socket that was destroyed closes in the next turns of the event loop.
    for (let turn = 0; turn < 10 && open().length > 0; turn++) await new Promise(setImmediate);
    console.log(open().join());
  } else {
    await waiting;
    console.log('answered');
  }
`;

for (const closes of [true, false]) {
  test(`a process ends ${closes ? 'after close, which leaves nothing open' : 'without a close'}, with a server silent`, async () => {
    await using cluster = await FakeCluster.start();
    cluster.addFile('x');
    cluster.server(0).mute();
    const modules = ['client/cluster/cluster-client.ts', 'world/system-world.ts'].map((path) =>
      fileURLToPath(new URL(`../../${path}`, import.meta.url)),
    );
    const child = spawn(
      process.execPath,
      ['--input-type=module', '-e', PROGRAM, ...modules, ...cluster.urls],
      {
        env: { ...process.env, CLOSES: closes ? '1' : '0' },
        stdio: ['ignore', 'pipe', 'inherit'],
        timeout: OPERATION_MS,
      },
    );
    const output: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
    const [exitCode] = await once(child, 'close');
    assert.equal(exitCode, 0);
    assert.equal(Buffer.concat(output).toString().trim(), closes ? '' : 'answered');
  });
}
