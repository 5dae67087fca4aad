import assert from 'node:assert/strict';
import { release } from 'node:os';
import { after, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { isLinuxSince } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

/**
 * Goal: programs see a file's time of creation (`statx`), on all mounts, over the transport whose kernel requests it.
 */

const obstacle =
  (await mountObstacle()) ??
  (process.getuid?.() === 0 ? null : 'only root speaks with the kernel') ??
  (isLinuxSince(release(), [6, 6]) ? null : 'the kernel asks for no times of creation before Linux 6.6');

test('the time of creation belongs to the file, and not to its name, contents or attributes', {
  skip: obstacle === null ? false : `Nothing can be tried: ${obstacle}`,
  timeout: 120_000,
}, async (t) => {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');
  await t.test('without the option there is no time of creation', async (tt) => {
    const mount = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel');
    tt.after(() => mount.stop());
    const { text } = await runOk('sh', ['-c', 'cd "$0" && echo x > f && stat -c %W:%s f', mount.directory]);
    assert.equal(text.trim(), '0:2');
  });
  for (const cache of ['ttl:1s', 'leases', 'strict']) {
    await t.test(cache, async (tt) => {
      const mount = await ClusterMount.start(cluster, 'main', '-o', `transport=kernel,btime,cache=${cache}`);
      tt.after(() => mount.stop());
      const other = await ClusterMount.start(cluster, 'main', '-o', 'transport=kernel,btime,cache=strict');
      tt.after(() => other.stop());
      const created = async (at: ClusterMount, name: string): Promise<number> => {
        const { text } = await runOk('stat', ['-c', '%.9W', at.path(name)]);
        return Number(text);
      };
      const beganS = Date.now() / 1000;
      const script = `cd "$0" && rm -rf * && mkdir d && for i in 1 2 3 4; do echo $i > d/f$i; done && ln -s x d/l`;
      await runOk('sh', ['-c', script, mount.directory]);
      for (const name of ['d', 'd/f1', 'd/f4']) {
        const here = await created(mount, name);
        // The servers and this machine have one clock.
        assert.ok(here >= beganS - 1 && here <= Date.now() / 1000 + 1, `${name}: ${here}, from ${beganS} on`);
        assert.equal(await created(other, name), here, name);
      }
      const before = await created(mount, 'd/f2');
      const changes =
        'cd "$0"/d && echo more >> f2 && touch -d 2001-01-01 f2 && chmod 600 f2 && mv f2 g && ln g h';
      await runOk('sh', ['-c', changes, mount.directory]);
      assert.deepEqual([await created(mount, 'd/h'), await created(other, 'd/g')], [before, before]);
      await runOk('sh', ['-c', 'cd "$0"/d && cp -p g copy', other.directory]);
      assert.ok((await created(mount, 'd/copy')) > before, 'A copy has its own time of creation');
    });
  }
});
