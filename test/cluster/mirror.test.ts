/**
 * Goal: at any moment, each complete copy of a mirror shows exactly what the source's snapshot of its number shows,
 * whichever process dies; and the copy can take over, and give back, without copying more than differences.
 * Method: two real clusters, the command line, and a writer with random changes.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { LAUNCHER, runCli } from '../client/run-cli.ts';
import { isLong } from '../long.ts';
import {
  assertAnswered,
  assertConventions,
  assertRunbooks,
  metricsTogether,
  mirrorRules,
} from '../packaging/monitoring.ts';
import { RandomChanges } from './random-changes.ts';
import { RealCluster, until } from './real-cluster.ts';
import { treeText } from './tree-text.ts';

const KILLS = isLong ? 30 : 2;

const flags = ['--op-timeout', '10s'];
const [near, far] = await Promise.all([RealCluster.start({ flags }), RealCluster.start({ flags })]);
after(() => Promise.all([near.stop(), far.stop()]));
const nearClient = new ClusterClient({ world: systemWorld, servers: near.urls });
const farClient = new ClusterClient({ world: systemWorld, servers: far.urls });
after(() => Promise.all([nearClient.close(), farClient.close()]));
const folder = mkdtempSync(join(tmpdir(), 'leasehold-mirror-'));
after(() => rmSync(folder, { recursive: true }));

function run(at: RealCluster, ...words: string[]): ReturnType<typeof runCli> {
  return runCli(words, { env: { LEASEHOLD_SERVERS: at.urls.join(',') } });
}

/** @returns standard output and standard error */
async function cli(at: RealCluster, ...words: string[]): Promise<{ stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await run(at, ...words);
  assert.equal(code, 0, `${words.join(' ')}: ${stderr}`);
  return { stdout, stderr };
}

async function refused(at: RealCluster, exit: number, why: RegExp, ...words: string[]): Promise<void> {
  const { code, stderr } = await run(at, ...words);
  assert.match(stderr, why, words.join(' '));
  assert.equal(code, exit, stderr);
}

async function copies(client: ClusterClient, volume: string): Promise<number[]> {
  const { snapshots } = await client.query({ kind: 'snapshots', volume });
  return snapshots.flatMap(({ name }) => (/^mirror-main-[0-9]+$/.test(name) ? [Number(name.slice(12))] : []));
}

/** Compares the latest complete copy with its source. @returns its number */
async function compareLatest(volume: string, copy = volume): Promise<number> {
  const latest = Math.max(0, ...(await copies(farClient, copy)));
  if (latest === 0) return 0;
  const name = `mirror-main-${latest}`;
  assert.deepEqual(
    await treeText(farClient, `${copy}@${name}`),
    await treeText(nearClient, `${volume}@${name}`),
    name,
  );
  return latest;
}

const to = far.urls.join(',');

test('each cycle makes a complete copy, and what others write to it is removed', async () => {
  await Promise.all([near.createVolume('main'), far.createVolume('copy')]);
  const changes = new RandomChanges(nearClient, 'main', new Prng(11));
  const [words, metricsFile] = [['mirror', 'main', '--to', `${to}/copy`], join(folder, 'mirror.prom')];
  for (let round = 1; round <= 3; round++) {
    await changes.make(40);
    await cli(near, ...words, '--once', '--metrics-file', metricsFile);
    assert.equal(await compareLatest('main', 'copy'), round);
    assert.deepEqual(
      await treeText(farClient, 'copy'),
      await treeText(farClient, `copy@mirror-main-${round}`),
    );
  }
  assert.match(
    readFileSync(metricsFile, 'utf8'),
    /^leasehold_mirror_cycles_total\{source="main",target="copy",mirror="main"\} 1$/m,
  );
  const families = metricsTogether([readFileSync(metricsFile, 'utf8')]);
  assertConventions(families);
  for (const { expr, annotations } of mirrorRules()) assertAnswered(expr, families, annotations.summary);
  assertRunbooks(mirrorRules(), 'docs/backup.md');
  assert.deepEqual(await copies(nearClient, 'main'), [3], 'The source keeps the base of the next difference');
  assert.deepEqual(await copies(farClient, 'copy'), [2, 3], 'The copy before serves its readers');
  await cli(near, 'snapshot', 'create', 'main@by-hand');
  const dry = await cli(near, 'snapshot', 'prune', 'main', '--keep', 'daily=0', '--dry-run');
  assert.equal(dry.stdout, 'would remove main@by-hand\n');
  await cli(near, 'snapshot', 'prune', 'main', '--keep', '0');
  assert.deepEqual(await copies(nearClient, 'main'), [3], 'The base of the next difference stays');
  const foreign = new RandomChanges(farClient, 'copy', new Prng(12));
  await foreign.make(30);
  const { stderr } = await cli(near, ...words, '--once');
  assert.match(stderr, /removed [0-9]+ changes from the target/);
  assert.equal(await compareLatest('main', 'copy'), 4);
  const status = JSON.parse((await cli(near, ...words, '--status', '--json')).stdout);
  const { copied, pendingBytes, isTarget, running, behindSeconds } = status;
  assert.deepEqual(
    { copied, pendingBytes, isTarget, running },
    { copied: 4, pendingBytes: 0, isTarget: true, running: false },
  );
  assert.ok(behindSeconds >= 0);
});

