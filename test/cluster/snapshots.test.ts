import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { systemWorld } from '../../world/system-world.ts';
import { LAUNCHER, runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { isLong, onlyLong } from '../long.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a snapshot shows one point in time between what was acknowledged before and what began after, and it never
 * changes, whatever happens to the volume and to servers. Real processes.
 */
const GRACE_MS = 3_000;
/** Snapshots under load; in the middle of them a server dies. */
const ROUNDS = isLong ? 12 : 4;
/** Pause of each writer after a write. */
const PAUSE_MS = isLong ? 0 : 5;

const cluster = await RealCluster.start({ flags: ['--op-timeout', '10s', '--gc-grace', `${GRACE_MS}ms`] });
after(() => cluster.stop());
const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());

async function cli(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await runCli(words, { env });
  assert.equal(code, 0, `${words.join(' ')}: ${stderr}`);
  return stdout;
}

async function put(path: string, text: string): Promise<void> {
  const answer = await ask(cluster.url('s1'), 'PUT', `/v1/files/${path}`, { body: text });
  assert.ok(answer.status < 300, answer.text);
}

async function get(path: string, at = 's2'): Promise<string> {
  const answer = await ask(cluster.url(at), 'GET', `/v1/files/${path}`);
  assert.equal(answer.status, 200, `${path}: ${answer.text.slice(0, 300)}`);
  return answer.text;
}

async function make(path: string, mode = 0o644): Promise<number> {
  const place = { volume: 'main', path };
  const made = await client.command({ kind: 'create-file', place, mode, uid: 0, gid: 0, exclusive: true });
  return made.attributes.inode;
}

test('a snapshot shows files as they were, after writes in place, truncation, replacement, removal and renames', async () => {
  await put('main/replaced', 'before');
  await put('main/removed', 'still here');
  await put('main/renamed', 'by its old name');
  const inPlace = client.openFile(await make('/in-place'));
  await inPlace.write(0, Buffer.from('first contents, and more'));
  const cut = client.openFile(await make('/cut'));
  await cut.write(0, Buffer.alloc(300_000, 'x'));
  await cli('mkdir', 'main:/directory');
  await put('main/directory/file', 'in a directory');

  await cli('snapshot', 'create', 'main@monday');
  await inPlace.write(0, Buffer.from('OTHER'));
  await cut.truncate(10);
  await put('main/replaced', 'after');
  await cli('rm', 'main:/removed');
  await cli('rm', '-r', 'main:/directory');
  await cli('mv', 'main:/renamed', 'main:/elsewhere');
  await put('main/new', 'new');

  assert.equal(await get('main/in-place'), 'OTHER contents, and more');
  for (const id of cluster.ids) {
    assert.equal(await get('main@monday/in-place', id), 'first contents, and more');
    assert.equal(await get('main@monday/cut', id), 'x'.repeat(300_000));
    assert.equal(await get('main@monday/replaced', id), 'before');
    assert.equal(await get('main@monday/removed', id), 'still here');
    assert.equal(await get('main@monday/renamed', id), 'by its old name');
    assert.equal(await get('main@monday/directory/file', id), 'in a directory');
  }
  const names = ['cut', 'directory/', 'in-place', 'removed', 'renamed', 'replaced'];
  assert.deepEqual((await cli('ls', 'main@monday:/')).trim().split('\n'), names);
  assert.equal(await cli('get', 'main@monday:/in-place', '-'), 'first contents, and more');
  assert.equal((await ask(cluster.url('s1'), 'GET', '/v1/files/main@monday/new')).status, 404);
  const listing = JSON.parse(await get('main@monday/')) as { entries: { name: string; size: number }[] };
  assert.equal(listing.entries.find(({ name }) => name === 'cut')?.size, 300_000);

  await cli('snapshot', 'create', 'main@tuesday');
  await inPlace.write(0, Buffer.from('THIRD'));
  assert.equal(await get('main@monday/in-place'), 'first contents, and more');
  assert.equal(await get('main@tuesday/in-place'), 'OTHER contents, and more');
  assert.equal(await get('main/in-place'), 'THIRD contents, and more');
});

test('contents that no snapshot shows any more are removed, also from the disks', async () => {
  assert.match((await runCli(['volume', 'rm', 'main'], { env })).stderr, /not empty/);
  const before = (await client.query({ kind: 'volume', name: 'main' })).volume.inodes;
  await cli('snapshot', 'rm', 'main@monday');
  assert.equal((await ask(cluster.url('s1'), 'GET', '/v1/files/main@monday/in-place')).status, 404);
  assert.equal(await get('main@tuesday/in-place'), 'OTHER contents, and more');
  await until('what only the first snapshot showed is removed', async () => {
    const { volume } = await client.query({ kind: 'volume', name: 'main' });
    return volume.inodes < before - 3;
  });
  assert.equal(await get('main@tuesday/in-place'), 'OTHER contents, and more');
  await cli('snapshot', 'prune', 'main', '--keep', '0');
  await until('nothing is left but what has a name', async () => {
    const { volume } = await client.query({ kind: 'volume', name: 'main' });
    return volume.inodes === volume.namedInodes;
  });
});

