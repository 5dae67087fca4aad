/**
 * Goal: the SMB gateway of docs/gateways.md serves a mount as the page says.
 * Method: Samba with the packaged configuration on a mount of a real cluster, smbclient, impacket and smbtorture as
 * clients, and a second mount as the other one.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { chmod, chown, mkdir, readdir, readFile, stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, runOk } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong } from '../long.ts';
import { HeldLock, lockedAt } from './held-lock.ts';
import { Samba } from './samba.ts';

const FAR = 2 ** 40;
/** Accounts of every Linux; the second one has no rights by its name. */
const [ROOT, USER] = ['root', 'nobody'] as const;

/** What passes of smbtorture on the mount; docs/gateways.md lists what does not, and why. */
const SUITES = isLong
  ? [
      'smb2.lock.range',
      'smb2.lock.rw-exclusive',
      'smb2.read',
      'smb2.fileid',
      'smb2.connect',
      'smb2.sharemode',
    ]
  : ['smb2.lock.rw-exclusive', 'smb2.lock.zerobytelength'];

const python = ['python3', '/usr/bin/python3'].find(
  (program) => spawnSync(program, ['-c', 'import impacket']).status === 0,
);

function obstacle(): string | false {
  const kernel = kernelTransportObstacle();
  if (kernel !== null) return kernel;
  for (const program of ['smbd', 'smbclient'])
    if (spawnSync(program, ['--version']).status !== 0) return `${program} is not installed`;
  const module = spawnSync('sh', [
    '-c',
    'ls "$(smbd -b | sed -n "s/ *MODULESDIR: //p")/vfs/streams_xattr.so"',
  ]);
  return module.status === 0 ? false : 'samba-vfs-modules is not installed';
}

const skip = obstacle();

