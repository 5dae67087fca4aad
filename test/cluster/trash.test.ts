import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import type { TrashedFile, VolumeInfo } from '../../wire/catalog-api.ts';
import { ask, askJson, problemIn } from '../http/ask.ts';
import { onlyLong } from '../long.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/**
 * Goal: files that were removed in any way can be restored, until their time has passed.
 * Method: one cluster for all cases; each has its own volume.
 */
const run = promisify(execFile);

const cluster = await RealCluster.start({ flags: ['--gc-grace', '1s'] });
after(() => cluster.stop());
const [url = ''] = cluster.urls;

async function leasehold(...argv: string[]): Promise<string> {
  const servers = ['--servers', cluster.urls.join(',')];
  return (await run(process.execPath, [LAUNCHER, ...argv, ...servers])).stdout;
}

async function trashOf(place: string): Promise<readonly TrashedFile[]> {
  return (JSON.parse(await leasehold('trash', 'ls', place, '--json')) as { files: TrashedFile[] }).files;
}

async function volumeOf(name: string): Promise<VolumeInfo> {
  const { volumes } = JSON.parse(await leasehold('volume', 'ls', '--json')) as { volumes: VolumeInfo[] };
  const volume = volumes.find((one) => one.name === name);
  assert.ok(volume !== undefined);
  return volume;
}

const put = (path: string, body: string) => ask(url, 'PUT', `/v1/files/${path}?parents=true`, { body });

async function store(path: string, body: string): Promise<void> {
  const answer = await put(path, body);
  assert.ok(answer.status < 300, answer.text);
}

const TRANSPORTS = [
  { transport: 'native', obstacle: await mountObstacle() },
  { transport: 'kernel', obstacle: kernelTransportObstacle() },
] as const;

for (const { transport, obstacle } of TRANSPORTS) {
  const skip =
    obstacle === null
      ? transport === 'native' && onlyLong('the test over kernel')
      : `Nothing can be mounted: ${obstacle}`;
  test(`a tree that rm -r removed on a mount is restored, and so is what a rename replaced (${transport})`, {
    skip,
  }, async (t) => {
    await leasehold('volume', 'create', transport, '--trash', '30d');
    const mount = await ClusterMount.start(cluster, transport, '--transport', transport);
    t.after(() => mount.stop());
    await mkdir(mount.path('tree', 'deep'), { recursive: true });
    const files = ['tree/one', 'tree/deep/two', 'tree/deep/three'];
    for (const path of files) await writeFile(mount.path(path), `contents of ${path}`);
    await writeFile(mount.path('tree/empty'), '');
    await runOk('rm', ['-r', mount.path('tree')]);
    assert.deepEqual(await readdir(mount.directory), []);
    const kept = await trashOf(transport);
    assert.deepEqual(
      kept.map(({ path }) => path).filter((path) => path !== '/tree/empty'),
      files.map((path) => `/${path}`).sort(),
    );
    assert.match(kept[0]?.removedBy ?? '', /^mount on .*, by .*uid \d+/);
    await leasehold('trash', 'restore', `${transport}:/tree`);
    for (const path of files) assert.equal(await readFile(mount.path(path), 'utf8'), `contents of ${path}`);

    await writeFile(mount.path('draft'), 'new');
    await rename(mount.path('draft'), mount.path('tree/one'));
    // The name is taken: the command says so, and restores it under another one.
    await assert.rejects(leasehold('trash', 'restore', `${transport}:/tree/one`), {
      code: 4,
      stderr: /already/,
    });
    await leasehold('trash', 'restore', `${transport}:/tree/one`, '--to', '/old/one');
    assert.equal(await readFile(mount.path('old/one'), 'utf8'), 'contents of tree/one');
    assert.equal(await readFile(mount.path('tree/one'), 'utf8'), 'new');
  });
}

