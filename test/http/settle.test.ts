import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { patientWorld } from '../patient-world.ts';
import { ask, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

let cluster: FakeCluster;
let client: ClusterClient;
/** Files that a server was asked to settle, in that order. */
const settled: number[] = [];

before(async () => {
  cluster = await FakeCluster.start({ servers: 3, operationTimeoutMs: 1_500 });
  client = new ClusterClient({
    world: patientWorld,
    servers: cluster.servers.map(({ url }) => url),
    operationTimeoutMs: 5_000,
  });
});
after(async () => {
  await client.close();
  await cluster.close();
});

async function make(name: string): Promise<FileId> {
  const place = { volume: 'main', path: name };
  const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  const { attributes } = await client.command(command);
  return attributes.inode as FileId;
}

async function requests(): Promise<number> {
  const texts = await Promise.all(cluster.servers.map(({ url }) => ask(url, 'GET', '/metrics')));
  const counts = texts.flatMap(({ text }) => [
    ...text.matchAll(/^leasehold_http_requests_total\{[^}]*route="\/v1\/data\/settle"[^}]*\} (\d+)$/gm),
  ]);
  return counts.reduce((sum, [, count]) => sum + Number(count), 0);
}

test('files that are closed one after the other are settled by one request, each with its own outcome', async () => {
  const files = [await make('one'), await make('two'), await make('three')];
  cluster.intercept = ({ method, file }) => {
    if (method !== 'settle') return;
    if (file === files[1]) throw new ServiceError('not-found', 'It was removed meanwhile');
    settled.push(file as number);
  };
  const outcomes = await Promise.allSettled(
    files.map((file) => client.settleSoon(client.openFile(file, { replicas: ['s1'] }))),
  );
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.status === 'fulfilled' ? 'settled' : outcome.reason.code)),
    ['settled', 'not-found', 'settled'],
  );
  assert.deepEqual(new Set(settled), new Set([files[0], files[2]]));
  assert.equal(await requests(), 1);
  cluster.intercept = () => undefined;
});

test('a server settles also files of which other servers are primary', async () => {
  const file = await make('elsewhere');
  cluster.contentsOf(file).primary = 's3' as ServerId;
  const headers = { 'content-type': 'application/json' };
  const { status, text } = await ask(cluster.servers[0]?.url ?? '', 'POST', '/v1/data/settle', {
    body: JSON.stringify({ files: [file] }),
    headers,
  });
  assert.deepEqual([status, JSON.parse(text)], [200, { failed: [] }]);
});

test('an invalid list of files is refused', async () => {
  const headers = { 'content-type': 'application/json' };
  for (const body of [
    '{}',
    '{"files":[]}',
    '{"files":["7"]}',
    '{"files":[-1]}',
    `{"files":[${'7,'.repeat(500)}7]}`,
  ]) {
    const answer = await ask(cluster.servers[0]?.url ?? '', 'POST', '/v1/data/settle', { body, headers });
    assert.equal(problemIn(answer).code, 'bad-request', body);
  }
});
