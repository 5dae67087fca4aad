/**
 * Goal: a volume moves from the root catalog to a catalog of its own while clients change it, and nothing is lost.
 * Method: a whole server with its real disk, which restarts afterwards; requests in a loop during the move.
 */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { test } from 'node:test';
import { type CatalogNumber, catalogOfInode, ROOT_CATALOG } from '../../base/ids.ts';
import { OneServer, until } from './one-server.ts';

const ONE = 1 as CatalogNumber;
const FILES = 40;

class Client {
  server: OneServer;
  readonly written = new Map<string, string>();

  constructor(server: OneServer) {
    this.server = server;
  }

  async put(name: string): Promise<void> {
    const body = `contents of ${name}`;
    await this.server.request(`/v1/files/main/${name}?parents=true`, { method: 'PUT', body });
    this.written.set(name, body);
  }

  async assertAllThere(): Promise<void> {
    for (const [name, body] of this.written)
      assert.equal(await this.server.request(`/v1/files/main/${name}`), body, name);
  }

  async inodeOf(name: string): Promise<number> {
    const path = `/${name}`;
    return (await this.server.query({ kind: 'resolve', volume: 'main', path, follow: false })).attributes
      .inode;
  }

  /** Whether the server still has contents of the file. */
  async hasReplica(file: number): Promise<boolean> {
    const path = `/v1/data/${file}?offset=0&length=1&consistency=stale`;
    return (await fetch(`${this.server.url}${path}`)).ok;
  }

  /** The server answers requests for its status, and counts the volume once at most. */
  async assertReported(): Promise<void> {
    const [, metrics] = await Promise.all(
      ['/v1/status', '/metrics'].map((path) => this.server.request(path)),
    );
    assert.ok([...(metrics?.matchAll(/^leasehold_volume_inodes\{volume="main"\}/gm) ?? [])].length <= 1);
  }

  async phase(): Promise<string | undefined> {
    return (await this.server.query({ kind: 'moves' })).moves[0]?.phase;
  }
}

test('a volume moves while it is changed; its files keep their numbers, and none is collected as garbage', async (t) => {
  const client = new Client(await OneServer.start(['--gc-grace', '1s']));
  const { folder } = client.server;
  t.after(async () => {
    await client.server.end();
    rmSync(folder, { recursive: true });
  });
  await client.server.registered();
  for (const name of ['main', 'other'])
    await client.server.execute({ kind: 'volume-create', name, replicas: 1, objectBytes: 65_536 });
  for (let file = 0; file < FILES; file++) await client.put(`d${file % 4}/f${file}`);
  const before = await client.inodeOf('d1/f1');
  await client.server.execute({ kind: 'volume-move', name: 'main' });
  for (let file = 0; (await client.phase()) !== 'forgotten'; file++) {
    await client.put(`during/f${file}`);
    await client.assertReported();
  }
  const { catalogs } = await client.server.query({ kind: 'catalogs' });
  assert.deepEqual(
    catalogs.map(({ name, state, moving }) => [name, state, moving]),
    [['main', 'ready', undefined]],
  );
  await client.assertAllThere();
  assert.equal(await client.inodeOf('d1/f1'), before);
  assert.equal(catalogOfInode(before), ROOT_CATALOG);
  await client.put('later');
  assert.equal(catalogOfInode(await client.inodeOf('later')), ONE);
  const { volumes } = await client.server.query({ kind: 'volumes' });
  assert.deepEqual(volumes.map(({ name, inodes }) => [name, inodes]).toSorted(), [
    ['main', client.written.size + 6],
    ['other', 1],
  ]);
  // A removed file is collected by its new catalog.
  const removed = await client.inodeOf('d1/f1');
  const { status } = await fetch(`${client.server.url}/v1/files/main/d1/f1`, { method: 'DELETE' });
  assert.equal(status, 204);
  client.written.delete('d1/f1');
  await client.server.end();
  client.server = await OneServer.start(['--gc-grace', '1s'], folder);
  await until(async () => !(await client.hasReplica(removed)));
  await client.assertAllThere();
});
