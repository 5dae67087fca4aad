import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { RealCluster, until } from './real-cluster.ts';
import { RECORD_BYTES, RecordWriter, recordOf } from './record-writer.ts';

/**
 * Goal: in a volume with the policy `all`, each acknowledged write is at every server of the file. While one is down,
 * writes fail in time with its name, reads continue, and writes continue after its restart.
 */
const TIMEOUT_MS = 6_000;
/** Time for the answer to arrive, on a busy machine. */
const SLACK_MS = 3_000;

const cluster = await RealCluster.start({ flags: ['--op-timeout', `${TIMEOUT_MS}ms`] });
after(() => cluster.stop());
const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
const created = await runCli(['volume', 'create', 'safe', '--policy', 'all'], { env });
assert.equal(created.code, 0, created.stderr);

const client = new ClusterClient({
  world: systemWorld,
  servers: cluster.urls,
  operationTimeoutMs: TIMEOUT_MS + SLACK_MS,
});
after(() => client.close());
const place = { volume: 'safe', path: '/journal' };
const create = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
const { inode } = (await client.command(create)).attributes;

/** Records whose writer received the acknowledgement, by number: record n is at n times its size. */
const acknowledged = new Set<number>();

async function contentsAt(id: string): Promise<Buffer> {
  const path = `/v1/data/${inode}?offset=0&length=4194304&consistency=stale`;
  const answer = await ask(cluster.url(id), 'GET', path, { headers: { 'leasehold-forwarded': '1' } });
  assert.equal(answer.status, 200, answer.text.slice(0, 300));
  return answer.bytes;
}

function holds(contents: Buffer, number: number): boolean {
  const found = contents.subarray(number * RECORD_BYTES, (number + 1) * RECORD_BYTES);
  return found.equals(recordOf(0, number));
}

test('each write is at every server when it is acknowledged', async () => {
  const writer = new RecordWriter(cluster.urls, inode, 0, 1);
  await until('some records are written', async () => writer.acknowledged >= 20);
  await writer.stop();
  assert.equal(writer.doubtful.size, 0);
  for (const id of cluster.ids) {
    const contents = await contentsAt(id);
    assert.deepEqual(writer.missing(contents), [], `All records are at ${id}`);
  }
  for (let number = 0; number < writer.acknowledged; number++) acknowledged.add(number);
});

test('with one server down writes fail with its name, and reads continue', async () => {
  const primary = await cluster.primaryOf('safe/journal');
  const away = cluster.ids.find((id) => id !== primary) as string;
  const asked = cluster.ids.find((id) => id !== primary && id !== away) as string;
  await cluster.kill(away);
  const next = acknowledged.size;
  for (const times of [1, 2]) {
    const beganMs = performance.now();
    const path = `/v1/data/${inode}?offset=${next * RECORD_BYTES}&session=4711&number=1&since=0`;
    const answer = await ask(cluster.url(asked), 'PUT', path, { body: recordOf(0, next) });
    const tookMs = performance.now() - beganMs;
    assert.equal(answer.status, 503, answer.text);
    const problem = JSON.parse(answer.text) as { unreachable: string[]; detail: string };
    assert.deepEqual(problem.unreachable, [away], `Attempt ${times}: ${answer.text}`);
    assert.match(problem.detail, new RegExp(away));
    assert.ok(tookMs < TIMEOUT_MS + SLACK_MS, `It took ${Math.round(tookMs)} ms`);
    for (const id of [primary, asked]) {
      const read = await ask(cluster.url(id), 'GET', '/v1/files/safe/journal');
      assert.equal(read.status, 200, `${id} answers reads: ${read.text.slice(0, 300)}`);
      assert.ok(read.bytes.length >= next * RECORD_BYTES);
      for (const number of acknowledged) assert.ok(holds(read.bytes, number), `Record ${number} at ${id}`);
    }
  }
  // A client that creates a file now gets the same error; and the client library passes the reason on.
  const upload = ask(cluster.url(primary), 'PUT', '/v1/files/safe/other', { body: 'other' });
  assert.equal((await upload).status, 503);
  await assert.rejects(client.openFile(inode).write(next * RECORD_BYTES, recordOf(0, next)), (error) => {
    assert.ok(error instanceof ServiceError);
    // It repeats the write until its time limit; then the outcome is unknown.
    assert.equal(error.remedy, 'retry', error.message);
    assert.deepEqual(error.details.unreachable, [away]);
    return true;
  });
  await cluster.restart(away);
});

test('after its restart writes continue, and no acknowledged write is missing at any server', async () => {
  const first = acknowledged.size;
  const file = client.openFile(inode);
  await until('a write is acknowledged again', async () => {
    await file.write(first * RECORD_BYTES, recordOf(0, first));
    return true;
  });
  acknowledged.add(first);
  for (let number = first + 1; number < first + 10; number++) {
    await file.write(number * RECORD_BYTES, recordOf(0, number));
    acknowledged.add(number);
  }
  for (const id of cluster.ids) {
    const contents = await contentsAt(id);
    for (const number of acknowledged) assert.ok(holds(contents, number), `Record ${number} is at ${id}`);
  }
});
