/**
 * Goal: a volume gets a catalog of its own only when all servers know such catalogs; from then on the release before
 * does not start on their data folders, and says why.
 * Method: servers of the release before, with a file, are replaced one after the other under writes.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { FOLDER_FORMAT } from '../../server/storage/folder-meta.ts';
import { systemWorld } from '../../world/system-world.ts';
import { earlierRelease } from './earlier-release.ts';
import { RealCluster, until } from './real-cluster.ts';

const PAUSE_MS = 50;
const CREATE = { kind: 'catalog-create', name: 'own', replicas: 3, objectBytes: 131_072 } as const;

const earlier = new Set(['s1', 's2', 's3']);
const cluster = await RealCluster.start({
  environment: (place) => (earlier.has(`s${place + 1}`) ? earlierRelease() : {}),
});
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const written: string[] = [];

/** Writes files until it is stopped; no write may fail. */
async function write(over: AbortSignal): Promise<void> {
  const writing = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  try {
    for (let count = 0; !over.aborted; count++) {
      const path = `/f${count}`;
      const place = { volume: 'main', path };
      const file = { mode: 0o644, uid: 0, gid: 0, exclusive: true };
      const { attributes } = await writing.command({ kind: 'create-file', place, ...file });
      await writing.openFile(attributes.inode).write(0, Buffer.from(path));
      written.push(path);
      await delay(PAUSE_MS);
    }
  } finally {
    await writing.close();
  }
}

async function contentsAt(id: string, path: string): Promise<string> {
  return (await fetch(`${cluster.url(id)}/v1/files/${path}`)).text();
}

test('until the last server is upgraded, no volume gets a catalog of its own', async () => {
  const over = new AbortController();
  const writes = write(over.signal);
  try {
    for (const id of ['s1', 's2', 's3']) {
      await assert.rejects(client.command(CREATE), (error) => {
        assert.ok(error instanceof ServiceError);
        assert.match(error.message, /without the command|of the unknown kind "catalog-create"/);
        return true;
      });
      await cluster.kill(id, 'SIGTERM');
      earlier.delete(id);
      await cluster.restart(id);
      const before = written.length;
      await until(`all works with ${id}`, async () => written.length > before + 2);
    }
  } finally {
    over.abort();
    await writes;
  }
  await until('the volume is created', async () =>
    client.command(CREATE).then(
      () => true,
      (error: unknown) => {
        // The primary has not met all others yet.
        assert.match(String(error), /without the command/);
        return false;
      },
    ),
  );
  const { status } = await fetch(`${cluster.url('s2')}/v1/files/own/a`, {
    method: 'PUT',
    body: 'of its own',
  });
  assert.equal(status, 201);
  for (const path of written) assert.equal(await contentsAt('s3', `main${path}`), path);
});

test('the release before refuses the data folders from then on, and nothing is lost', async () => {
  await cluster.kill('s2', 'SIGTERM');
  earlier.add('s2');
  const child = cluster.spawn('s2');
  cluster.foreseeEnd('s2');
  const [code] = await once(child, 'exit');
  assert.equal(code, 2);
  const said = `its format is ${FOLDER_FORMAT}, and this release supports up to ${FOLDER_FORMAT - 1}. Run the release`;
  await until('its log says why', async () => cluster.log('s2').includes(said));
  earlier.delete('s2');
  await cluster.restart('s2');
  // Without s1 a majority of each catalog needs s2.
  await cluster.kill('s1');
  await until('s2 has both volumes', async () => (await contentsAt('s2', 'own/a')) === 'of its own');
  for (const path of written)
    await until(`${path} is read`, async () => (await contentsAt('s2', `main${path}`)) === path);
});