test('a volume with contents of its own is replaced on demand only', async () => {
  await Promise.all([near.createVolume('small'), far.createVolume('used')]);
  await new RandomChanges(nearClient, 'small', new Prng(1)).make(10);
  await new RandomChanges(farClient, 'used', new Prng(2)).make(10);
  const before = await treeText(farClient, 'used');
  const words = ['mirror', 'small', '--to', `${to}/used`, '--once'];
  await refused(near, 4, /it has contents of its own/, ...words);
  await refused(
    near,
    2,
    /Cannot mirror volume "small" to itself/,
    'mirror',
    'small',
    '--to',
    near.urls.join(','),
    '--once',
  );
  const { stderr } = await cli(near, ...words, '--replace');
  const [, kept = ''] = /kept as (used@replaced-main-[0-9]+)/.exec(stderr) ?? [];
  assert.deepEqual(await treeText(farClient, kept), before);
  await compareLatest('small', 'used');
});

test('a directory keeps its times when only contents of its files have changed', async () => {
  await Promise.all([near.createVolume('times'), far.createVolume('times')]);
  const changes = new RandomChanges(nearClient, 'times', new Prng(3));
  const place = { volume: 'times', path: '/directory' };
  await nearClient.command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
  await changes.put('/directory/file', 'before');
  const words = ['mirror', 'times', '--to', to, '--once'];
  await cli(near, ...words);
  const { inode } = await nearClient.resolve('times', '/directory/file');
  const file = nearClient.openFile(inode);
  await file.write(0, Buffer.from('after!'));
  await file.flush();
  await file.settle();
  await cli(near, ...words);
  assert.equal(await compareLatest('times'), 2);
});

test('a file is changed near the quota of the target, and far below its root', async () => {
  await Promise.all([near.createVolume('narrow'), far.createVolume('narrow')]);
  for (const at of [near, far]) await cli(at, 'volume', 'set', 'narrow', '--quota', '3MiB');
  let { inode: parent } = await nearClient.resolve('narrow', '/');
  for (let depth = 0; depth < 70; depth++) {
    const place = { parent, name: 'd'.repeat(250) };
    const command = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 } as const;
    parent = (await nearClient.command(command)).attributes.inode;
  }
  const { attributes } = await nearClient.command({
    ...{ kind: 'create-file', place: { parent, name: 'file' }, mode: 0o644, uid: 0, gid: 0, exclusive: true },
  });
  const file = nearClient.openFile(attributes.inode);
  for (const [round, sizeBytes] of [100, 2_000_000, 2_000_000].entries()) {
    await file.write(0, Buffer.alloc(sizeBytes, round));
    await file.flush();
    await file.settle();
    await cli(near, 'mirror', 'narrow', '--to', to, '--once');
    assert.equal(await compareLatest('narrow'), round + 1);
  }
});

test('a retained mark of an earlier process stops no cycle', async () => {
  await Promise.all([near.createVolume('marked'), far.createVolume('marked')]);
  const changes = new RandomChanges(nearClient, 'marked', new Prng(4));
  await changes.make(5);
  const words = ['mirror', 'marked', '--to', to, '--once'];
  await cli(near, ...words);
  await farClient.command({ kind: 'snapshot-create', volume: 'marked', name: 'mirror-main-by-abc123' });
  await cli(far, 'snapshot', 'retain', 'marked@mirror-main-by-abc123', '--for', '1d');
  await changes.make(5);
  await cli(near, ...words);
  assert.equal(await compareLatest('marked'), 2);
});

