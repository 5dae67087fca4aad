/**
 * Goal: clients see a clone as a whole from its creation on, at each server, also if the catalog's primary ends while
 * directories are filled; and no contents that are not the file's. Real processes.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

/** More than one command copies. */
const ENTRIES = 1_050;
const DIRECTORIES = 3;
const NO_MOUNT = (await mountObstacle()) ?? false;
const CONTENTS = 'contents of the snapshot';

const cluster = await RealCluster.start({ flags: ['--op-timeout', '10s'] });
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const owner = { uid: 1, gid: 1 };

async function directory(volume: string, path: string): Promise<number> {
  const place = { volume, path };
  return (await client.command({ kind: 'make-directory', place, mode: 0o755, ...owner })).attributes.inode;
}

/** Fills directories of `main`, and makes a snapshot of it. */
async function prepare(): Promise<void> {
  for (let number = 0; number < DIRECTORIES; number++) {
    const parent = await directory('main', `/d${number}`);
    const names = Array.from({ length: ENTRIES }, (_, index) => `n${index}`);
    const work = async (): Promise<void> => {
      for (let name = names.pop(); name !== undefined; name = names.pop())
        await client.command({ kind: 'symlink', place: { parent, name }, target: 'x', ...owner });
    };
    await Promise.all(Array.from({ length: 64 }, work));
  }
  const answer = await ask(cluster.url('s1'), 'PUT', '/v1/files/main/file', { body: CONTENTS });
  assert.ok(answer.status < 300, answer.text);
  await client.command({ kind: 'snapshot-create', volume: 'main', name: 'monday' });
}

async function namesIn(volume: string, path: string): Promise<number> {
  const { attributes } = await client.query({ kind: 'resolve', volume, path, follow: false });
  let count = 0;
  for (let after = ''; ; ) {
    const query = { kind: 'list', inode: attributes.inode, after, countMax: 1_000 } as const;
    const { entries, more } = await client.query(query);
    count += entries.length;
    if (!more) return count;
    after = entries.at(-1)?.name ?? '';
  }
}

await prepare();

test('each server shows all of a new clone, which can be changed', async () => {
  await client.command({ kind: 'clone-create', name: 'copy', volume: 'main', snapshot: 'monday' });
  for (const [place, id] of cluster.ids.entries()) {
    const answer = await ask(cluster.url(id), 'GET', `/v1/files/copy/d${place}/?limit=1`);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(await namesIn('copy', `/d${place}`), ENTRIES);
  }
  await directory('copy', '/d1/new');
  assert.equal(await namesIn('copy', '/d1'), ENTRIES + 1);
  assert.equal(await namesIn('main', '/d1'), ENTRIES);
  const from = { volume: 'copy', path: '/d1/n7' };
  await client.command({ kind: 'rename', from, to: { volume: 'copy', path: '/d2/moved' }, mode: 'replace' });
  assert.equal(await namesIn('copy', '/d2'), ENTRIES + 1);
});

test('each server reads files of a clone where their contents are, and that copies none of them', async () => {
  const text = await Promise.all(cluster.ids.map((id) => ask(cluster.url(id), 'GET', '/v1/files/copy/file')));
  assert.deepEqual(
    text.map((answer) => [answer.status, answer.text]),
    cluster.ids.map(() => [200, CONTENTS]),
  );
  const query = { kind: 'resolve', volume: 'copy', path: '/file', follow: false } as const;
  const { attributes } = await client.query(query);
  assert.equal(attributes.shared, true);
  // The file that preserves them, once the original is written.
  const original = await client.query({ ...query, volume: 'main' });
  const handle = client.openFile(original.attributes.inode);
  await handle.write(0, Buffer.from('OTHER'));
  const data = `/v1/data/${attributes.inode}`;
  for (const id of cluster.ids) {
    const part = await ask(cluster.url(id), 'GET', `${data}?offset=9&length=2`);
    assert.deepEqual([part.status, part.text], [200, 'of']);
    const head = await ask(cluster.url(id), 'HEAD', '/v1/files/copy/file');
    assert.deepEqual(
      [head.status, head.headers['content-length'], head.headers.etag],
      [200, String(CONTENTS.length), text[0]?.headers.etag],
    );
    const locks = await ask(cluster.url(id), 'GET', `${data}/locks`);
    assert.equal(locks.status, 200, locks.text);
    const standing = await ask(cluster.url(id), 'GET', `${data}/standing`);
    assert.match(standing.text, /has no servers of its own: its contents are those of a snapshot/);
  }
  const extent = await ask(cluster.url('s2'), 'GET', `${data}/extents?offset=0&whence=hole`);
  assert.equal(extent.status, 200, extent.text);
  await client.command({ kind: 'snapshot-create', volume: 'copy', name: 'of-copy' });
  const ofSnapshot = await ask(cluster.url('s3'), 'GET', '/v1/files/copy@of-copy/file');
  assert.deepEqual([ofSnapshot.status, ofSnapshot.text], [200, CONTENTS]);
  assert.deepEqual((await client.query(query)).attributes, attributes, 'Reads change nothing');
});

test('a mount of a clone reads its files, and changes what needs no contents', {
  skip: NO_MOUNT,
}, async () => {
  const mount = await ClusterMount.start(cluster, 'copy');
  const script = `
    test "$(cat file)" = '${CONTENTS}' && test "$(ls d0 | wc -l)" = ${ENTRIES}
    mv file d0/renamed && test "$(cat d0/renamed)" = '${CONTENTS}'
    echo written > new && test "$(cat new)" = written
    test "$(cat d0/renamed)" = '${CONTENTS}'
  `;
  try {
    await runOk('bash', ['-e', '-c', script], { cwd: mount.directory });
  } finally {
    await mount.stop();
  }
});

test('directories that are being filled when the primary ends are whole afterwards', async () => {
  await client.command({ kind: 'clone-create', name: 'another', volume: 'main', snapshot: 'monday' });
  const paths = Array.from({ length: DIRECTORIES }, (_, number) => `/d${number}`);
  for (const path of paths) {
    const query = { kind: 'resolve', volume: 'another', path, follow: false } as const;
    const { inode } = (await client.query(query)).attributes;
    assert.deepEqual(await client.command({ kind: 'clone-fill', inode, countMax: 7 }), { done: false });
  }
  assert.equal(await unfilled('another'), DIRECTORIES + 1, 'With a file');
  const lists = paths.map((path) => namesIn('another', path));
  const primary = client.catalogPrimary ?? 's1';
  await cluster.kill(primary);
  assert.deepEqual(
    await Promise.all(lists),
    lists.map(() => ENTRIES),
  );
  assert.equal(await unfilled('another'), 1);
  await cluster.restart(primary);
});

async function unfilled(name: string): Promise<number> {
  const { volume } = await client.query({ kind: 'volume', name });
  return volume.clone?.unfilled ?? 0;
}