test('REST lists, restores and empties', async () => {
  await leasehold('volume', 'create', 'rest', '--trash', '1h');
  await store('rest/d/a', 'first');
  await store('rest/d/a', 'second');
  await store('rest/d/b', 'other');
  assert.equal((await ask(url, 'DELETE', '/v1/files/rest/d/b?trash=maybe')).status, 400);
  assert.equal((await ask(url, 'DELETE', '/v1/files/rest/d/?recursive=true')).status, 204);
  interface Page {
    readonly files: readonly {
      file: number;
      path: string;
      size: number;
      removed: string;
      keptUntil: string;
    }[];
    readonly more: boolean;
    readonly next?: string;
  }
  const list = (query = '') => askJson<Page>(url, `/v1/trash/rest${query}`);
  const { files } = await list();
  assert.deepEqual(
    files.map(({ path, size }) => [path, size]),
    [
      ['/d/a', 5],
      ['/d/a', 6],
      ['/d/b', 5],
    ],
  );
  const [first, second, other] = files;
  assert.ok(first !== undefined && second !== undefined && other !== undefined);
  assert.equal(Date.parse(first.keptUntil) - Date.parse(first.removed), 3_600_000);
  const page = await list('?limit=2');
  assert.equal(page.more, true);
  assert.deepEqual((await list(`?after=${encodeURIComponent(page.next ?? '')}`)).files, [other]);

  const restore = (file: number, query = '') => ask(url, 'POST', `/v1/trash/rest/${file}/restore${query}`);
  assert.deepEqual(JSON.parse((await restore(second.file)).text), { file: second.file, path: '/d/a' });
  assert.equal((await ask(url, 'GET', '/v1/files/rest/d/a')).text, 'second');
  const taken = await restore(first.file);
  assert.deepEqual([taken.status, problemIn(taken).code], [409, 'exists']);
  assert.equal((await restore(first.file, '?to=/e/f')).status, 200);
  assert.equal((await ask(url, 'GET', '/v1/files/rest/e/f')).text, 'first');
  assert.equal((await restore(first.file)).status, 404);

  assert.equal((await ask(url, 'DELETE', `/v1/trash/rest/${other.file}`)).status, 204);
  assert.equal((await ask(url, 'DELETE', '/v1/files/rest/e/f?trash=false')).status, 204);
  await leasehold('rm', 'rest:/d/a', '--no-trash');
  assert.deepEqual((await list()).files, []);
  assert.equal((await ask(url, 'GET', '/v1/trash/none')).status, 404);
});

test('emptying the trash frees a quota that it has used up', async () => {
  await leasehold('volume', 'create', 'full', '--trash', '1h', '--quota', '1MiB');
  const body = 'x'.repeat(700_000);
  assert.equal((await put('full/a', body)).status, 201);
  assert.equal((await ask(url, 'DELETE', '/v1/files/full/a')).status, 204);
  const refused = await put('full/b', body);
  assert.deepEqual([refused.status, problemIn(refused).code], [507, 'quota-exceeded']);
  assert.match(problemIn(refused).detail, /700000 of them are in its trash/);
  assert.match(await leasehold('volume', 'ls'), /^full .* 683\.6 KiB for 1h /m);
  await until('the metrics report it', async () => {
    const texts = await Promise.all(
      cluster.urls.map(async (each) => (await ask(each, 'GET', '/metrics')).text),
    );
    return /leasehold_volume_trash_bytes\{volume="full"\} 700000/.test(texts.join('\n'));
  });
  assert.match(await leasehold('trash', 'empty', 'full'), /Deleted 1 file permanently/);
  assert.equal((await put('full/b', body)).status, 201);
});

test('a file past its trash period is collected, and its replicas are removed', async () => {
  await leasehold('volume', 'create', 'short', '--trash', '5s');
  await store('short/a', 'gone soon');
  const { file } = await cluster.info('s1', 'short/a');
  await ask(url, 'DELETE', '/v1/files/short/a');
  assert.equal((await volumeOf('short')).trashedInodes, 1);
  await until('it is collected', async () => (await volumeOf('short')).trashedInodes === 0);
  assert.deepEqual(await trashOf('short'), []);
  assert.equal((await ask(url, 'POST', `/v1/trash/short/${file}/restore`)).status, 404);
});

test('writes to a file in the trash are there when it is restored', {
  skip: kernelTransportObstacle() ?? false,
}, async (t) => {
  await leasehold('volume', 'create', 'open', '--trash', '1h');
  const mount = await ClusterMount.start(cluster, 'open', '--transport', 'kernel');
  t.after(() => mount.stop());
  const script = 'exec 3>"$0"; echo before >&3; rm "$0"; echo after >&3; exec 3>&-';
  await runOk('sh', ['-c', script, mount.path('log')]);
  await leasehold('trash', 'restore', 'open:/log');
  assert.equal(await readFile(mount.path('log'), 'utf8'), 'before\nafter\n');
  await unlink(mount.path('log'));
  await rm(mount.path('log'), { force: true });
});
