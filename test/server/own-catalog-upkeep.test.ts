/** Goal: a whole server does the upkeep of a volume's own catalog, and forgets the catalog with the volume. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type CatalogNumber, catalogOfInode } from '../../base/ids.ts';
import { CONTAINERS_FOLDER, containerName } from '../../wire/locations.ts';
import { OneServer, until } from './one-server.ts';

const ONE = 1 as CatalogNumber;

/** @returns the file's number */
async function put(server: OneServer, path: string): Promise<number> {
  await server.request(`/v1/files/${path}`, { method: 'PUT', body: Buffer.alloc(200_000, 'x') });
  return (JSON.parse(await server.request(`/v1/info/${path}`)) as { file: number }).file;
}

async function metric(server: OneServer, name: string): Promise<string | undefined> {
  return new RegExp(`^${name} (.+)$`, 'm').exec(await server.request('/metrics'))?.[1];
}

test("a server registers with a volume's own catalog, also after a restart, and forgets it with the volume", async (t) => {
  let server = await OneServer.start();
  const { folder } = server;
  t.after(async () => {
    await server.end();
    rmSync(folder, { recursive: true });
  });
  const meta = () => JSON.parse(readFileSync(join(folder, 'META'), 'utf8'));
  await until(async () => (await metric(server, 'leasehold_server_registered')) === '1');
  assert.equal(meta().format, 1);
  await server.execute({ kind: 'catalog-create', name: 'projects', replicas: 1, objectBytes: 65_536 });
  await server.hasCatalog('ready');
  await until(async () => (await metric(server, 'leasehold_catalogs_unregistered')) === '0');
  await until(() => meta().catalogs[ONE]?.bornAt === 1);
  assert.equal(meta().format, 3);
  await server.end();

  server = await OneServer.start([], folder);
  await until(async () => (await metric(server, 'leasehold_catalogs_unregistered')) === '0');
  await server.execute({ kind: 'volume-remove', name: 'projects' });
  await server.hasCatalog('removed');
  await until(() => meta().catalogs[ONE] === undefined);
  assert.equal(await metric(server, 'leasehold_catalogs_unregistered'), '0', 'It is no catalog any more');
});

test('replicas of deleted files of a volume with its own catalog are removed, and others stay', async (t) => {
  const server = await OneServer.start(['--gc-grace', '2s']);
  t.after(() => server.stop());
  const container = (file: number) => join(server.folder, CONTAINERS_FOLDER, containerName(file));
  await until(async () => (await metric(server, 'leasehold_server_registered')) === '1');
  await server.execute({ kind: 'catalog-create', name: 'projects', replicas: 1, objectBytes: 65_536 });
  await server.execute({ kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 65_536 });
  const [ofRoot, kept, removed] = [
    await put(server, 'main/kept'),
    await put(server, 'projects/kept'),
    await put(server, 'projects/removed'),
  ];
  assert.deepEqual([ofRoot, kept, removed].map(catalogOfInode), [0, ONE, ONE]);
  assert.ok(existsSync(container(removed)));
  await server.request('/v1/files/projects/removed', { method: 'DELETE' });
  await until(() => !existsSync(container(removed)));
  assert.deepEqual(
    [ofRoot, kept].map((file) => existsSync(container(file))),
    [true, true],
  );
});
