import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  S3ServiceException,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { clientOf, startS3 } from './s3-server.ts';

const client = clientOf(await startS3());
const Bucket = 'races';
const BODY = 'contents';

async function begin(Key: string, PartNumber = 1) {
  const target = { Bucket, Key };
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(target));
  const upload = { ...target, UploadId };
  const { ETag } = await client.send(new UploadPartCommand({ ...upload, PartNumber, Body: BODY }));
  return { ...upload, MultipartUpload: { Parts: [{ PartNumber, ETag }] } };
}

function codeOf(error: unknown): string {
  if (error instanceof S3ServiceException) return error.name;
  throw error;
}

test('concurrent completions of an upload get the same answer', async () => {
  await client.send(new CreateBucketCommand({ Bucket }));
  const upload = await begin('same');
  const answers = await Promise.all(
    Array.from({ length: 8 }, () =>
      client.send(new CompleteMultipartUploadCommand({ ...upload, IfNoneMatch: '*' })),
    ),
  );
  assert.equal(new Set(answers.map(({ ETag }) => ETag)).size, 1);
  const { Body } = await client.send(new GetObjectCommand({ Bucket, Key: 'same' }));
  assert.equal(await Body?.transformToString(), BODY);
});

test('of several uploads of a new key one is completed', async () => {
  const uploads = await Promise.all([1, 2, 3, 4].map((number) => begin('first', number)));
  const codes = await Promise.all(
    uploads.map((upload) =>
      client
        .send(new CompleteMultipartUploadCommand({ ...upload, IfNoneMatch: '*' }))
        .then(() => 'done', codeOf),
    ),
  );
  assert.deepEqual(codes.sort(), ['PreconditionFailed', 'PreconditionFailed', 'PreconditionFailed', 'done']);
});

test('an upload that is aborted while parts arrive leaves nothing', async () => {
  const { Key, UploadId } = await begin('aborted');
  const upload = { Bucket, Key, UploadId };
  const parts = Array.from({ length: 24 }, (_, index) =>
    client
      .send(new UploadPartCommand({ ...upload, PartNumber: index + 2, Body: BODY }))
      .then(() => 'done', codeOf),
  );
  await Promise.race(parts);
  await client.send(new AbortMultipartUploadCommand(upload));
  for (const code of await Promise.all(parts)) assert.match(code, /^(done|NoSuchUpload)$/);
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket, Prefix: Key }));
  assert.deepEqual(Uploads, []);
});

test('an upload that was aborted is not completed afterwards, by no request that was under way', async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 12 }, async (_, index) => {
      const upload = await begin(`late-${index}`);
      const { Key, UploadId } = upload;
      const completed = client.send(new CompleteMultipartUploadCommand(upload)).then(
        () => true,
        () => false,
      );
      for (let turn = 0; turn < index; turn++) await client.send(new ListMultipartUploadsCommand({ Bucket }));
      const abort = new AbortMultipartUploadCommand({ Bucket, Key, UploadId });
      const aborted = await client.send(abort).then(
        () => true,
        () => false,
      );
      await completed;
      const exists = await client.send(new GetObjectCommand({ Bucket, Key })).then(
        () => true,
        () => false,
      );
      return { aborted, completed: await completed, exists };
    }),
  );
  // Both may have succeeded: the abort then removed what the completion was about to remove.
  for (const { aborted, completed, exists } of outcomes)
    assert.equal(exists, completed, `aborted: ${aborted}`);
});

test('uploads of one key are listed in the order of their creation', async () => {
  const created: (string | undefined)[] = [];
  for (let count = 0; count < 40; count++) {
    const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key: 'ordered' }));
    created.push(UploadId);
  }
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket, Prefix: 'ordered' }));
  assert.deepEqual(
    Uploads.map(({ UploadId }) => UploadId),
    created,
  );
});
