/** What Linux offers beyond POSIX on a mount of three servers that speaks with the kernel itself. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { kernelObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const KERNEL = ['-o', 'transport=kernel,suid,dev'];

const skip = kernelObstacle() ?? false;

test('calls of Linux on a mount of a real cluster', { skip, timeout: 300_000 }, async (t) => {
  const cluster = await RealCluster.start();
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
});
