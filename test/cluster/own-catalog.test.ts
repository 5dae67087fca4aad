import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import { type CatalogNumber, catalogOfInode } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a server leaves the cluster, with a volume that has its own catalog: files and catalog move to the others.
 * Method: four real servers; three of them are members of the catalog, and one of these is drained and removed.
 */
const FILES = 8;
const MOVE_MS_MAX = 240_000;
const ONE = 1 as CatalogNumber;
const MINE = { mode: 0o644, uid: 0, gid: 0 };

const cluster = await RealCluster.start({ flags: ['--gc-grace', '1500ms', '--lease-idle', '1s'] });
const servers = cluster.ids.map((id) => cluster.url(id));
const client = new ClusterClient({ world: systemWorld, servers });
/** For requests about names of the volume. */
const ofVolume = new ClusterClient({ world: systemWorld, servers, catalog: ONE });
after(async () => {
  await client.close();
  await ofVolume.close();
  await cluster.stop();
});
const names = Array.from({ length: FILES }, (_, index) => `projects/file-${index}`);
let writes = 0;
const bodyOf = (name: string): Buffer => createHash('sha512').update(name).digest();

async function leaving(): Promise<{
  readonly catalog: readonly string[];
  readonly files: readonly string[][];
}> {
  const { catalogs } = await client.query({ kind: 'catalogs' });
  const infos = await Promise.all(names.map((name) => cluster.info('s2', name)));
  return {
    catalog: catalogs[0]?.members ?? [],
    files: infos.map(({ view }) => [...view.members]),
  };
}

test("a member of a volume's catalog is drained and removed, and nothing is lost", async () => {
  await client.command({ kind: 'catalog-create', name: 'projects', replicas: 3, objectBytes: 65_536 });
  // Numbers that are reserved for files with contents count as files of their servers for a quarter of an hour.
  for (const name of names) {
    const place = { volume: 'projects', path: name.replace('projects/', '') };
    const { attributes } = await ofVolume.command({ kind: 'create-file', place, ...MINE, exclusive: true });
    assert.equal(catalogOfInode(attributes.inode), ONE);
    const path = `/v1/data/${attributes.inode}?offset=0&session=77&since=0&number=${++writes}`;
    const { status, text } = await ask(cluster.url('s1'), 'PUT', path, { body: bodyOf(name) });
    assert.ok(status < 300, text);
  }
  await cluster.join('s4', cluster.ids.slice(0, 3));
  await client.command({ kind: 'server-state', id: 's1', state: 'draining' });
  await until(
    'files and catalogs have left s1',
    async () => {
      const { catalog, files } = await leaving();
      return [catalog, ...files].every((members) => members.length === 3 && !members.includes('s1'));
    },
    MOVE_MS_MAX,
  );
  await until(
    's1 can be removed',
    async () => {
      await client.command({ kind: 'server-remove', id: 's1', dead: false });
      return true;
    },
    MOVE_MS_MAX,
  );
  await cluster.kill('s1');
  for (const name of names) {
    const { status, bytes } = await ask(cluster.url('s4'), 'GET', `/v1/files/${name}`);
    assert.equal(status, 200);
    assert.deepEqual(Buffer.from(bytes), bodyOf(name), name);
  }
  const { status, text } = await ask(cluster.url('s4'), 'PUT', '/v1/files/projects/later', { body: 'later' });
  assert.equal(status, 201, text);
  const { view } = await cluster.info('s2', 'projects/later');
  assert.deepEqual(view.members.toSorted(), ['s2', 's3', 's4']);
});
