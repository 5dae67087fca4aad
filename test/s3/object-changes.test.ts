/** Objects as the AWS SDK writes them, and as files that REST changes. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import {
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectAttributesCommand,
  GetObjectCommand,
  HeadObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { clientOf, startS3 } from './s3-server.ts';

const s3 = await startS3();
const client = clientOf(s3);
const Bucket = 'bucket';
await client.send(new CreateBucketCommand({ Bucket }));

async function put(Key: string, Body: string): Promise<string> {
  const Metadata = { a: 'b' };
  const { ETag } = await client.send(new PutObjectCommand({ Bucket, Key, Body, Metadata }));
  return ETag as string;
}

async function head(Key: string) {
  return client.send(new HeadObjectCommand({ Bucket, Key, ChecksumMode: 'ENABLED' }));
}

test('an object is a file, with the same contents', async () => {
  await put('folder/file', 'bar');
  assert.equal(await s3.server.request('/v1/files/bucket/folder/file'), 'bar');
});

test('a file is an object, whose tag is no MD5', async () => {
  await s3.server.request('/v1/files/bucket/of-rest', { method: 'PUT', body: 'soup' });
  const { ETag, ContentLength, ChecksumCRC32 } = await head('of-rest');
  assert.match(ETag ?? '', /^"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"$/);
  assert.deepEqual([ContentLength, ChecksumCRC32], [4, undefined]);
  const found = await client.send(new GetObjectCommand({ Bucket, Key: 'of-rest', IfMatch: ETag }));
  assert.equal(await found.Body?.transformToString(), 'soup');
});

test('a change in place gives another tag, no checksum, and keeps the metadata', async () => {
  const before = await put('changed', 'bar');
  assert.equal(before, '"37b51d194a7513e45b56f6524f2d51f2"');
  await s3.server.request('/v1/files/bucket/changed', {
    method: 'PUT',
    headers: { 'content-range': 'bytes 0-0/*' },
    body: 'c',
  });
  const { ETag, ChecksumCRC32, Metadata } = await head('changed');
  assert.match(ETag ?? '', /-/);
  assert.equal(ChecksumCRC32, undefined);
  assert.deepEqual(Metadata, { a: 'b' });
  const found = await client.send(new GetObjectCommand({ Bucket, Key: 'changed' }));
  assert.equal(await found.Body?.transformToString(), 'car');
  const change = new PutObjectCommand({ Bucket, Key: 'changed', Body: 'x', IfMatch: before });
  await assert.rejects(client.send(change), { name: 'PreconditionFailed' });
  // Put again, it has an MD5 again.
  assert.equal(await put('changed', 'bar'), before);
});

test('a copy of a file that was changed has no tag of its source', async () => {
  await s3.server.request('/v1/files/bucket/source', { method: 'PUT', body: 'soup' });
  const source = await head('source');
  const copied = await client.send(
    new CopyObjectCommand({ Bucket, Key: 'copy', CopySource: `${Bucket}/source` }),
  );
  const { ETag } = await head('copy');
  assert.equal(copied.CopyObjectResult?.ETag, ETag);
  assert.notEqual(ETag, source.ETag);
});

test('the SDK checks what it sends and receives', async () => {
  const checksum = { ChecksumAlgorithm: 'CRC64NVME' } as const;
  await client.send(new PutObjectCommand({ Bucket, Key: 'checked', Body: 'bar', ...checksum }));
  const found = await client.send(new GetObjectCommand({ Bucket, Key: 'checked', ChecksumMode: 'ENABLED' }));
  assert.equal(found.ChecksumType, 'FULL_OBJECT');
  assert.equal(await found.Body?.transformToString(), 'bar');
});

test('the SDK sends a stream in chunks with a trailer', async () => {
  const Body = Readable.from([Buffer.alloc(100_000, 'a'), Buffer.alloc(100_000, 'b')]);
  const ContentLength = 200_000;
  const { ChecksumCRC32 } = await client.send(
    new PutObjectCommand({ Bucket, Key: 'stream', Body, ContentLength, ContentEncoding: 'gzip' }),
  );
  const found = await head('stream');
  assert.deepEqual(
    [found.ContentLength, found.ContentEncoding, found.ChecksumCRC32],
    [ContentLength, 'gzip', ChecksumCRC32],
  );
});

test('the SDK knows the errors', async () => {
  await assert.rejects(client.send(new GetObjectCommand({ Bucket, Key: 'missing' })), NoSuchKey);
  const twice = new PutObjectCommand({ Bucket, Key: 'checked', Body: 'x', IfNoneMatch: '*' });
  await assert.rejects(client.send(twice), { name: 'PreconditionFailed' });
  const wrong = new DeleteObjectCommand({ Bucket, Key: 'checked', IfMatchSize: 9_999 });
  await assert.rejects(client.send(wrong), { name: 'PreconditionFailed' });
});

test('objects are deleted under conditions of their own', async () => {
  const etag = await put('one', '1');
  await put('two', '22');
  const { LastModified } = await head('two');
  const Objects = [
    { Key: 'one', ETag: 'badetag' },
    { Key: 'two', LastModifiedTime: new Date(0) },
    { Key: 'two', Size: 9_999 },
    { Key: 'none', ETag: 'badetag' },
  ];
  const refused = await client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
  assert.deepEqual(
    refused.Errors?.map(({ Code }) => Code),
    Array(3).fill('PreconditionFailed'),
  );
  const right = [
    { Key: 'one', ETag: etag },
    { Key: 'two', Size: 2, LastModifiedTime: LastModified },
  ];
  const removed = await client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects: right } }));
  assert.deepEqual([removed.Errors, removed.Deleted?.length], [undefined, 2]);
});

test('the parts of an object are listed in pages', async () => {
  const Key = 'parts';
  const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key }));
  const Parts = [];
  for (const [index, size] of [5 * 1024 * 1024, 5 * 1024 * 1024, 7].entries()) {
    const PartNumber = index + 1;
    const part = { Bucket, Key, UploadId, PartNumber, Body: Buffer.alloc(size, PartNumber) };
    const { ETag } = await client.send(new UploadPartCommand(part));
    Parts.push({ PartNumber, ETag });
  }
  const MultipartUpload = { Parts };
  const done = await client.send(
    new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload }),
  );
  const attributes = async (MaxParts?: number, PartNumberMarker?: string) => {
    const ObjectAttributes = ['ETag', 'ObjectParts', 'ObjectSize'] as (
      | 'ETag'
      | 'ObjectParts'
      | 'ObjectSize'
    )[];
    const page = MaxParts === undefined ? {} : { MaxParts, PartNumberMarker };
    return client.send(new GetObjectAttributesCommand({ Bucket, Key, ObjectAttributes, ...page }));
  };
  const all = await attributes();
  assert.equal(`"${all.ETag}"`, done.ETag);
  assert.equal(all.ObjectParts?.TotalPartsCount, 3);
  assert.deepEqual(
    all.ObjectParts?.Parts?.map(({ PartNumber, Size }) => [PartNumber, Size]),
    [
      [1, 5_242_880],
      [2, 5_242_880],
      [3, 7],
    ],
  );
  const page = (await attributes(1, '1')).ObjectParts;
  assert.deepEqual(
    [
      page?.PartNumberMarker,
      page?.NextPartNumberMarker,
      page?.MaxParts,
      page?.IsTruncated,
      page?.Parts?.length,
    ],
    ['1', '2', 1, true, 1],
  );
  const last = (await attributes(10, '2')).ObjectParts;
  assert.deepEqual([last?.IsTruncated, last?.Parts?.[0]?.PartNumber], [false, 3]);
  const third = await client.send(new HeadObjectCommand({ Bucket, Key, PartNumber: 3 }));
  assert.deepEqual([third.ContentLength, third.PartsCount, third.ETag], [7, 3, done.ETag]);
});
