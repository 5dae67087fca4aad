/** Goal: a whole server creates, serves and removes a volume with a catalog of its own, also over restarts. */
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type CatalogNumber, catalogCell, inodesOf } from '../../base/ids.ts';
import type { ClusterStatus } from '../../wire/http-api.ts';
import { OneServer, until } from './one-server.ts';

const ONE = 1 as CatalogNumber;

test('a volume with its own catalog is created, serves after a restart, and is removed', async (t) => {
  let server = await OneServer.start();
  const { folder } = server;
  t.after(async () => {
    await server.end();
    rmSync(folder, { recursive: true });
  });
  const database = join(folder, 'catalogs', String(catalogCell(ONE)), 'catalog.db');
  await server.registered();
  await server.execute({ kind: 'catalog-create', name: 'projects', replicas: 1, objectBytes: 65_536 });
  await server.hasCatalog('ready');
  assert.ok(existsSync(database));
  const { volumes } = await server.query({ kind: 'volumes' });
  assert.deepEqual(
    volumes.map(({ name, root }) => [name, root]),
    [['projects', inodesOf(ONE).first]],
  );
  const { catalogs, reasons } = JSON.parse(await server.request('/v1/status')) as ClusterStatus;
  const row = { number: ONE, name: 'projects', state: 'ready', members: ['s1'] };
  assert.deepEqual([catalogs, reasons], [[{ ...row, primary: 's1' }], []]);
  await server.end();

  server = await OneServer.start([], folder);
  const { attributes } = await server.query({
    kind: 'resolve',
    volume: 'projects',
    path: '/',
    follow: false,
  });
  assert.equal(attributes.inode, inodesOf(ONE).first);
  await server.execute({ kind: 'volume-remove', name: 'projects' });
  await server.hasCatalog('removed');
  await until(() => !existsSync(database));
  assert.deepEqual((await server.query({ kind: 'volumes' })).volumes, []);
});
