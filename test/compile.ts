/**
 * Runs servers, a mount and commands for a moment, so that V8's compiled code is stored for the tests
 * (test/compiled-script.ts). Each process stores it when it ends in order.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { mountObstacle } from '../client/mounts/mount-process.ts';
import { runCli } from './client/run-cli.ts';
import { ClusterMount } from './cluster/cluster-mount.ts';
import { RealCluster } from './cluster/real-cluster.ts';

const cluster = await RealCluster.start({ servers: 2 });
try {
  await cluster.createVolume('main');
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
  for (const url of cluster.urls) {
    const file = `${url}/v1/files/main/file-of-${new URL(url).port}`;
    for (const method of ['PUT', 'GET', 'DELETE', 'PUT']) {
      const response = await fetch(file, { method, ...(method === 'PUT' ? { body: 'contents' } : {}) });
      await response.arrayBuffer();
    }
  }
  await runCli(['put', '-', 'main:/put'], { env, input: 'contents' });
  await runCli(['get', 'main:/put', '-'], { env });
  await runCli(['status'], { env });
  if ((await mountObstacle()) === null) {
    const mount = await ClusterMount.start(cluster, 'main');
    try {
      await mkdir(mount.path('directory'));
      await writeFile(mount.path('directory/file'), 'contents');
      await rename(mount.path('directory/file'), mount.path('renamed'));
      await readFile(mount.path('renamed'));
      await readdir(mount.directory);
      await rm(mount.path('renamed'));
      await mount.unmount();
    } finally {
      await mount.stop();
    }
  }
  // In order: a killed process stores nothing.
  await Promise.all(cluster.ids.map((id) => cluster.kill(id, 'SIGTERM')));
} finally {
  await cluster.stop();
}
