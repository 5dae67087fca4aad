/**
 * Goal: what another mount writes to a file, and syncs, stays, although the mount that sent the creation does not know
 * its outcome.
 * Method: real servers and real mounts. One mount's process sends a new file with its contents, receives no answer, and
 * is disconnected until its close has failed; meanwhile another mount writes the file.
 */
import assert from 'node:assert/strict';
import { mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { noMount } from '../fuse/mounted.ts';
import { transportsOfForm } from '../posix/mounts.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'main';
const LIMIT = '3s';
const DEAF = new URL('deaf.ts', import.meta.url);
/** The mount may have received the answer before it was made deaf. */
const ATTEMPTS_MAX = 10;
/** A request that a close has sent usually takes effect within this time. */
const SENT_MS = 200;

test('synced writes to a file stay, whatever its creator learns of the creation', {
  skip: noMount,
}, async (t) => {
  const cluster = await RealCluster.start();
  t.after(() => cluster.stop());
  await cluster.createVolume(VOLUME);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  t.after(() => client.close());
  const other = await ClusterMount.start(cluster, VOLUME);
  t.after(() => other.stop());
  const sizeOf = (path: string) => client.resolve(VOLUME, path).then(({ sizeBytes }) => sizeBytes);

  const play = async (transport: string, cache: string, how: 'w' | 'wx'): Promise<void> => {
    const statePath = join(cluster.folder, `state-${transport}-${cache}-${how}`);
    const env = { NODE_OPTIONS: `--import ${DEAF}`, DEAF_STATE: statePath };
    const flags = ['--op-timeout', LIMIT, '--transport', transport, '--cache', cache];
    const mount = await ClusterMount.startIn(env, cluster, VOLUME, ...flags);
    t.after(() => mount.stop());
    const signal = () => process.kill(mount.pid, 'SIGURG');
    const reached = (state: 'deaf' | 'cut' | 'connected') =>
      until(`the mount is ${state}`, () =>
        readFile(statePath, 'utf8').then(
          (text) => text === state,
          () => false,
        ),
      );
    const folder = `${transport}-${cache}-${how}`;
    await mkdir(mount.path(folder));
    for (let count = 0; count < 5; count++) await writeFile(mount.path(folder, `warm${count}`), 'warm');
    for (let attempt = 0; ; attempt++) {
      assert.ok(attempt < ATTEMPTS_MAX, 'No answer was lost');
      const name = `x${attempt}`;
      const text = `${name} by its creator `.repeat(500);
      const file = await open(mount.path(folder, name), how);
      await file.writeFile(text);
      signal();
      const closing = file.close().then(
        () => null,
        (error: unknown) => error,
      );
      // A query for the size of a file that has its name opens it, and its contents would then be written in the
      // ordinary way.
      if (how === 'wx') await delay(SENT_MS);
      await until('the cluster has the file', () =>
        sizeOf(`/${folder}/${name}`).then(
          (size) => size > 0,
          () => false,
        ),
      );
      await reached('deaf');
      signal();
      await reached('cut');
      const error = await closing;
      if (error === null) {
        signal();
        await reached('connected');
        continue;
      }
      assert.match(String(error), /ETIMEDOUT/);
      const theirs = await open(other.path(folder, name), 'w');
      await theirs.writeFile('by another mount');
      await theirs.sync();
      await theirs.close();
      signal();
      await reached('connected');
      await until('its attempts have ended', () => synced(mount.path(folder)));
      assert.equal(await readFile(other.path(folder, name), 'utf8'), 'by another mount', folder);
      return;
    }
  };
  const ways = (await transportsOfForm()).flatMap((transport) =>
    ['ttl:1s', 'leases'].map((cache) => [transport, cache] as const),
  );
  for (const how of ['w', 'wx'] as const) await Promise.all(ways.map((way) => play(...way, how)));
});

test('a write that expects the contents of a new file is refused once other clients have written', async (t) => {
  const cluster = await RealCluster.start();
  t.after(() => cluster.stop());
  await cluster.createVolume(VOLUME);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  t.after(() => client.close());
  const { first } = await client.reserveInodes(2);
  const create = async (name: string, inode: number) => {
    const reserved = { inode, owner: client.inodeOwner };
    const node = {
      place: { volume: VOLUME, path: name },
      mode: 0o600,
      uid: 0,
      gid: 0,
      exclusive: true,
    } as const;
    return client.command({ kind: 'create-file', ...node, reserved });
  };
  const ifContents = { epoch: 0, seq: 0 };
  for (const [name, inode] of [
    ['/written-here', first],
    ['/written-by-others', first + 1],
  ] as const) {
    assert.equal((await create(name, inode)).created, true);
    const { attributes, created } = await create(name, inode);
    assert.deepEqual([attributes.contents, created], [ifContents, false]);
    const file = client.openFile(inode);
    if (name === '/written-by-others') await client.openFile(inode).write(0, Buffer.from('theirs'));
    const writing = file.write(0, Buffer.from('ours'), { ifContents });
    if (name === '/written-here') await writing;
    else await assert.rejects(writing, { code: 'precondition-failed' });
  }
});

/** @returns true when all files created in the directory are at the cluster, or have failed */
async function synced(folder: string): Promise<true> {
  const directory = await open(folder, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
  return true;
}
