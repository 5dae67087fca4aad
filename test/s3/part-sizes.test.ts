/**
 * Goal: the sizes of the parts of an object are known after its upload, also if all of them are different, or the
 * upload is refused before its contents are copied.
 * Method: records of the largest uploads; then an upload to a real server, whose parts are copied from a file that is
 * one hole.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  CompleteMultipartUploadCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  GetObjectAttributesCommand,
  HeadObjectCommand,
  PutObjectTaggingCommand,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { Prng } from '../../base/prng.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { assertRecordFits, computedOf, decodeRecord, recordXattrs } from '../../server/s3/object-record.ts';
import { arePairs, decodeSizes, encodeSizes, PARTS_MAX, type PartSizes } from '../../server/s3/part-sizes.ts';
import { isLong } from '../long.ts';
import { patientWorld } from '../patient-world.ts';
import { clientOf, startS3 } from './s3-server.ts';

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
const FILE = { inode: 1, contents: { epoch: 2, seq: 3 } };
const META = { 'x-amz-meta-a': 'v'.repeat(2_000) };

function recordOf(parts: PartSizes) {
  return {
    computed: { etag: `${'a'.repeat(32)}-${parts.length}`, parts },
    meta: META,
    upload: 'b'.repeat(32),
  };
}

/** @param most the largest size; all are different */
function differentSizes(most: number): [number, number][] {
  const random = new Prng(7);
  const step = Math.floor(most / PARTS_MAX);
  return Array.from({ length: PARTS_MAX }, (_, index) => [index * step + random.integer(1, step), 1]);
}

test('the sizes of 10,000 parts, all of them different, fit beside the metadata', () => {
  for (const most of [5 * MIB, 5 * GIB, 64 * GIB]) {
    const sizes = differentSizes(most);
    const record = recordOf(sizes);
    assertRecordFits(record);
    const [stored] = recordXattrs(record, FILE);
    assert.deepEqual(computedOf(decodeRecord(stored?.value ?? ''), FILE), record.computed);
  }
});

test('a record that cannot be stored is refused', () => {
  assert.throws(
    () => assertRecordFits(recordOf(differentSizes(65 * GIB))),
    /The sizes of the parts, .* take [0-9]+ bytes, and at most 65536 are stored.*: upload parts of equal sizes/,
  );
});

test('few sizes are stored as earlier releases do', () => {
  const parts: PartSizes = [
    [5 * MIB, 9_999],
    [0, 1],
  ];
  assert.deepEqual(encodeSizes(parts), { parts });
  const many = encodeSizes(
    differentSizes(5 * GIB)
      .with(0, [3, 1])
      .with(1, [3, 1]),
  );
  assert.deepEqual(decodeSizes(many.sizes)?.slice(0, 1), [[3, 2]], 'Runs are runs again');
});

test('sizes that a user of a mount has invented are no sizes', () => {
  for (const sizes of [
    null,
    [],
    [1],
    ['1', 'A'],
    [0, ''],
    [1.5, 'AB'],
    [2, 'ABC'],
    [1, 'A='],
    [10, 'A'.repeat(10)],
  ])
    assert.equal(decodeSizes(sizes), null, JSON.stringify(sizes));
  assert.equal(decodeSizes([9, '_'.repeat(9)]), null, 'It is above the safe integers');
  assert.equal(decodeSizes([1, 'A'.repeat(PARTS_MAX + 1)]), null);
  assert.ok(!arePairs([[1, PARTS_MAX + 1]]));
});

test('the parts of an object are read by their numbers, although each has another size', async () => {
  const s3 = await startS3();
  const client = clientOf(s3);
  after(() => client.destroy());
  const [Bucket, Key] = ['bucket', 'object'];
  await client.send(new CreateBucketCommand({ Bucket }));
  await using cluster = new ClusterClient({ world: patientWorld, servers: [s3.server.url] });
  const { attributes } = await cluster.command({
    kind: 'create-file',
    place: { volume: Bucket, path: '/hole' },
    ...{ mode: 0o644, uid: 0, gid: 0, exclusive: true },
  });
  const count = isLong ? PARTS_MAX : 101;
  const file = cluster.openFile(attributes.inode);
  await file.truncate(5 * MIB + count);
  await file.settle();

  const { UploadId } = await client.send(
    new CreateMultipartUploadCommand({ Bucket, Key, Metadata: { a: 'b' } }),
  );
  const Parts = [];
  for (let PartNumber = 1; PartNumber <= count; PartNumber++) {
    const part = { Bucket, Key, UploadId, PartNumber, CopySource: `${Bucket}/hole` };
    const CopySourceRange = `bytes=0-${5 * MIB + PartNumber - 1}`;
    const { CopyPartResult } = await client.send(new UploadPartCopyCommand({ ...part, CopySourceRange }));
    Parts.push({ PartNumber, ETag: CopyPartResult?.ETag });
  }
  await client.send(
    new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }),
  );
  const TagSet = [{ Key: 'a', Value: 'b' }];
  await client.send(new PutObjectTaggingCommand({ Bucket, Key, Tagging: { TagSet } }));
  const last = await client.send(new HeadObjectCommand({ Bucket, Key, PartNumber: count }));
  assert.deepEqual([last.ContentLength, last.PartsCount], [5 * MIB + count, count]);
  const { ObjectParts } = await client.send(
    new GetObjectAttributesCommand({
      ...{ Bucket, Key, MaxParts: 2, PartNumberMarker: '50' },
      ObjectAttributes: ['ObjectParts'],
    }),
  );
  assert.deepEqual(
    ObjectParts?.Parts?.map(({ PartNumber, Size }) => [PartNumber, Size]),
    [51, 52].map((number) => [number, 5 * MIB + number]),
  );
});
