/** Goal: an operator can remove a volume whose catalog is lost for good, and no other. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type CatalogNumber, catalogCell } from '../../base/ids.ts';
import { type CliResult, runCli } from '../client/run-cli.ts';
import { OneServer } from './one-server.ts';

const CREATION = { kind: 'catalog-create', name: 'projects', replicas: 1, objectBytes: 65_536 } as const;

function removeLost({ url }: OneServer): Promise<CliResult> {
  return runCli(['volume', 'rm', 'projects', '--lost'], { env: { LEASEHOLD_SERVERS: url } });
}

test('a volume is removed without its catalog once that is lost, and its name is free', async (t) => {
  let server = await OneServer.start();
  const { folder } = server;
  t.after(async () => {
    await server.end();
    rmSync(folder, { recursive: true });
  });
  await server.registered();
  await server.execute(CREATION);
  const refused = await removeLost(server);
  assert.equal(refused.code, 4);
  assert.match(refused.stderr, /"projects" is not lost: s1 have it/);
  assert.equal((await server.query({ kind: 'volumes' })).volumes.length, 1);
  await server.end();

  // The only replica.
  rmSync(join(folder, 'catalogs', String(catalogCell(1 as CatalogNumber))), { recursive: true });
  server = await OneServer.start([], folder);
  assert.deepEqual(await removeLost(server), { signal: null, code: 0, stdout: '', stderr: '' });
  const { catalogs } = await server.query({ kind: 'catalogs' });
  assert.deepEqual(
    catalogs.map(({ name, state }) => [name, state]),
    [['projects', 'removed']],
  );
  await server.execute(CREATION);
});
