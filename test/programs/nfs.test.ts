/**
 * Goal: the NFS gateway of docs/gateways.md serves a mount as the page says.
 * Method: NFS-Ganesha with the packaged configuration on a mount of a real cluster, libnfs as the client, and a second
 * mount as the other one. Replaced are the directory, ports, clients, and the grace period.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chownSync, mkdirSync } from 'node:fs';
import { mkdir, readdir, readFile, stat, unlink, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, runOk } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong } from '../long.ts';
import { Ganesha, portmapper } from './ganesha.ts';
import { HeldLock, lockedAt } from './held-lock.ts';

const USER = 61_000;
const FAR = 2 ** 40;

function obstacle(): string | false {
  const kernel = kernelTransportObstacle();
  if (kernel !== null) return kernel;
  if (spawnSync('ganesha.nfsd', ['-v']).status !== 0) return 'nfs-ganesha is not installed';
  if (spawnSync('sh', ['-c', 'command -v rpcbind']).status !== 0) return 'rpcbind is not installed';
  const libnfs = spawnSync('python3', ['-c', 'import ctypes; ctypes.CDLL("libnfs.so.13")']);
  return libnfs.status === 0 ? false : 'libnfs13 is not installed';
}

const skip = obstacle();

test('NFS by Ganesha on a mount of a real cluster', { skip, timeout: 600_000 }, async (t) => {
  const cluster = await RealCluster.start();
  t.after(() => cluster.stop());
  await cluster.createVolume('main');
  const number = 2_000 + Math.floor(Math.random() * 6_000);
  const options = ['-o', `transport=kernel,device_number=${number}`];
  let mount = await ClusterMount.start(cluster, 'main', ...options);
  t.after(() => mount.stop());
  const other = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel');
  t.after(() => other.stop());
  mkdirSync(other.path('d'));
  chownSync(other.path('d'), USER, USER);
  const portmap = await portmapper();
  t.after(() => portmap.kill());
  const gateway = await Ganesha.start(cluster.folder, mount.directory);
  t.after(() => gateway.stop());
  const client = await gateway.client('/main', USER, 3);

  await t.test('files go both ways, with names in UTF-8', async () => {
    await client.call('write', '/d/größe 日本', 'by NFS\n');
    assert.equal(await readFile(other.path('d', 'größe 日本'), 'utf8'), 'by NFS\n');
    assert.equal((await stat(other.path('d', 'größe 日本'))).uid, USER);
    await client.call('rename', '/d/größe 日本', '/d/a');
    assert.deepEqual(await readdir(other.path('d')), ['a']);
    await writeFile(other.path('d', 'a'), 'by the mount\n');
    assert.equal(await client.call('read', '/d/a'), 'by the mount\n');
    await unlink(other.path('d', 'a'));
    assert.deepEqual(await client.call('names', '/d'), []);
    await assert.rejects(client.call('read', '/d/a'), /ENOENT/);
    await client.call('write', '/d/b', 'b');
    await client.call('unlink', '/d/b');
    assert.deepEqual(await readdir(other.path('d')), []);
  });

  await t.test('names that another mount changes are seen at once, in a directory with many', async () => {
    const count = isLong ? 20_000 : 150;
    await mkdir(other.path('d', 'many'));
    const script = 'seq -f f%05g 0 "$1" | xargs touch';
    await runOk('sh', ['-c', script, 'sh', String(count - 1)], { cwd: other.path('d', 'many') });
    const names = (await client.call('names', '/d/many')) as string[];
    assert.equal(names.length, count);
    assert.equal(names.at(-1), `f${String(count - 1).padStart(5, '0')}`);
    await unlink(other.path('d', 'many', 'f00007'));
    assert.equal(((await client.call('names', '/d/many')) as string[]).includes('f00007'), false);
  });

  await t.test('a file of many requests arrives whole', async () => {
    const times = isLong ? 10_000_000 : 1_000_000;
    await client.call('write', '/d/large', '0123456789abcdef', times);
    const bytes = await readFile(other.path('d', 'large'));
    assert.ok(bytes.equals(Buffer.alloc(16 * times, '0123456789abcdef')));
  });

  await t.test('a lock by NFS 4 and one of another mount exclude each other, beyond 32 bits', async (t) => {
    for (const name of ['by-nfs', 'by-mount']) {
      await writeFile(other.path('d', name), 'x');
      chownSync(other.path('d', name), USER, USER);
    }
    const first = await gateway.client('/main', USER, 4);
    await first.call('open', '/d/by-nfs');
    await first.call('lock', '/d/by-nfs', 'exclusive', FAR, 10);
    assert.equal(await lockedAt(other.path('d', 'by-nfs'), FAR + 9), true);
    assert.equal(await lockedAt(other.path('d', 'by-nfs'), FAR + 10), false);
    await first.call('lock', '/d/by-nfs', 'none', FAR, 10);
    assert.equal(await lockedAt(other.path('d', 'by-nfs'), FAR + 9), false);
    const holder = await HeldLock.take(other.path('d', 'by-mount'), FAR, 10);
    t.after(() => holder.release());
    const second = await gateway.client('/main', USER, 4);
    await second.call('open', '/d/by-mount');
    await assert.rejects(second.call('lock', '/d/by-mount', 'exclusive', FAR + 9, 1), /DENIED/);
  });

  await t.test(
    'rights: root is another user, users have their own, and other clients have none',
    async () => {
      const root = await gateway.client('/main', 0, 3);
      await assert.rejects(root.call('write', '/at-the-root', 'x'), /EACCES/);
      const stranger = await gateway.client('/main', USER + 1, 3);
      await assert.rejects(stranger.call('write', '/d/theirs', 'x'), /EACCES/);
      await assert.rejects(gateway.client('/closed', USER, 3), /EACCES|ENOENT/);
    },
  );

  const noLists = spawnSync('setfacl', ['--version']).status === 0 ? false : 'setfacl is not installed';
  await t.test('Ganesha ignores access control lists, as the page warns', { skip: noLists }, async () => {
    for (const [name, mode, list] of [
      ['allowed', '600', `u:${USER}:r`],
      ['refused', '644', `u:${USER}:-`],
    ] as const) {
      await writeFile(other.path('d', name), name);
      await runOk('chmod', [mode, other.path('d', name)]);
      await runOk('setfacl', ['-m', list, other.path('d', name)]);
    }
    await assert.rejects(client.call('read', '/d/allowed'), /EACCES/);
    assert.equal(await client.call('read', '/d/refused'), 'refused');
  });

  await t.test('the death of a primary is a pause', async () => {
    await client.call('write', '/d/survives', 'before');
    await client.call('open', '/d/survives');
    const primary = await cluster.primaryOf('main/d/survives');
    const dead = cluster.kill(primary);
    let count = 0;
    for (; count < 20; count++) await client.call('pwrite', '/d/survives', 6 * count, 'during');
    await dead;
    await client.call('close', '/d/survives');
    assert.equal(await readFile(other.path('d', 'survives'), 'utf8'), 'during'.repeat(count));
    await cluster.restart(primary);
  });

  await t.test(
    'handles survive restarts of the gateway and of the mount, on another directory',
    async (t) => {
      for (const name of ['kept', 'gone']) {
        await client.call('write', `/d/${name}`, name);
        await client.call('open', `/d/${name}`);
      }
      await gateway.restart(mount.directory);
      assert.equal(await client.call('pread', '/d/kept', 0, 10), 'kept');
      await gateway.kill();
      await mount.stop();
      // Takes the number that the kernel gave before.
      const between = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel');
      t.after(() => between.stop());
      mount = await ClusterMount.start(cluster, 'main', ...options);
      await gateway.restart(mount.directory);
      assert.equal(await client.call('pread', '/d/kept', 0, 10), 'kept');
      await client.call('pwrite', '/d/kept', 0, 'more');
      assert.equal(await readFile(other.path('d', 'kept'), 'utf8'), 'more');
      await unlink(other.path('d', 'gone'));
      await writeFile(other.path('d', 'gone'), 'a new file');
      // libnfs reports NFS3ERR_STALE so.
      await assert.rejects(client.call('pread', '/d/gone', 0, 10), /EFAULT/);
    },
  );
});