test('a snapshot under load shows one point in time, also if a primary dies', {
  timeout: 120_000,
  skip: onlyLong('test/simulation/cluster/wholes.test.ts'),
}, async () => {
  const [a, b] = [client.openFile(await make('/a')), client.openFile(await make('/b'))];
  const word = (n: number): Buffer => Buffer.from(String(n).padStart(12, '0'));
  let going = true;
  let n = 0;
  const writer = (async () => {
    for (; going; n++) {
      await a.write(0, word(n));
      await b.write(0, word(n));
      await delay(PAUSE_MS);
    }
  })();
  const others = Array.from({ length: 4 }, async (_, place) => {
    const file = client.openFile(await make(`/other-${place}`));
    for (let at = 0; going; at++) {
      await file.write((at % 8) * 1000, Buffer.alloc(1000, at % 250));
      await delay(PAUSE_MS);
    }
  });
  const seen: [string, string, string][] = [];
  const took: number[] = [];
  await until('some was written', async () => n > 3);
  for (let round = 0; round < ROUNDS; round++) {
    const name = `load-${round}`;
    const known = n;
    if (round === ROUNDS / 2) await cluster.kill('s2');
    const beganMs = performance.now();
    await cli('snapshot', 'create', `main@${name}`);
    took.push(performance.now() - beganMs);
    if (round === ROUNDS / 2) await cluster.restart('s2');
    const [A, B] = [Number(await get(`main@${name}/a`, 's1')), Number(await get(`main@${name}/b`, 's3'))];
    assert.ok(A >= B && B >= A - 1, `snapshot ${name} shows ${A} and ${B}`);
    assert.ok(A >= known - 1, `snapshot ${name} shows ${A}, and ${known} was being written before`);
    seen.push([name, String(A), String(B)]);
  }
  going = false;
  await Promise.all([writer, ...others]);
  assert.ok(n > 50, `${n} were written`);
  for (const [name, A, B] of seen) {
    assert.equal(String(Number(await get(`main@${name}/a`))), A);
    assert.equal(String(Number(await get(`main@${name}/b`))), B);
  }
  console.log(
    `snapshots took ${took.map((ms) => Math.round(ms)).join(', ')} ms, with the start of the program; ${n} rounds`,
  );
});

test('a snapshot cannot be changed', async () => {
  await put('main/kept', 'kept');
  await cli('snapshot', 'create', 'main@kept');
  for (const [method, url] of [
    ['PUT', 'main@kept/kept'],
    ['DELETE', 'main@kept/kept'],
    ['PATCH', 'main@kept/kept?append'],
    ['PUT', 'main@kept/new/'],
    ['POST', 'main@kept/kept?move-to=/x'],
  ] as const) {
    const answer = await ask(
      cluster.url('s1'),
      method,
      `/v1/files/${url}`,
      method === 'DELETE' ? {} : { body: 'x' },
    );
    assert.equal(answer.status, 409, `${method} ${url}: ${answer.text}`);
    assert.match(answer.text, /read-only/);
  }
  for (const words of [
    ['rm', 'main@kept:/kept'],
    ['mkdir', 'main@kept:/d'],
    ['mv', 'main@kept:/kept', 'main@kept:/other'],
  ])
    assert.match((await runCli(words, { env })).stderr, /snapshots are read-only/);
});

test('a file is restored from a snapshot by a copy that the servers make', async () => {
  await put('main/precious', 'precious');
  await cli('snapshot', 'create', 'main@copy');
  await put('main/precious', 'spoilt');
  const answer = await ask(cluster.url('s2'), 'POST', '/v1/files/main@copy/precious?copy-to=/precious');
  assert.equal(answer.status, 204, answer.text);
  assert.equal(await get('main/precious'), 'precious');
});

