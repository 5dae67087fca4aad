import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';
import { ask } from '../http/ask.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a server that cannot work with a cluster leaves nothing there, and names the wrong option; one that joined
 * finds the others after a rebuild, also if the server at whose address it joined has been removed.
 */
const cluster = await RealCluster.start();
after(() => cluster.stop());

/** Starts a server that joins, and waits for its end. */
function joined(port: number, flags: readonly string[]): ReturnType<typeof spawnSync> & { stderr: string } {
  const own = ['--id', 's9', '--listen', `127.0.0.1:${port}`, '--data', join(cluster.folder, 's9')];
  const argv = [LAUNCHER, 'server', ...own, '--join', cluster.url('s1'), ...flags];
  return spawnSync(process.execPath, argv, { encoding: 'utf8', timeout: 60_000 });
}

/** Servers that the catalog has registered; `status` of other servers shows them later. */
async function registered(): Promise<string[]> {
  const { text } = await ask(cluster.url('s1'), 'POST', '/v1/catalog/queries', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: { kind: 'servers', counts: false } }),
  });
  const { servers } = JSON.parse(text) as QueryResults['servers'];
  return servers.map(({ id }) => id).sort();
}

test('a join with other settings is refused with option and values, before the catalog registers the server', async () => {
  const [port] = await freePorts(1);
  const refused = joined(port as number, ['--lease', '3s', '--clock-skew', '100ms']);
  assert.equal(refused.status, 2, refused.stderr);
  assert.match(refused.stderr, /--lease is 2000ms there and 3000ms here/);
  assert.doesNotMatch(refused.stderr, /--clock-skew/);
  assert.deepEqual(await registered(), ['s1', 's2', 's3']);
});

test('a server that cannot listen is not registered', async (t) => {
  const other = createServer().listen(0, '127.0.0.1');
  t.after(() => other.close());
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const refused = joined(port, ['--lease', '2s', '--clock-skew', '100ms']);
  assert.equal(refused.status, 5, refused.stderr);
  assert.match(refused.stderr, /Cannot listen on 127.0.0.1:\d+: another process has the port/);
  assert.deepEqual(await registered(), ['s1', 's2', 's3']);
});

test('a joined server that is rebuilt finds the others without the one at whose address it joined', async () => {
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
