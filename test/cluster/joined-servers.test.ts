import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a client outlives all the servers that it was given, as a mount does that runs for months.
 * Method: three servers are replaced by three others, one after the other, as docs/operations.md says, while the client
 * reads.
 */
const FIRST = ['s1', 's2', 's3'] as const;
const JOINING = ['s4', 's5', 's6'] as const;
/** A machine with too few cores for all its processes. */
const MOVE_MS_MAX = 240_000;

const cluster = await RealCluster.start({
  flags: ['--gc-grace', '1500ms', '--lease-idle', '1s', '--named-lease-max', '2s'],
});
after(() => cluster.stop());
await cluster.createVolume('main');

async function cliOk(...argv: readonly string[]): Promise<void> {
  const servers = [...FIRST, ...JOINING].filter((id) => cluster.isRunning(id)).map((id) => cluster.url(id));
  const { code, stdout, stderr } = await runCli(argv, { env: { LEASEHOLD_SERVERS: servers.join(',') } });
  assert.equal(code, 0, `leasehold ${argv.join(' ')}: ${stderr}${stdout}`);
}

test('a client continues after all servers that it was given have been replaced', async (t) => {
  const contents = Buffer.from('written before any server left');
  const client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: MOVE_MS_MAX,
  });
  t.after(() => client.close());
  async function* source() {
    yield contents;
  }
  await uploadFile(client, 'main', '/file', source());
  const { inode } = await client.resolve('main', '/file');
  const file = client.openFile(inode);
  const readsWell = async () => Buffer.from((await file.read(0, 100)).bytes).equals(contents);

  for (const id of JOINING) await cluster.join(id, FIRST);
  const joined = JOINING.map((id) => cluster.url(id));
  for (const id of FIRST) {
    await cliOk('server', 'drain', id);
    // A removed server, alone, no longer knows the others.
    if (id === FIRST.at(-1)) {
      await until(
        'the client has found the new servers',
        async () => (await readsWell()) && joined.every((url) => client.servers.includes(url)),
        MOVE_MS_MAX,
      );
    }
    await cliOk('server', 'remove', id);
    assert.ok(await readsWell());
    if (id === FIRST.at(-1)) break;
    await cluster.kill(id);
  }
  assert.deepEqual(client.servers.slice(0, FIRST.length), cluster.urls, 'Given servers stay, and come first');
  await cluster.kill('s3');
  assert.ok(await readsWell(), 'Read when all remaining servers were unknown to the client at its start');
  await file.write(0, Buffer.from('W'));
  assert.equal((await client.resolve('main', '/file')).inode, inode);

  const late = new ClusterClient({ world: systemWorld, servers: cluster.urls, operationTimeoutMs: 1_000 });
  t.after(() => late.close());
  await assert.rejects(late.resolve('main', '/file'), 'No server answers at the first addresses any more');
});
