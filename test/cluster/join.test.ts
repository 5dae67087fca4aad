import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';
import { ask } from '../http/ask.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a server that cannot work with a cluster leaves nothing behind there, and says which option is wrong; one that joined finds
 * the others after a rebuild, also where the server is gone at whose address it joined.
 */
const cluster = await RealCluster.start();
after(() => cluster.stop());

test('a join with other settings is refused by option and values, before the catalog registers the server', async () => {
  const [port] = await freePorts(1);
  const own = ['--id', 's9', '--listen', `127.0.0.1:${port}`, '--data', join(cluster.folder, 's9')];
  const argv = [...own, '--join', cluster.url('s1'), '--lease', '3s', '--clock-skew', '100ms'];
  const refused = spawnSync(process.execPath, [LAUNCHER, 'server', ...argv], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  assert.equal(refused.status, 2, refused.stderr);
  assert.match(refused.stderr, /--lease is 2000ms there and 3000ms here/);
  assert.doesNotMatch(refused.stderr, /--clock-skew/);
  // What the catalog has registered; servers show it in their status some time later.
  const { text } = await ask(cluster.url('s1'), 'POST', '/v1/catalog/queries', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: { kind: 'servers', counts: false } }),
  });
  const { servers } = JSON.parse(text) as QueryResults['servers'];
  assert.deepEqual(servers.map(({ id }) => id).sort(), ['s1', 's2', 's3']);
});

test('a joined server that is rebuilt finds the others without the one that let it in', async () => {
  await cluster.join('s4', ['s1']);
  const remembered = join(cluster.data('s4'), 'servers.json');
  await until('s4 knows the others', async () => fs.readFileSync(remembered, 'utf8').includes('"s3"'));
  await cluster.kill('s4');
  await cluster.kill('s1');
  fs.writeFileSync(join(cluster.data('s4'), 'index.db'), Buffer.alloc(20_000, 'no database'));
  fs.rmSync(join(cluster.data('s4'), 'index.db-wal'));
  cluster.spawn('s4', { LEASEHOLD_REBUILD: 'true' });
  await cluster.ready(['s4']);
  assert.ok(fs.existsSync(join(cluster.data('s4'), 'damaged-1', 'index.db')));
});
