import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { isLong, onlyLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';
import { RECORD_BYTES, RecordWriter, recordOf } from './record-writer.ts';

const LEASE_MS = 2_000;
const CLOCK_SKEW_MS = 100;
/** Half of them before the kill. */
const APPENDS = isLong ? 400 : 60;
const KILLS = isLong ? 3 : 1;
/** Beyond lease and skew: election, replica reset, and a machine with too few cores for all its processes. */
const SLACK_MS = 8_000;

const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms`, clockSkew: `${CLOCK_SKEW_MS}ms` });
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());

async function createFile(path: string): Promise<number> {
  const place = { volume: 'main', path };
  const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  return (await client.command(command)).attributes.inode;
}

/** What each server returns when it is asked itself. */
async function contentsEverywhere(path: string): Promise<Buffer> {
  let first: Buffer | null = null;
  for (const id of cluster.ids) {
    const answer = await ask(cluster.url(id), 'GET', `/v1/files/main/${path}`);
    assert.equal(answer.status, 200, `${id}: ${answer.text.slice(0, 200)}`);
    first ??= answer.bytes;
    assert.ok(first.equals(answer.bytes), `${id} returns other bytes than ${cluster.ids[0]}`);
  }
  assert.ok(first !== null);
  return first;
}

test(`primaries are killed under writers: no acknowledged write is lost`, async (t) => {
  const file = await createFile('journal');
  const writers = [0, 1, 2].map((writer) => new RecordWriter(cluster.urls, file, writer, 3));
  const progress = async () => {
    const before = writers.map((writer) => writer.acknowledged);
    await until('every writer has written more', async () =>
      writers.every((writer, index) => writer.acknowledged > (before[index] ?? 0) + 5),
    );
  };
  const primaries = new Set<string>();
  try {
    await progress();
    for (let round = 1; round <= KILLS; round++) {
      const primary = await cluster.primaryOf('main/journal');
      primaries.add(primary);
      for (const writer of writers) writer.gapMs = 0;
      await cluster.kill(primary);
      await progress();
      const gapMs = Math.max(...writers.map((writer) => writer.gapMs));
      t.diagnostic(
        `kill ${round}: ${primary}, longest time without an acknowledged write ${Math.round(gapMs)} ms`,
      );
      assert.ok(gapMs < LEASE_MS + CLOCK_SKEW_MS + SLACK_MS, `No write for ${gapMs} ms`);
      cluster.spawn(primary);
      await cluster.ready([primary]);
      await cluster.current('main/journal');
    }
  } finally {
    await Promise.all(writers.map((writer) => writer.stop()));
  }
  const info = await cluster.current('main/journal');
  const versions = new Set(info.replicas.map(({ version }) => version));
  assert.equal(
    versions.size,
    1,
    `All replicas have the primary's position: ${JSON.stringify(info.replicas)}`,
  );
  const contents = await contentsEverywhere('journal');
  for (const writer of writers) {
    t.diagnostic(
      `writer ${writer.writer}: ${writer.acknowledged} acknowledged, ${writer.doubtful.size} in doubt`,
    );
    assert.deepEqual(
      writer.missing(contents),
      [],
      `Acknowledged records of writer ${writer.writer} are missing`,
    );
  }
  const most = Math.max(...writers.map(({ writer, acknowledged }) => (acknowledged - 1) * 3 + writer + 1));
  assert.equal(contents.length, most * RECORD_BYTES, 'The file ends with the last record');
});

test('appends across a kill exist once each, in the order of their acknowledgement', {
  skip: onlyLong('test/simulation/cluster/cluster.test.ts'),
}, async (t) => {
  const file = await createFile('appended');
  const handle = client.openFile(file);
  const offsets: number[] = [];
  let killed: Promise<unknown> | null = null;
  let primary = '';
  for (let number = 0; number < APPENDS; number++) {
    if (number === APPENDS / 2) {
      primary = await cluster.primaryOf('main/appended');
      killed = cluster.kill(primary);
    }
    offsets.push((await handle.write('append', recordOf(9, number))).offset);
  }
  await killed;
  const contents = await contentsEverywhereBut(primary, 'appended');
  assert.deepEqual(
    offsets,
    offsets.map((_, number) => number * RECORD_BYTES),
    'No append was executed twice, and none precedes an earlier one',
  );
  for (let number = 0; number < APPENDS; number++) {
    const found = contents.subarray(number * RECORD_BYTES, (number + 1) * RECORD_BYTES);
    assert.ok(recordOf(9, number).equals(found), `Record ${number} is as it was appended`);
  }
  assert.equal(contents.length, APPENDS * RECORD_BYTES);
  await cluster.restart(primary);
  await cluster.current('main/appended');
  assert.ok((await contentsEverywhere('appended')).equals(contents));
  t.diagnostic(`killed ${primary} between two appends`);
});

async function contentsEverywhereBut(away: string, path: string): Promise<Buffer> {
  const here = cluster.ids.filter((id) => id !== away);
  const answers = await Promise.all(here.map((id) => ask(cluster.url(id), 'GET', `/v1/files/main/${path}`)));
  const [one, two] = answers;
  assert.ok(one !== undefined && two !== undefined);
  assert.deepEqual([one.status, two.status], [200, 200]);
  assert.ok(one.bytes.equals(two.bytes));
  return one.bytes;
}

test('an upload of the client survives the kill of the server that is primary of its file', {
  skip: onlyLong('test/cluster/http-conformance.test.ts'),
}, async () => {
  // The primary of the unlinked file is the one whose count of files grows during the upload.
  const body = Buffer.alloc(24 * 1024 * 1024);
  for (let at = 0; at < body.length; at += 4) body.writeUInt32LE(at, at);
  const [target] = cluster.ids as [string];
  const primaries = async () => (await cluster.status(target)).servers.map((one) => one.primaries);
  const before = await primaries();
  async function* slowly() {
    for (let at = 0; at < body.length; at += 1 << 20) {
      yield body.subarray(at, at + (1 << 20));
      await delay(20);
    }
  }
  const sending = uploadFile(client, 'main', '/uploaded', slowly());
  await delay(200);
  const now = await primaries();
  const other = cluster.ids.find((_, index) => index > 0 && (now[index] ?? 0) > (before[index] ?? 0));
  const victim = other ?? (cluster.ids[1] as string);
  await cluster.kill(victim);
  const { etag } = await sending;
  await cluster.restart(victim);
  await cluster.current('main/uploaded');
  const contents = await contentsEverywhere('uploaded');
  assert.ok(contents.equals(body));
  const head = await ask(cluster.url(victim), 'HEAD', '/v1/files/main/uploaded');
  assert.equal(head.headers.etag, etag);
});
