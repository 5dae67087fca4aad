/**
 * Goal: with `--cache leases` no mount sees outdated answers of another mount's changes, and a client that is silent,
 * dead or disconnected delays others for no longer than its session.
 * Method: real servers, two real mounts and a client of the library change names, modes and contents in turn; after
 * each change all of them must show it at once. Then mounts are stopped and killed, and the catalog's primary is
 * killed.
 */
import assert from 'node:assert/strict';
import {
  appendFile,
  chmod,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rmdir,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { noMount } from '../fuse/mounted.ts';
import { onlyLong, SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const VOLUME = 'shared';
const ROUNDS = Number(process.env.ROUNDS ?? 200);

type Shown = string | null;

/** What a mount shows at a name: kind, mode, links, and contents. */
async function shown(path: string): Promise<Shown> {
  try {
    const stats = await lstat(path);
    if (stats.isSymbolicLink()) return `link to ${await readlink(path)}`;
    const mode = (stats.mode & 0o777).toString(8);
    if (stats.isDirectory()) return `directory ${mode} of ${(await readdir(path)).sort().join()}`;
    return `file ${mode} with ${stats.nlink} names of ${stats.size} bytes: ${await readFile(path, 'utf8')}`;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

/** Refusals that follow from the present state; whether they are right is tested elsewhere. */
async function tolerant(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (/^(ENOENT|EEXIST|ENOTEMPTY|EISDIR|ENOTDIR|EPERM|EINVAL|ELOOP|not-found)$/.test(code)) return false;
    throw error;
  }
}

describe('mounts that cache', { skip: noMount }, () => {
  let cluster: RealCluster;
  let client: ClusterClient;
  const mounts: ClusterMount[] = [];

  before(async () => {
    cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
    client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
    await client.command({
      kind: 'volume-create',
      name: VOLUME,
      replicas: SERVERS_OF_FORM,
      objectBytes: 65_536,
    });
    for (let place = 0; place < 2; place++)
      mounts.push(await ClusterMount.start(cluster, VOLUME, '--cache', 'leases'));
  });

  after(async () => {
    for (const mount of mounts) await mount.stop();
    await client?.close();
    await cluster?.stop();
  });

  const paths = (name: string) => mounts.map((mount) => mount.path(name));

  async function bothShow(name: string): Promise<Shown> {
    const [a, b] = await Promise.all(paths(name).map(shown));
    assert.equal(a, b, name);
    return a ?? null;
  }

  test('all clients see a change of one at once', async () => {
    const prng = new Prng(Number(process.env.SEED ?? 1));
    const folders = ['one', 'two'];
    for (const folder of folders) await mkdir(mounts[0]?.path(folder) ?? '');
    const anyName = () => `${prng.pick(folders)}/${prng.pick([...'abcde'])}`;
    let done = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const mount = prng.pick(mounts);
      const [name, other] = [anyName(), anyName()];
      const at = mount.path(name);
      const acts: (() => Promise<unknown>)[] = [
        () => writeFile(at, `${round}`.repeat(1 + prng.integer(0, 19))),
        () => appendFile(at, `+${round}`),
        () => chmod(at, 0o600 + prng.integer(0, 0o177)),
        () => unlink(at),
        () => rename(at, mount.path(other)),
        () => link(at, mount.path(other)),
        () => symlink(other, at),
        () => mkdir(at),
        () => rmdir(at),
        async () => {
          const { inode } = await client.resolve(VOLUME, `/${name}`, { follow: false });
          await client.command({ kind: 'set-attributes', inode, mode: 0o600 + prng.integer(0, 0o177) });
        },
      ];
      const act = prng.pick(acts);
      if (await tolerant(act)) done++;
      await bothShow(name);
      await bothShow(other);
      for (const folder of folders) await bothShow(folder);
    }
    assert.ok(done > ROUNDS / 8, `${done} changes`);
    const recalls = await cluster.counted('leasehold_cache_recalls_total');
    assert.ok(recalls > 10, `${recalls} recalls`);
  });

  test('a stopped mount delays a change until its session has ended, and sees the change when it continues', async () => {
    const [a, b] = mounts as [ClusterMount, ClusterMount];
    await mkdir(a.path('stopped'));
    assert.equal((await stat(b.path('stopped'))).mode & 0o777, 0o755);
    process.kill(b.pid, 'SIGSTOP');
    try {
      await chmod(a.path('stopped'), 0o700);
      // A change of what the silent mount has not cached does not wait.
      await mkdir(a.path('stopped-other'));
    } finally {
      process.kill(b.pid, 'SIGCONT');
    }
    assert.equal((await stat(b.path('stopped'))).mode & 0o777, 0o700);
  });

  test('the death of the catalog’s primary leaves no mount with outdated answers', {
    skip: onlyLong('test/simulation/cluster/cluster.test.ts'),
  }, async () => {
    const [a, b] = mounts as [ClusterMount, ClusterMount];
    await mkdir(a.path('failover'));
    for (let mode = 0o700; mode < 0o702; mode++) {
      assert.ok((await stat(b.path('failover'))).isDirectory());
      const primary = (await client.status()).catalog.primary;
      assert.ok(primary !== null);
      await cluster.kill(primary);
      await chmod(a.path('failover'), mode);
      assert.equal((await stat(b.path('failover'))).mode & 0o777, mode);
      cluster.spawn(primary);
      await cluster.ready([primary]);
    }
  });

  test('the death of a mount delays a change until its session has ended', async () => {
    const [a, b] = mounts as [ClusterMount, ClusterMount];
    await mkdir(a.path('killed'));
    assert.ok((await stat(b.path('killed'))).isDirectory());
    await b.stop();
    mounts.pop();
    await chmod(a.path('killed'), 0o700);
    assert.equal((await stat(a.path('killed'))).mode & 0o777, 0o700);
  });
});