test('an archive shows one point in time, or the named snapshot', async () => {
  await put('main/archived', 'of then');
  await cli('snapshot', 'create', 'main@archive');
  await put('main/archived', 'of now');
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-archive-'));
  try {
    for (const [source, text] of [
      ['main@archive', 'of then'],
      ['main', 'of now'],
    ] as const) {
      const archive = join(folder, `${source}.tar`);
      await cli('backup', source, archive);
      assert.equal((await runOk('tar', ['-xOf', archive, 'archived'])).text, text);
    }
    const { snapshots } = await client.query({ kind: 'snapshots', volume: 'main' });
    assert.ok(
      snapshots.every(({ name }) => !name.startsWith('backup')),
      'The snapshot of an archive is removed at its end',
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('the snapshot that a killed archive has left is removed by the next one', async () => {
  await put('main/large', 'x'.repeat(1_000_000));
  const named = async (): Promise<string[]> =>
    (await client.query({ kind: 'snapshots', volume: 'main' })).snapshots.map(({ name }) => name);
  await cli('snapshot', 'create', 'main@backup-mine');
  const before = await named();
  // No process reads its output, so it stays.
  const killed = spawn(process.execPath, [LAUNCHER, 'backup', 'main', '-'], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  await until('an archive is being made', async () => (await named()).length > before.length);
  const [left] = (await named()).filter((name) => !before.includes(name));
  assert.ok(!(await cli('snapshot', 'ls', 'main')).includes('left behind'));
  const whileHeld = await runCli(['backup', 'main', join(tmpdir(), `${left}-1.tar`)], { env });
  assert.deepEqual([whileHeld.code, whileHeld.stderr.includes('removed')], [0, false], whileHeld.stderr);
  killed.kill('SIGKILL');
  await once(killed, 'exit');
  const lease = encodeURIComponent(`backup/main@${left}`);
  await until('its lease is over', async () => {
    const { text } = await ask(cluster.url('s1'), 'GET', `/v1/leases/${lease}`);
    return (JSON.parse(text) as { readonly held?: boolean }).held === false;
  });
  assert.match(
    await cli('snapshot', 'ls', 'main'),
    new RegExp(`^main@${left} .*left behind by an aborted backup`, 'm'),
  );
  // It may find anything of the machine that runs the tests.
  const { stdout } = await runCli(['doctor', '--json'], { env });
  const { findings } = JSON.parse(stdout) as {
    readonly findings: readonly { name: string; state: string }[];
  };
  assert.deepEqual(
    findings.filter(({ name }) => name.startsWith('snapshot ')).map(({ name, state }) => `${state} ${name}`),
    [`warning snapshot main@${left}`],
  );
  const next = await runCli(['backup', 'main', join(tmpdir(), `${left}-2.tar`)], { env });
  assert.equal(next.code, 0, next.stderr);
  assert.match(next.stderr, new RegExp(`removed the snapshot main@${left}`));
  assert.deepEqual(await named(), before, 'No other snapshot is touched');
  for (const number of [1, 2]) await rm(join(tmpdir(), `${left}-${number}.tar`));
  await cli('snapshot', 'rm', 'main@backup-mine');
});

test('a snapshot is mounted, and does not change with the volume', async (t) => {
  const obstacle = await mountObstacle();
  if (obstacle !== null) return t.skip(obstacle);
  await cli('mkdir', 'main:/mounted');
  await put('main/mounted/gone', 'gone by now');
  const file = client.openFile(await make('/mounted/changed'));
  await file.write(0, Buffer.alloc(200_000, 'a'));
  await cli('snapshot', 'create', 'main@mounted');
  const mount = await ClusterMount.start(cluster, 'main@mounted:/mounted');
  try {
    const text = async (): Promise<string> => (await runOk('cat', [mount.path('changed')])).text;
    const first = await runOk('md5sum', [mount.path('changed')]);
    await file.write(100_000, Buffer.alloc(50_000, 'b'));
    await cli('rm', 'main:/mounted/gone');
    await put('main/mounted/new', 'new');
    assert.equal((await runOk('ls', [mount.directory])).text, 'changed\ngone\n');
    assert.equal((await runOk('cat', [mount.path('gone')])).text, 'gone by now');
    assert.equal((await runOk('md5sum', [mount.path('changed')])).text, first.text);
    assert.equal((await text()).slice(0, 10), 'aaaaaaaaaa');
    for (const words of [
      ['touch', mount.path('new')],
      ['rm', mount.path('gone')],
      ['sh', '-c', `echo x >> ${mount.path('changed')}`],
    ]) {
      const refused = await run(words[0] as string, words.slice(1));
      assert.notEqual(refused.code, 0);
      assert.match(refused.text, /Read-only file system/);
    }
  } finally {
    await mount.unmount();
  }
  // A mount that reads it first after the change finds the same.
  const later = await ClusterMount.start(cluster, 'main@mounted:/mounted');
  try {
    assert.equal((await runOk('sh', ['-c', `tr -d a < ${later.path('changed')} | wc -c`])).text.trim(), '0');
  } finally {
    await later.unmount();
  }
});
