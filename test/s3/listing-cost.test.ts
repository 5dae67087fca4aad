/**
 * Goal: pages of a large bucket cost about the same at its beginning and its end, and the server's memory is bounded.
 * Method: a server process, whose catalog gets the entries in batches, as from a mount.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ListObjectsV2Command } from '@aws-sdk/client-s3';
import type { Command, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { patientWorld } from '../patient-world.ts';
import { startS3Cluster } from './s3-cluster.ts';
import { clientOf } from './s3-server.ts';

const OBJECTS = isLong ? 1_000_000 : 10_000;
const BATCH = 250;
const OWNER = 7;
const MEMORY_BYTES_MAX = 1024 ** 3;
/** Pages whose times are compared, in a row: one alone may wait for the collector. */
const SAMPLE = isLong ? 50 : 3;
/** Only a cost that grows with the position exceeds this: the last page is the thousandth. */
const RATIO_MAX = 10;

const { cluster, urls } = await startS3Cluster(1);
let sessions = 0;

async function post(path: string, body: unknown): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${cluster.urls[0]}${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, text);
  return JSON.parse(text);
}

function execute<C extends Command>(command: C): Promise<CommandResults[C['kind']]> {
  const request = { session: ++sessions, number: 1, command };
  return post('/v1/catalog/commands', request) as Promise<CommandResults[C['kind']]>;
}

function query<Q extends Query>(asked: Q): Promise<QueryResults[Q['kind']]> {
  return post('/v1/catalog/queries', { query: asked }) as Promise<QueryResults[Q['kind']]>;
}

function keyOf(index: number): string {
  return `key-${String(index).padStart(7, '0')}`;
}

async function fill(): Promise<void> {
  await cluster.createVolume('many', 1);
  const { inode: parent } = (await query({ kind: 'resolve', volume: 'many', path: '/', follow: true }))
    .attributes;
  const [replica = ''] = cluster.ids;
  for (let begin = 0; begin < OBJECTS; begin += BATCH) {
    const members = [[replica]];
    const { first } = await execute({ kind: 'reserve-inodes', owner: OWNER, count: BATCH, members });
    const files = Array.from({ length: BATCH }, (_, index) => ({
      ...{ parent, name: keyOf(begin + index), inode: first + index, sizeBytes: 0 },
      ...{ mode: 0o644, uid: 0, gid: 0, contents: { epoch: 1, seq: 1 } },
    }));
    await execute({ kind: 'bear', owner: OWNER, replicas: [replica], objectBytes: 131_072, files });
  }
}

function mostResidentBytes(): number {
  const status = readFileSync(`/proc/${cluster.pid('s1')}/status`, 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

test('the last pages cost what the first ones do', { timeout: 3_600_000 }, async (t) => {
  const filledMs = patientWorld.nowMs();
  await fill();
  t.diagnostic(`${OBJECTS} entries created in ${((patientWorld.nowMs() - filledMs) / 1000).toFixed(0)} s`);
  const client = clientOf({ url: urls[0] as string });
  const timesMs: number[] = [];
  let listed = 0;
  let token: string | undefined;
  do {
    const startedMs = patientWorld.nowMs();
    const page = await client.send(new ListObjectsV2Command({ Bucket: 'many', ContinuationToken: token }));
    timesMs.push(patientWorld.nowMs() - startedMs);
    for (const { Key } of page.Contents ?? []) assert.equal(Key, keyOf(listed++));
    token = page.NextContinuationToken;
  } while (token !== undefined);
  assert.equal(listed, OBJECTS);
  const [first, last] = [timesMs.slice(0, SAMPLE), timesMs.slice(-SAMPLE)].map(median) as [number, number];
  t.diagnostic(`${timesMs.length} pages: median ${first.toFixed(1)} ms first, ${last.toFixed(1)} ms last`);
  t.diagnostic(`memory of the server: at most ${Math.round(mostResidentBytes() / 1024 ** 2)} MiB`);
  assert.ok(last < first * RATIO_MAX, `The last pages take ${last} ms, the first ${first} ms`);
  assert.ok(mostResidentBytes() < MEMORY_BYTES_MAX, `The server used ${mostResidentBytes()} bytes`);
});

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