test('the copy takes over, and gives back the differences', async () => {
  await Promise.all([near.createVolume('service'), far.createVolume('service')]);
  const changes = new RandomChanges(nearClient, 'service', new Prng(21));
  await changes.make(40);
  await changes.put('/large', 'x'.repeat(500_000));
  await cli(near, 'mirror', 'service', '--to', to, '--once');
  const complete = await treeText(nearClient, 'service');
  // These are lost with the site: no cycle has copied them.
  await changes.make(30);
  const lost = await treeText(nearClient, 'service');
  await refused(
    far,
    4,
    /copy of a mirror of this name itself/,
    'mirror',
    'service',
    '--to',
    near.urls.join(','),
    '--once',
  );

  await cli(far, 'mirror', 'promote', 'service');
  assert.deepEqual(await treeText(farClient, 'service'), complete);
  await refused(far, 4, /not the copy of a mirror/, 'mirror', 'promote', 'service');
  await refused(near, 4, /or was promoted/, 'mirror', 'service', '--to', to, '--once');
  await new RandomChanges(farClient, 'service', new Prng(22)).make(40);

  const back = ['mirror', 'service', '--to', near.urls.join(','), '--once'];
  await refused(far, 4, /or was promoted/, ...back);
  const metricsFile = join(folder, 'back.prom');
  const { stderr } = await cli(far, ...back, '--replace', '--metrics-file', metricsFile);
  const [, kept = ''] = /kept as (service@replaced-main-[0-9]+)/.exec(stderr) ?? [];
  assert.deepEqual(await treeText(nearClient, kept), lost, 'What was lost can be looked at');
  assert.deepEqual(await treeText(nearClient, 'service'), await treeText(farClient, 'service'));
  const [, copied = ''] =
    /^leasehold_mirror_copied_bytes_total\{.*\} ([0-9]+)$/m.exec(readFileSync(metricsFile, 'utf8')) ?? [];
  assert.ok(Number(copied) < 500_000, `${copied} bytes: only differences`);

  // The planned way: no more writers, one more cycle, and the roles change again.
  await new RandomChanges(farClient, 'service', new Prng(23)).make(10);
  await cli(far, ...back);
  await cli(near, 'mirror', 'promote', 'service');
  assert.deepEqual(await treeText(nearClient, 'service'), await treeText(farClient, 'service'));
  await changes.make(10);
  await cli(near, 'mirror', 'service', '--to', to, '--once', '--replace');
  assert.deepEqual(await treeText(farClient, 'service'), await treeText(nearClient, 'service'));
});

test('whatever is killed, complete copies are copies', async () => {
  await Promise.all([near.createVolume('load'), far.createVolume('load')]);
  const random = new Prng(31);
  const changes = new RandomChanges(nearClient, 'load', new Prng(32));
  await changes.make(20);
  const stopped = new AbortController();
  const writer = (async () => {
    while (!stopped.signal.aborted) {
      // Servers die meanwhile; what became of the change shows in the snapshots of both.
      await changes.step().catch((error: unknown) => {
        if (!(error instanceof ServiceError)) throw error;
      });
      await delay(5);
    }
  })();
  const start = (): ChildProcess =>
    spawn(process.execPath, [LAUNCHER, 'mirror', 'load', '--to', to, '--every', '100ms'], {
      env: { ...process.env, LEASEHOLD_SERVERS: near.urls.join(',') },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  try {
    for (let kill = 0; kill < KILLS; kill++) {
      const before = Math.max(0, ...(await copies(farClient, 'load')));
      const mirror = start();
      const victim = `s${random.integer(1, 3)}`;
      const side = kill % 2 === 0 ? far : near;
      await until(
        'a copy is complete',
        async () => Math.max(0, ...(await copies(farClient, 'load'))) > before,
      );
      await side.kill(victim);
      await delay(random.integer(0, 1_500));
      mirror.kill('SIGKILL');
      await once(mirror, 'exit');
      assert.ok((await compareLatest('load')) > before, 'A copy was completed');
      side.spawn(victim);
      await side.ready([victim]);
    }
  } finally {
    stopped.abort();
    await writer;
  }
  await cli(near, 'mirror', 'load', '--to', to, '--once');
  await compareLatest('load');
  assert.deepEqual(await treeText(farClient, 'load'), await treeText(nearClient, 'load'));
});
