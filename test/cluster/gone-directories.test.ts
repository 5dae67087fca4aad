/**
 * Goal: an open directory whose name is removed is as on a local disk: no links, no entries, and its attributes can be
 * set (xfstests generic/035). Native libfuse has no path for it (docs/posix.md).
 */
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const PROGRAM = fileURLToPath(new URL('gone-directory.py', import.meta.url));
const WAYS = ['rmdir-here', 'replaced-here', 'rmdir-there', 'replaced-there'];

const obstacle = kernelTransportObstacle();
if (obstacle !== null) test('unlinked directories', { skip: obstacle }, () => undefined);
else {
  const cluster = await RealCluster.start({ servers: 1 });
  after(() => cluster.stop());
  for (const cache of ['ttl:1s', 'leases', 'strict']) {
    const volume = cache.replace(':', '-');
    test(`open directories that are removed (${cache})`, async (t) => {
      await cluster.createVolume(volume);
      const flags = ['--transport', 'kernel', '--cache', cache];
      const here = await ClusterMount.start(cluster, volume, ...flags);
      t.after(() => here.stop());
      const there = await ClusterMount.start(cluster, volume, ...flags);
      t.after(() => there.stop());
      for (const how of WAYS) await runOk('python3', [PROGRAM, here.directory, there.directory, how]);
    });
  }
}
