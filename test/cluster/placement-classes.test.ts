import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { type CliResult, runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: files are on servers with the labels of their volume, also when labels change and such a server dies, and no
 * file is lost meanwhile. Method: five real servers, two of them started with a label; each file is read after each
 * step.
 */
const FILES = 8;
const LARGE = 3;
const MOVE_MS_MAX = 240_000;

const cluster = await RealCluster.start({
  servers: 5,
  environment: (place) => (place < 2 ? { LEASEHOLD_LABEL: 'ssd' } : {}),
  flags: ['--replace-after', '6s', '--lease-idle', '1s'],
});
after(() => cluster.stop());
const running = new Set(cluster.ids);
const obstacle = kernelTransportObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;

function cli(...argv: readonly string[]): Promise<CliResult> {
  const servers = [...running].map((id) => cluster.url(id)).join(',');
  return runCli(argv, { env: { LEASEHOLD_SERVERS: servers } });
}

async function cliOk(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await cli(...argv);
  assert.equal(code, 0, `leasehold ${argv.join(' ')}: ${stderr}${stdout}`);
  return stdout;
}

function contentsOf(number: number): Buffer {
  const seed = createHash('sha256').update(`${number}`).digest();
  // Small files are created with their contents, large ones before them.
  return Buffer.concat(Array.from({ length: number < LARGE ? 80_000 : 10 }, () => seed));
}

async function membersOf(path: string): Promise<string[]> {
  const { view } = await cluster.info('s1', path);
  return [...view.members].toSorted();
}

async function allAreOn(...servers: readonly string[]): Promise<void> {
  for (let number = 0; number < FILES; number++) {
    const path = `fast/f${number}`;
    await until(
      `${path} is on ${servers}`,
      async () => (await membersOf(path)).join() === servers.join(),
      MOVE_MS_MAX,
    );
    for (const id of running) {
      const answer = await ask(cluster.url(id), 'GET', `/v1/files/${path}`);
      assert.equal(answer.status, 200, `${path} at ${id}: ${answer.text.slice(0, 300)}`);
      assert.ok(answer.bytes.equals(contentsOf(number)), `${path} at ${id} has other bytes`);
    }
  }
}

test('new files of a volume are on servers with its labels', async () => {
  await until('the labels of the options are there', async () =>
    /s2 .* ssd .*/.test(await cliOk('server', 'ls')),
  );
  const refused = await cli('volume', 'create', 'fast', '--labels', 'ssd');
  assert.equal(refused.code, 4);
  assert.match(refused.stderr, /there are 2 servers with label ssd/);
  assert.match(await cliOk('server', 'label', 's3', 'ssd'), /Server s3 has the labels ssd/);
  for (const id of ['s4', 's5']) await cliOk('server', 'label', id, 'hdd');
  await cliOk('volume', 'create', 'fast', '--labels', 'ssd');
  assert.match(await cliOk('volume', 'ls'), /fast .* ssd/);
  for (let number = 0; number < FILES; number++) {
    const body = contentsOf(number);
    // Also at servers that cannot hold the file.
    const at = cluster.ids[number % cluster.ids.length] as string;
    const answer = await ask(cluster.url(at), 'PUT', `/v1/files/fast/f${number}`, { body });
    assert.ok(answer.status < 300, answer.text);
    assert.deepEqual(await membersOf(`fast/f${number}`), ['s1', 's2', 's3'], 'From the beginning');
  }
});

test('a mount creates files on the servers of their directory', { skip }, async (t) => {
  const mount = await ClusterMount.start(cluster, 'fast', '--transport', 'kernel');
  t.after(() => mount.stop());
  mkdirSync(mount.path('slow'));
  await cliOk('placement', 'set', 'fast:/slow', '--labels', 'hdd', '--replicas', '2');
  mkdirSync(mount.path('slow', 'below'));
  // After some files, a mount creates others by reserved numbers, whose servers are those of the volume.
  const names = Array.from({ length: 40 }, (_, index) => `m${index}`);
  for (const folder of ['.', 'slow', 'slow/below'])
    for (const name of names) writeFileSync(mount.path(folder, name), name);
  await mount.unmount();
  const created = await cluster.counted('leasehold_creations_with_contents_total', 'outcome="created"');
  assert.ok(created > 2 * names.length, `${created} files were created with contents: of each class`);
  for (const [folder, servers] of [
    ['', ['s1', 's2', 's3']],
    ['slow/', ['s4', 's5']],
    ['slow/below/', ['s4', 's5']],
  ] as const) {
    for (const name of names) {
      const { view } = await cluster.info('s1', `fast/${folder}${name}`);
      assert.deepEqual([view.number, [...view.members].toSorted()], [1, servers], 'From the beginning');
      const answer = await ask(cluster.url('s4'), 'GET', `/v1/files/fast/${folder}${name}`);
      assert.equal(answer.text, name);
    }
  }
});

test('files move when the labels of servers change', async () => {
  await cliOk('server', 'label', 's4', 'ssd');
  await cliOk('server', 'label', 's3', 'hdd');
  await allAreOn('s1', 's2', 's4');
});

test('a dead server is replaced by one with the label, and status says that there is none', async () => {
  running.delete('s2');
  await cluster.kill('s2');
  await until(
    'status says that the volume lacks servers',
    async () =>
      (await cluster.status('s1')).reasons.includes(
        'Volume "fast" lacks servers for 3 replicas of its files: there are 2 servers with label ssd',
      ),
    MOVE_MS_MAX,
  );
  assert.deepEqual(await membersOf('fast/f0'), ['s1', 's2', 's4'], 'No server without the label gets it');
  await cliOk('server', 'label', 's5', 'ssd', 'large');
  await allAreOn('s1', 's4', 's5');
  const { servers } = await cluster.status('s1');
  assert.deepEqual(servers.find(({ id }) => id === 's5')?.labels, ['large', 'ssd']);
  await cliOk('volume', 'set', 'fast', '--labels', 'none');
  const { volumes } = JSON.parse(await cliOk('volume', 'ls', '--json'));
  assert.deepEqual([volumes[0].name, volumes[0].labels], ['fast', undefined]);
});

test('a directory has another class than its volume', async () => {
  // s1, s4 and s5 have the label ssd, and s3 hdd; s2 is down.
  await cliOk('volume', 'create', 'work', '--labels', 'ssd');
  await ask(cluster.url('s1'), 'PUT', '/v1/files/work/slow/', {});
  await cliOk('placement', 'set', 'work:/slow', '--labels', 'hdd', '--replicas', '1');
  assert.match(
    await cliOk('placement', 'get', 'work:/slow'),
    /1 replicas, on servers with hdd; set at work:\/slow/,
  );
  const put = async (path: string, number = 1) => {
    const answer = await ask(cluster.url('s4'), 'PUT', `/v1/files/work/${path}`, {
      body: contentsOf(number),
    });
    assert.ok(answer.status < 300, answer.text);
    return membersOf(`work/${path}`);
  };
  assert.deepEqual(await put('slow/a'), ['s3'], 'From the beginning');
  assert.deepEqual(await put('slow/small', LARGE), ['s3'], 'Also a file that is stored with its contents');
  assert.deepEqual(await put('b'), ['s1', 's4', 's5']);
  await cliOk('placement', 'set', 'work:/', '--zones', 'none', '--replicas', '2', '--recursive');
  await until('the others follow', async () => (await membersOf('work/b')).length === 2, MOVE_MS_MAX);
  assert.deepEqual(await membersOf('work/slow/a'), ['s3'], 'It keeps its own class');
  await cliOk('server', 'label', 's4', 'hdd');
  await cliOk('server', 'label', 's3');
  await until('the file moves', async () => (await membersOf('work/slow/a')).join() === 's4', MOVE_MS_MAX);
  assert.match(await cliOk('placement', 'ls'), /work:\/slow +1 +hdd/);
  await cliOk('placement', 'clear', 'work:/slow', '--recursive');
  await until(
    'it has the class of the root',
    async () => (await membersOf('work/slow/a')).length === 2,
    MOVE_MS_MAX,
  );
  const answer = await ask(cluster.url('s5'), 'GET', '/v1/files/work/slow/a');
  assert.ok(answer.bytes.equals(contentsOf(1)));
});
