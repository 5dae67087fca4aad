import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import {
  CompleteMultipartUploadCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { freePorts } from '../../client/dev/free-ports.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { clientOf } from './s3-server.ts';

/**
 * Goal: what S3 has acknowledged is there, whole, after the primary of the catalog and of the files was killed.
 * Method: three processes; uploads by the servers that live, and an upload in parts that begins at the one that dies.
 */
const Bucket = 'kept';
const PART = Buffer.alloc(5 * 1024 * 1024, 'part');

const ports = await freePorts(3);
const cluster = await RealCluster.start({
  servers: 3,
  environment: (place) => ({ LEASEHOLD_S3_LISTEN: `127.0.0.1:${ports[place]}` }),
});
after(() => cluster.stop());
const clients = ports.map((port) => clientOf({ url: `http://127.0.0.1:${port}` }));

function client(server: number): S3Client {
  return clients[server - 1] as S3Client;
}

function bodyOf(key: string): Buffer {
  return Buffer.alloc(64 * 1024, createHash('sha256').update(key).digest());
}

async function contentsOf(by: S3Client, Key: string): Promise<Buffer> {
  const { Body } = await by.send(new GetObjectCommand({ Bucket, Key }));
  assert.ok(Body);
  return Buffer.from(await Body.transformToByteArray());
}

test('an upload in parts, and objects beside it, survive the kill of the server that was primary', async () => {
  await client(1).send(new CreateBucketCommand({ Bucket }));
  // The server with the catalog's primary dies: it is primary of the parts that it has received, too.
  const primary = Number(((await cluster.status('s1')).catalog.primary ?? 's1').slice(1));
  const others = [1, 2, 3].filter((server) => server !== primary);
  const { UploadId } = await client(primary).send(new CreateMultipartUploadCommand({ Bucket, Key: 'large' }));
  const part = async (server: number, PartNumber: number) => {
    const upload = { Bucket, Key: 'large', UploadId, PartNumber, Body: PART };
    return { PartNumber, ETag: (await client(server).send(new UploadPartCommand(upload))).ETag };
  };
  const Parts = [await part(primary, 1), await part(others[0] as number, 2)];

  const acknowledged: string[] = [];
  const failed: string[] = [];
  let isOver = false;
  const writers = others.map(async (server) => {
    for (let number = 0; !isOver; number++) {
      const Key = `dir-${number % 7}/${server}-${number}`;
      await client(server)
        .send(new PutObjectCommand({ Bucket, Key, Body: bodyOf(Key) }))
        .then(
          () => acknowledged.push(Key),
          (error: unknown) => failed.push(`${Key}: ${error}`),
        );
    }
  });
  await until('objects are stored', async () => acknowledged.length > 10);
  await cluster.kill(`s${primary}`);
  const before = acknowledged.length;
  await until('more objects are stored', async () => acknowledged.length > before + 20);
  isOver = true;
  await Promise.all(writers);
  assert.deepEqual(failed, [], 'The servers that live wait for the next primary');

  const [next = 0, last = 0] = others;
  Parts.push(await part(last, 3));
  const complete = { Bucket, Key: 'large', UploadId, MultipartUpload: { Parts } };
  const { ETag } = await client(next).send(new CompleteMultipartUploadCommand(complete));
  assert.match(ETag ?? '', /-3"$/);
  assert.ok((await contentsOf(client(last), 'large')).equals(Buffer.concat([PART, PART, PART])));
  for (const key of acknowledged)
    assert.ok((await contentsOf(client(next), key)).equals(bodyOf(key)), `${key} is whole`);
});
