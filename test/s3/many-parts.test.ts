/**
 * Goal: an upload is completed whatever the number of its parts.
 * Method: more parts than a file remembers sessions, copied from holes, which take no time.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  CompleteMultipartUploadCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { SESSIONS_MAX } from '../../replica/sessions.ts';
import { systemWorld } from '../../world/system-world.ts';
import { clientOf, startS3 } from './s3-server.ts';

const PART_BYTES = 5 * 1024 * 1024;
const COPIED = SESSIONS_MAX + 6;
const target = { Bucket: 'many', Key: 'object' };

const s3 = await startS3();
const aws = clientOf(s3);
const client = new ClusterClient({ world: systemWorld, servers: [s3.server.url] });
after(() => client.close());

test('an upload has more parts than a file remembers sessions', async () => {
  await aws.send(new CreateBucketCommand({ Bucket: target.Bucket }));
  const { attributes } = await client.command({
    ...{ kind: 'create-file', place: { volume: target.Bucket, path: '/hole' }, exclusive: true },
    ...{ mode: 0o644, uid: 0, gid: 0 },
  });
  const handle = client.openFile(attributes.inode);
  await handle.truncate(PART_BYTES);
  await handle.settle();
  const { UploadId } = await aws.send(new CreateMultipartUploadCommand(target));
  const Parts: { PartNumber: number; ETag: string | undefined }[] = [];
  for (let PartNumber = 1; PartNumber <= COPIED; PartNumber++) {
    const copy = { ...target, UploadId, PartNumber, CopySource: `/${target.Bucket}/hole` };
    const { CopyPartResult } = await aws.send(new UploadPartCopyCommand(copy));
    Parts.push({ PartNumber, ETag: CopyPartResult?.ETag });
  }
  const last = { ...target, UploadId, PartNumber: COPIED + 1, Body: Buffer.from('the end') };
  Parts.push({ PartNumber: COPIED + 1, ETag: (await aws.send(new UploadPartCommand(last))).ETag });
  await aws.send(new CompleteMultipartUploadCommand({ ...target, UploadId, MultipartUpload: { Parts } }));
  const Range = `bytes=${COPIED * PART_BYTES - 2}-`;
  const { Body, ContentRange } = await aws.send(new GetObjectCommand({ ...target, Range }));
  assert.equal(ContentRange?.split('/')[1], String(COPIED * PART_BYTES + 'the end'.length));
  assert.equal(await Body?.transformToString(), '\0\0the end');
});
