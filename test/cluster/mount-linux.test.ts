/** What Linux offers beyond POSIX on a mount of a real cluster with the kernel transport. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { HANDLES_VALID, openedByHandles } from './file-handles.ts';
import { RealCluster } from './real-cluster.ts';

const KERNEL = ['-o', 'transport=kernel,suid,dev'];

const skip = kernelTransportObstacle() ?? false;

test('calls of Linux on a mount of a real cluster', { skip, timeout: 300_000 }, async (t) => {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main', ...KERNEL);
  after(() => mount.stop());

  await t.test('a program has the capabilities of its file, until the file is written', async (t) => {
    if ((await run('setcap', ['-h'])).code === null) return t.skip('There is no setcap');
    const program = mount.path('show');
    await runOk('cp', ['/bin/grep', program]);
    await runOk('chmod', ['755', mount.directory]);
    const effective = async (): Promise<string> => {
      const argv = [
        '--reuid=65534',
        '--regid=65534',
        '--clear-groups',
        program,
        'CapEff',
        '/proc/self/status',
      ];
      return (await runOk('setpriv', argv)).text.split(/\s+/)[1] ?? '';
    };
    assert.equal(BigInt(`0x${await effective()}`), 0n);
    await runOk('setcap', ['cap_net_raw+ep', program]);
    assert.match((await runOk('getcap', [program])).text, /cap_net_raw[=+]ep/);
    assert.equal(BigInt(`0x${await effective()}`), 1n << 13n);
    await runOk('sh', ['-c', 'printf x >> "$1"', 'sh', program]);
    assert.equal((await runOk('getcap', [program])).text, '');
    assert.equal(BigInt(`0x${await effective()}`), 0n);
  });

  await t.test(
    'a file handle is valid on a mount that has not seen the file, and for no other volume',
    async () => {
      await cluster.createVolume('private');
      const other = await ClusterMount.start(cluster, 'main', ...KERNEL);
      const secret = await ClusterMount.start(cluster, 'private', ...KERNEL);
      try {
        assert.equal(
          await openedByHandles(mount.directory, other.directory, secret.directory),
          HANDLES_VALID,
        );
      } finally {
        await Promise.all([other.stop(), secret.stop()]);
      }
    },
  );

  await t.test('a mount has the device number that it was given, and no other mount has', async () => {
    const number = 2_000 + Math.floor(Math.random() * 6_000);
    const options = ['-o', `transport=kernel,device_number=${number}`];
    const first = await ClusterMount.start(cluster, 'main', ...options);
    try {
      assert.equal((await runOk('mountpoint', ['-d', first.directory])).text.trim(), `0:${number}`);
      await assert.rejects(ClusterMount.start(cluster, 'main', ...options), /0:\d+ is in use.*NFS server/s);
    } finally {
      await first.stop();
    }
    // Both at once: each takes numbers of others for a moment.
    const next = String(number + 1);
    const beside = ['-o', `transport=kernel,device_number=${next}`];
    const both = await Promise.all(
      [options, beside].map((own) => ClusterMount.start(cluster, 'main', ...own)),
    );
    const devices = both.map(async ({ directory }) =>
      (await runOk('mountpoint', ['-d', directory])).text.trim(),
    );
    try {
      assert.deepEqual(await Promise.all(devices), [`0:${number}`, `0:${next}`]);
    } finally {
      await Promise.all(both.map((one) => one.stop()));
    }
    const native = ['-o', `transport=native,device_number=${number}`];
    await assert.rejects(ClusterMount.start(cluster, 'main', ...native), /needs the transport "kernel"/);
  });

  await t.test('an overlay of Linux has its upper directory on the mount', async (t) => {
    const lower = mkdtempSync(join(tmpdir(), 'leasehold-lower-'));
    const merged = mkdtempSync(join(tmpdir(), 'leasehold-merged-'));
    t.after(async () => {
      await run('umount', ['-l', merged]);
      for (const path of [lower, merged]) rmSync(path, { recursive: true, force: true });
    });
    const prepare = 'mkdir -p lib etc; echo old > etc/conf; echo lib > lib/a; echo b > b';
    await runOk('sh', ['-c', prepare], { cwd: lower });
    await runOk('mkdir', ['-p', mount.path('upper'), mount.path('work')]);
    const layers = `lowerdir=${lower},upperdir=${mount.path('upper')},workdir=${mount.path('work')}`;
    const mounted = await run('mount', ['-t', 'overlay', 'overlay', '-o', layers, merged]);
    if (/unknown filesystem type|No such device/.test(mounted.text))
      return t.skip('There are no overlays here');
    assert.equal(mounted.code, 0, mounted.text);
    const script =
      'rm b && echo new >> etc/conf && mv lib/a lib/c && rm -r lib && mkdir lib && echo x > lib/n && mv etc/conf etc/conf2 && cat etc/conf2 lib/n && ls';
    assert.equal((await runOk('sh', ['-ec', script], { cwd: merged })).text, 'old\nnew\nx\netc\nlib\n');
    assert.equal(
      (await runOk('stat', ['-c', '%F %t %T', mount.path('upper', 'b')])).text,
      'character special file 0 0\n',
    );
    await runOk('umount', [merged]);
    const again = await runOk('sh', [
      '-c',
      `mount -t overlay overlay -o ${layers} ${merged} && ls -R ${merged}`,
    ]);
    assert.deepEqual(
      again.text.split('\n').filter((line) => line !== '' && !line.endsWith(':')),
      ['etc', 'lib', 'conf2', 'n'],
    );
  });
});
