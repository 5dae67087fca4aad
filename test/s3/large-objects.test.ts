/**
 * Goal: the memory of the servers does not grow with the size of an object that is uploaded in parts, completed and
 * read.
 * Method: three server processes; the parts are made as they are sent, and checked as they are read.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import {
  CompleteMultipartUploadCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { isLong } from '../long.ts';
import { patientWorld } from '../patient-world.ts';
import { startS3Cluster } from './s3-cluster.ts';
import { clientOf } from './s3-server.ts';

const MIB = 1024 * 1024;
const PART_BYTES = (isLong ? 64 : 5) * MIB;
const PARTS = isLong ? 80 : 3;
const PARALLEL = 2;
/** How much more memory a server may use while the objects pass than before, whatever their size. */
const GROWTH_BYTES_MAX = 400 * MIB;

const { cluster, urls } = await startS3Cluster(isLong ? 3 : 1);
const client = clientOf({ url: urls[0] as string });
const target = { Bucket: 'large', Key: 'object' };

function residentBytes(id: string): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${cluster.pid(id)}/status`, 'utf8')) ?? [];
  return Number(kib) * 1024;
}

/** The bytes of a part: no two of its blocks are alike. */
function* blocksOf(part: number): Generator<Buffer> {
  for (let at = 0; at < PART_BYTES; at += MIB) {
    const seed = createHash('sha512').update(`${part} ${at}`).digest();
    yield Buffer.alloc(MIB, seed);
  }
}

test('an object of many parts passes in bounded memory', { timeout: 3_600_000 }, async (t) => {
  await client.send(new CreateBucketCommand({ Bucket: target.Bucket }));
  const before = cluster.ids.map(residentBytes);
  let most = [...before];
  const watch = patientWorld.every(500, () => {
    most = cluster.ids.map((id, place) => Math.max(most[place] as number, residentBytes(id)));
  });
  const startedMs = patientWorld.nowMs();
  const seconds = (): string => ((patientWorld.nowMs() - startedMs) / 1000).toFixed(1);
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(target));
  const etags = new Array<string>(PARTS);
  const numbers = etags.keys();
  await Promise.all(
    Array.from({ length: PARALLEL }, async (_, place) => {
      const own = clientOf({ url: urls[place % urls.length] as string });
      for (const index of numbers) {
        const part = { ...target, UploadId, PartNumber: index + 1, ContentLength: PART_BYTES };
        const Body = Readable.from(blocksOf(index), { objectMode: false });
        etags[index] = (await own.send(new UploadPartCommand({ ...part, Body }))).ETag ?? '';
      }
    }),
  );
  t.diagnostic(`${PARTS} parts of ${PART_BYTES / MIB} MiB uploaded after ${seconds()} s`);
  const Parts = etags.map((ETag, index) => ({ ETag, PartNumber: index + 1 }));
  await client.send(new CompleteMultipartUploadCommand({ ...target, UploadId, MultipartUpload: { Parts } }));
  t.diagnostic(`completed after ${seconds()} s`);
  const expected = createHash('sha256');
  for (const part of etags.keys()) for (const block of blocksOf(part)) expected.update(block);
  const { Body, ContentLength } = await client.send(new GetObjectCommand(target));
  assert.equal(ContentLength, PARTS * PART_BYTES);
  const received = createHash('sha256');
  for await (const bytes of Body as Readable) received.update(bytes as Buffer);
  t.diagnostic(`read after ${seconds()} s`);
  watch.cancel();
  assert.equal(received.digest('hex'), expected.digest('hex'));
  const grown = most.map((bytes, place) => bytes - (before[place] as number));
  t.diagnostic(`memory grew by ${grown.map((bytes) => Math.round(bytes / MIB)).join(', ')} MiB`);
  for (const bytes of grown) assert.ok(bytes < GROWTH_BYTES_MAX, `A server used ${bytes} bytes more`);
});