test('SMB by Samba on a mount of a real cluster', { skip, timeout: 900_000 }, async (t) => {
  const cluster = await RealCluster.start();
  t.after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel');
  t.after(() => mount.stop());
  const other = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel');
  t.after(() => other.stop());
  const samba = await Samba.start(cluster.folder, mount.directory, [ROOT, USER]);
  t.after(() => samba.stop());
  const local = join(cluster.folder, 'local');
  mkdirSync(local);
  await mkdir(other.path('d'));

  await t.test('files go both ways, with names in UTF-8', async () => {
    await writeFile(join(local, 'a'), 'by SMB\n');
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; put a "größe 日本"; rename "größe 日本" "b c"`);
    assert.deepEqual(await readdir(other.path('d')), ['b c']);
    assert.equal(await readFile(other.path('d', 'b c'), 'utf8'), 'by SMB\n');
    await writeFile(other.path('d', 'b c'), 'by the mount\n');
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; get "B C" got`);
    assert.equal(readFileSync(join(local, 'got'), 'utf8'), 'by the mount\n');
    await unlink(other.path('d', 'b c'));
    assert.match((await samba.smbclient(ROOT, 'ls "d/b c"')).text, /NT_STATUS_NO_SUCH_FILE/);
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; put a; del a`);
    assert.deepEqual(await readdir(other.path('d')), []);
  });

  await t.test('names that another mount changes are seen at once, in a directory with many', async () => {
    const count = isLong ? 20_000 : 150;
    await mkdir(other.path('many'));
    const script = 'seq -f f%05g 0 "$1" | xargs touch';
    await runOk('sh', ['-c', script, 'sh', String(count - 1)], { cwd: other.path('many') });
    const listed = await samba.smbclientOk(ROOT, 'ls "many/f*"');
    assert.equal(listed.match(/^ {2}f\d{5} /gm)?.length, count);
  });

  await t.test('a large file, a stream, and attributes are on the other mount', async () => {
    const bytes = Buffer.alloc(isLong ? 200_000_000 : 20_000_000, '0123456789abcde');
    await writeFile(join(local, 'large'), bytes);
    await writeFile(join(local, 'note'), 'a stream');
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; put large; put note large:note; setmode large +h`);
    assert.ok((await readFile(other.path('d', 'large'))).equals(bytes));
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; get large:note back`);
    assert.equal(readFileSync(join(local, 'back'), 'utf8'), 'a stream');
    const { text } = await runOk('getfattr', ['-m', '^user', other.path('d', 'large')]);
    assert.match(text, /user\.DosStream\.note/);
    assert.match(text, /user\.DOSATTRIB/);
  });

  const noLocks = python === undefined ? 'python3-impacket is not installed' : false;
  await t.test(
    'a lock by SMB and one of another mount exclude each other, beyond 32 bits',
    { skip: noLocks },
    async (t) => {
      const path = other.path('d', 'locked');
      await writeFile(path, 'x'.repeat(100));
      const client = samba.client(python as string, ROOT);
      await client.call('open', 'd\\locked');
      await client.call('lock', 'd\\locked', FAR, 10);
      assert.equal(await lockedAt(path, FAR + 9), true);
      assert.equal(await lockedAt(path, FAR + 10), false);
      await client.call('unlock', 'd\\locked', FAR, 10);
      assert.equal(await lockedAt(path, FAR + 9), false);
      const holder = await HeldLock.take(path, 0, 10);
      t.after(() => holder.release());
      await assert.rejects(client.call('lock', 'd\\locked', 5, 1), /STATUS_LOCK_NOT_GRANTED/);
      // The locks of SMB are mandatory.
      await assert.rejects(client.call('write', 'd\\locked', 5, 'no'), /STATUS_FILE_LOCK_CONFLICT/);
      await client.call('write', 'd\\locked', 50, 'yes');
      await client.call('close', 'd\\locked');
    },
  );

  await t.test('rights: those of the mount, and none without a password', async () => {
    await writeFile(join(local, 'a'), 'a');
    await chmod(other.path('d'), 0o755);
    assert.match(
      (await samba.smbclient(USER, `lcd ${local}; put a d/theirs`)).text,
      /NT_STATUS_ACCESS_DENIED/,
    );
    await mkdir(other.path('own'));
    const nobody = Number((await runOk('id', ['-u', USER])).text);
    await chown(other.path('own'), nobody, 0);
    await samba.smbclientOk(USER, `lcd ${local}; put a own/a`);
    assert.equal((await stat(other.path('own', 'a'))).uid, nobody);
    if (spawnSync('setfacl', ['--version']).status === 0) {
      await writeFile(other.path('d', 'listed'), 'x', { mode: 0o644 });
      await samba.smbclientOk(USER, `lcd ${local}; get d/listed listed`);
      await runOk('setfacl', ['-m', `u:${USER}:-`, other.path('d', 'listed')]);
      const { text } = await samba.smbclient(USER, `lcd ${local}; get d/listed listed`);
      assert.match(text, /NT_STATUS_ACCESS_DENIED/);
    }
    const guest = ['//127.0.0.1/main', '-p', String(samba.port), '-N', '-c', 'ls'];
    const refused = spawnSync('smbclient', guest, { encoding: 'utf8' });
    assert.notEqual(refused.status, 0, refused.stdout);
  });

  await t.test('the death of a primary is a pause', async () => {
    await writeFile(other.path('d', 'survives'), 'before');
    const primary = await cluster.primaryOf('main/d/survives');
    const dead = cluster.kill(primary);
    await writeFile(join(local, 'after'), 'after');
    await samba.smbclientOk(ROOT, `lcd ${local}; cd d; put after survives`);
    await dead;
    assert.equal(await readFile(other.path('d', 'survives'), 'utf8'), 'after');
    await cluster.restart(primary);
  });

  await t.test('a killed gateway holds no lock, and serves again', { skip: noLocks }, async () => {
    const client = samba.client(python as string, ROOT);
    await client.call('open', 'd\\survives');
    await client.call('lock', 'd\\survives', 0, 10);
    assert.equal(await lockedAt(other.path('d', 'survives'), 0), true);
    await samba.restart();
    assert.equal(await lockedAt(other.path('d', 'survives'), 0), false);
    await samba.smbclientOk(ROOT, 'ls d/survives');
  });

  const noTorture =
    spawnSync('smbtorture', ['--version']).status === 0 ? false : 'smbtorture is not installed';
  await t.test('smbtorture finds no fault', { skip: noTorture }, async () => {
    for (const suite of SUITES) {
      const { code, text } = await samba.smbtorture(ROOT, suite);
      assert.equal(code, 0, text.slice(-3_000));
    }
  });

  await t.test('without the mount, no client reaches the directory below', async () => {
    await mount.unmount();
    assert.match((await samba.smbclient(ROOT, 'ls')).text, /NT_STATUS_/);
  });
});
