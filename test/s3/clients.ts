import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  CopyObjectCommand,
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  PutObjectTaggingCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { until } from '../cluster/real-cluster.ts';
import { programPath, runProgram } from './programs.ts';

/** The rows of the table in docs/interfaces.md, in their order. */
export const OPERATIONS = [
  'create a bucket',
  'store 64 KiB',
  'store 20 MiB in parts',
  'read it back',
  'read a range',
  'list all keys',
  'list a directory',
  'copy at the servers',
  'metadata',
  'tags',
  'create only if missing',
  'directory tree there and back',
  'remove many',
  'remove the bucket',
] as const;
export type OperationName = (typeof OPERATIONS)[number];

export interface Place {
  readonly endpoint: string;
  readonly bucket: string;
  /** Of this client alone. */
  readonly folder: string;
  readonly sdk: S3Client;
}

/** What a client does for an operation; a missing one is none of its own. */
export type Steps = Partial<Record<OperationName, (place: Place) => Promise<unknown>>>;

export interface TestedClient {
  readonly name: string;
  /** Null if it is not installed. */
  readonly steps: Steps | null;
}

const SMALL = Buffer.alloc(64 * 1024, 's');
const LARGE = Buffer.alloc(20 * 1024 * 1024, 'large ');
const KEYS = { access: 'anykey', secret: 'anysecret' };

function fileOf({ folder }: Place, name: string, bytes: Buffer | string): string {
  const path = join(folder, name);
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, bytes);
  return path;
}

async function stored({ sdk, bucket }: Place, key: string): Promise<Buffer> {
  const { Body } = await sdk.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
  assert.ok(Body);
  return Buffer.from(await Body.transformToByteArray());
}

async function assertStored(place: Place, key: string, bytes: Buffer): Promise<void> {
  assert.ok((await stored(place, key)).equals(bytes), `${key} has the contents`);
}

async function keysOf({ sdk, bucket }: Place, prefix = ''): Promise<string[]> {
  const { Contents = [] } = await sdk.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
  return Contents.map(({ Key }) => Key ?? '');
}

function sdkSteps(): Steps {
  return {
    'create a bucket': ({ sdk, bucket }) => sdk.send(new CreateBucketCommand({ Bucket: bucket })),
    'store 64 KiB': async (place) => {
      await place.sdk.send(new PutObjectCommand({ Bucket: place.bucket, Key: 'a/small', Body: SMALL }));
      await assertStored(place, 'a/small', SMALL);
    },
    'store 20 MiB in parts': async (place) => {
      const params = { Bucket: place.bucket, Key: 'a/large', Body: LARGE };
      await new Upload({ client: place.sdk, params, partSize: 8 * 1024 * 1024 }).done();
      const { ETag } = await place.sdk.send(new HeadObjectCommand({ Bucket: place.bucket, Key: 'a/large' }));
      assert.match(ETag ?? '', /-3"$/);
    },
    'read it back': (place) => assertStored(place, 'a/large', LARGE),
    'read a range': async ({ sdk, bucket }) => {
      const { Body } = await sdk.send(
        new GetObjectCommand({ Bucket: bucket, Key: 'a/large', Range: 'bytes=6-11' }),
      );
      assert.equal(await Body?.transformToString(), 'large ');
    },
    'list all keys': async (place) => assert.deepEqual(await keysOf(place), ['a/large', 'a/small']),
    'list a directory': async ({ sdk, bucket }) => {
      const page = await sdk.send(new ListObjectsV2Command({ Bucket: bucket, Delimiter: '/' }));
      assert.deepEqual(page.CommonPrefixes, [{ Prefix: 'a/' }]);
    },
    'copy at the servers': async (place) => {
      const source = `${place.bucket}/a/small`;
      await place.sdk.send(
        new CopyObjectCommand({ Bucket: place.bucket, Key: 'b/copy', CopySource: source }),
      );
      await assertStored(place, 'b/copy', SMALL);
    },
    metadata: async ({ sdk, bucket }) => {
      const put = { Bucket: bucket, Key: 'm', Body: 'm', Metadata: { who: 'me' }, ContentType: 'text/x' };
      await sdk.send(new PutObjectCommand(put));
      const { Metadata, ContentType } = await sdk.send(new HeadObjectCommand({ Bucket: bucket, Key: 'm' }));
      assert.deepEqual([Metadata, ContentType], [{ who: 'me' }, 'text/x']);
    },
    tags: async ({ sdk, bucket }) => {
      const TagSet = [{ Key: 'k', Value: 'v' }];
      await sdk.send(new PutObjectTaggingCommand({ Bucket: bucket, Key: 'a/small', Tagging: { TagSet } }));
      const tags = await sdk.send(new GetObjectTaggingCommand({ Bucket: bucket, Key: 'a/small' }));
      assert.deepEqual(tags.TagSet, TagSet);
    },
    'create only if missing': async (place) => {
      const put = new PutObjectCommand({
        Bucket: place.bucket,
        Key: 'a/small',
        Body: 'other',
        IfNoneMatch: '*',
      });
      await assert.rejects(place.sdk.send(put), { name: 'PreconditionFailed' });
      await assertStored(place, 'a/small', SMALL);
    },
    'remove many': async (place) => {
      const Objects = (await keysOf(place)).map((Key) => ({ Key }));
      await place.sdk.send(new DeleteObjectsCommand({ Bucket: place.bucket, Delete: { Objects } }));
      assert.deepEqual(await keysOf(place), []);
    },
    'remove the bucket': ({ sdk, bucket }) => sdk.send(new DeleteBucketCommand({ Bucket: bucket })),
  };
}

/** A directory tree that a client brings there and back. */
function makeTree(place: Place): string {
  for (const name of ['tree/one', 'tree/two words', 'tree/deep/er/öne', 'tree/deep-er'])
    fileOf(place, name, name.repeat(100));
  return join(place.folder, 'tree');
}

function assertTreeAt(place: Place, folder: string): void {
  for (const name of ['one', 'two words', 'deep/er/öne', 'deep-er'])
    assert.equal(readFileSync(join(folder, name), 'utf8'), `tree/${name}`.repeat(100), name);
  assert.ok(place.folder.length > 0);
}

function awsSteps(path: string): Steps {
  const env = {
    AWS_ACCESS_KEY_ID: KEYS.access,
    AWS_SECRET_ACCESS_KEY: KEYS.secret,
    AWS_DEFAULT_REGION: 'us-east-1',
    AWS_EC2_METADATA_DISABLED: 'true',
  };
  const aws = (place: Place, ...argv: readonly string[]): Promise<string> =>
    runProgram(path, ['--endpoint-url', place.endpoint, ...argv], env);
  const s3 = (place: Place, ...argv: readonly string[]): Promise<string> =>
    aws(place, 's3', ...argv, ...(/^(cp|sync|rm)$/.test(argv[0] ?? '') ? ['--only-show-errors'] : []));
  return {
    'create a bucket': (place) => s3(place, 'mb', `s3://${place.bucket}`),
    'store 64 KiB': async (place) => {
      await s3(place, 'cp', fileOf(place, 'small', SMALL), `s3://${place.bucket}/a/small`);
      await assertStored(place, 'a/small', SMALL);
    },
    'store 20 MiB in parts': async (place) => {
      await s3(place, 'cp', fileOf(place, 'large', LARGE), `s3://${place.bucket}/a/large`);
      await assertStored(place, 'a/large', LARGE);
    },
    'read it back': async (place) => {
      await s3(place, 'cp', `s3://${place.bucket}/a/large`, join(place.folder, 'back'));
      assert.ok(readFileSync(join(place.folder, 'back')).equals(LARGE));
    },
    'read a range': async (place) => {
      const at = ['--bucket', place.bucket, '--key', 'a/large', '--range', 'bytes=6-11'];
      await aws(place, 's3api', 'get-object', ...at, join(place.folder, 'range'));
      assert.equal(readFileSync(join(place.folder, 'range'), 'utf8'), 'large ');
    },
    'list all keys': async (place) => {
      const listing = await s3(place, 'ls', '--recursive', `s3://${place.bucket}`);
      assert.deepEqual(listing.match(/\S+$/gm), ['a/large', 'a/small']);
    },
    'list a directory': async (place) =>
      assert.match(await s3(place, 'ls', `s3://${place.bucket}`), /PRE a\//),
    'copy at the servers': async (place) => {
      await s3(place, 'cp', `s3://${place.bucket}/a/large`, `s3://${place.bucket}/b/copy`);
      await assertStored(place, 'b/copy', LARGE);
    },
    metadata: async (place) => {
      const to = `s3://${place.bucket}/m`;
      await s3(place, 'cp', fileOf(place, 'm', 'm'), to, '--metadata', 'who=me', '--content-type', 'text/x');
      const head = await aws(place, 's3api', 'head-object', '--bucket', place.bucket, '--key', 'm');
      const { Metadata, ContentType } = JSON.parse(head);
      assert.deepEqual([Metadata, ContentType], [{ who: 'me' }, 'text/x']);
    },
    tags: async (place) => {
      const at = ['--bucket', place.bucket, '--key', 'a/small'];
      await aws(place, 's3api', 'put-object-tagging', ...at, '--tagging', 'TagSet=[{Key=k,Value=v}]');
      assert.match(await aws(place, 's3api', 'get-object-tagging', ...at), /"Key": "k"/);
    },
    'directory tree there and back': async (place) => {
      await s3(place, 'sync', makeTree(place), `s3://${place.bucket}/tree`);
      await s3(place, 'sync', `s3://${place.bucket}/tree`, join(place.folder, 'tree-back'));
      assertTreeAt(place, join(place.folder, 'tree-back'));
    },
    'remove many': async (place) => {
      await s3(place, 'rm', '--recursive', `s3://${place.bucket}`);
      assert.deepEqual(await keysOf(place), []);
    },
    'remove the bucket': (place) => s3(place, 'rb', `s3://${place.bucket}`),
  };
}

function s3cmdSteps(path: string): Steps {
  const s3cmd = (place: Place, ...argv: readonly string[]): Promise<string> => {
    const { host } = new URL(place.endpoint);
    const to = ['--no-ssl', `--host=${host}`, `--host-bucket=${host}`, '--no-progress', '--config=/dev/null'];
    const keys = [`--access_key=${KEYS.access}`, `--secret_key=${KEYS.secret}`];
    return runProgram(path, [...to, ...keys, ...argv], { LC_ALL: 'C.UTF-8' });
  };
  return {
    'create a bucket': (place) => s3cmd(place, 'mb', `s3://${place.bucket}`),
    'store 64 KiB': async (place) => {
      await s3cmd(place, 'put', fileOf(place, 'small', SMALL), `s3://${place.bucket}/a/small`);
      await assertStored(place, 'a/small', SMALL);
    },
    'store 20 MiB in parts': async (place) => {
      await s3cmd(place, 'put', fileOf(place, 'large', LARGE), `s3://${place.bucket}/a/large`);
      await assertStored(place, 'a/large', LARGE);
    },
    'read it back': async (place) => {
      await s3cmd(place, 'get', `s3://${place.bucket}/a/large`, join(place.folder, 'back'));
      assert.ok(readFileSync(join(place.folder, 'back')).equals(LARGE));
    },
    'list all keys': async (place) => {
      const listing = await s3cmd(place, 'ls', '--recursive', `s3://${place.bucket}`);
      assert.deepEqual(
        listing.match(/s3:\S+$/gm),
        ['a/large', 'a/small'].map((key) => `s3://${place.bucket}/${key}`),
      );
    },
    'list a directory': async (place) =>
      assert.match(await s3cmd(place, 'ls', `s3://${place.bucket}`), /DIR +s3:\S+\/a\//),
    'copy at the servers': async (place) => {
      await s3cmd(place, 'cp', `s3://${place.bucket}/a/small`, `s3://${place.bucket}/b/copy`);
      await assertStored(place, 'b/copy', SMALL);
    },
    metadata: async (place) => {
      const options = ['--add-header=x-amz-meta-who:me', '--mime-type=text/x'];
      await s3cmd(place, ...options, 'put', fileOf(place, 'm', 'm'), `s3://${place.bucket}/m`);
      const head = new HeadObjectCommand({ Bucket: place.bucket, Key: 'm' });
      const { Metadata, ContentType } = await place.sdk.send(head);
      assert.deepEqual([Metadata?.who, ContentType], ['me', 'text/x']);
    },
    'directory tree there and back': async (place) => {
      await s3cmd(place, 'sync', `${makeTree(place)}/`, `s3://${place.bucket}/tree/`);
      mkdirSync(join(place.folder, 'tree-back'));
      await s3cmd(place, 'sync', `s3://${place.bucket}/tree/`, `${join(place.folder, 'tree-back')}/`);
      assertTreeAt(place, join(place.folder, 'tree-back'));
    },
    'remove many': async (place) => {
      await s3cmd(place, 'del', '--recursive', '--force', `s3://${place.bucket}`);
      assert.deepEqual(await keysOf(place), []);
    },
    'remove the bucket': (place) => s3cmd(place, 'rb', `s3://${place.bucket}`),
  };
}

function rcloneSteps(path: string): Steps {
  const rclone = (place: Place, ...argv: readonly string[]): Promise<string> =>
    runProgram(path, ['--config', '/dev/null', ...argv], {
      RCLONE_CONFIG_LH_TYPE: 's3',
      RCLONE_CONFIG_LH_PROVIDER: 'Other',
      RCLONE_CONFIG_LH_ENDPOINT: place.endpoint,
      RCLONE_CONFIG_LH_ACCESS_KEY_ID: KEYS.access,
      RCLONE_CONFIG_LH_SECRET_ACCESS_KEY: KEYS.secret,
      RCLONE_CONFIG_LH_REGION: 'us-east-1',
    });
  const parts = ['--s3-upload-cutoff', '8M', '--s3-chunk-size', '8M'];
  return {
    'create a bucket': (place) => rclone(place, 'mkdir', `lh:${place.bucket}`),
    'store 64 KiB': async (place) => {
      await rclone(place, 'copyto', fileOf(place, 'small', SMALL), `lh:${place.bucket}/a/small`);
      await assertStored(place, 'a/small', SMALL);
    },
    'store 20 MiB in parts': async (place) => {
      await rclone(place, ...parts, 'copyto', fileOf(place, 'large', LARGE), `lh:${place.bucket}/a/large`);
      await assertStored(place, 'a/large', LARGE);
    },
    'read it back': async (place) => {
      await rclone(place, 'copyto', `lh:${place.bucket}/a/large`, join(place.folder, 'back'));
      assert.ok(readFileSync(join(place.folder, 'back')).equals(LARGE));
    },
    'read a range': async (place) =>
      assert.equal(
        await rclone(place, 'cat', '--offset', '6', '--count', '6', `lh:${place.bucket}/a/large`),
        'large ',
      ),
    'list all keys': async (place) => {
      const listing = await rclone(place, 'lsf', '-R', '--files-only', `lh:${place.bucket}`);
      assert.deepEqual(listing.trim().split('\n').toSorted(), ['a/large', 'a/small']);
    },
    'list a directory': async (place) =>
      assert.equal(await rclone(place, 'lsf', `lh:${place.bucket}`), 'a/\n'),
    'copy at the servers': async (place) => {
      await rclone(place, 'copyto', `lh:${place.bucket}/a/small`, `lh:${place.bucket}/b/copy`);
      await assertStored(place, 'b/copy', SMALL);
    },
    'directory tree there and back': async (place) => {
      await rclone(place, 'sync', makeTree(place), `lh:${place.bucket}/tree`);
      await rclone(place, 'check', makeTree(place), `lh:${place.bucket}/tree`);
      await rclone(place, 'sync', `lh:${place.bucket}/tree`, join(place.folder, 'tree-back'));
      assertTreeAt(place, join(place.folder, 'tree-back'));
    },
    'remove many': async (place) => {
      await rclone(place, 'delete', `lh:${place.bucket}`);
      assert.deepEqual(await keysOf(place), []);
    },
    'remove the bucket': (place) => rclone(place, 'purge', `lh:${place.bucket}`),
  };
}

const BOTO = `
import boto3, sys
from botocore.client import Config
from botocore.exceptions import ClientError
from boto3.s3.transfer import TransferConfig
endpoint, bucket, operation, folder = sys.argv[1:5]
s3 = boto3.client('s3', endpoint_url=endpoint, aws_access_key_id='anykey', aws_secret_access_key='anysecret',
                  region_name='us-east-1', config=Config(retries={'max_attempts': 1}))
small, large = b's' * 65536, (b'large ' * 4000000)[:20 * 1024 * 1024]
def read(key): return s3.get_object(Bucket=bucket, Key=key)['Body'].read()
def keys(**options): return [o['Key'] for page in s3.get_paginator('list_objects_v2').paginate(Bucket=bucket, **options) for o in page.get('Contents', [])]
if operation == 'create a bucket': s3.create_bucket(Bucket=bucket)
elif operation == 'store 64 KiB':
    s3.put_object(Bucket=bucket, Key='a/small', Body=small)
    assert read('a/small') == small
elif operation == 'store 20 MiB in parts':
    open(folder + '/large', 'wb').write(large)
    s3.upload_file(folder + '/large', bucket, 'a/large', Config=TransferConfig(multipart_threshold=8 << 20))
elif operation == 'read it back': assert read('a/large') == large
elif operation == 'read a range': assert s3.get_object(Bucket=bucket, Key='a/large', Range='bytes=6-11')['Body'].read() == b'large '
elif operation == 'list all keys': assert keys(PaginationConfig={'PageSize': 1}) == ['a/large', 'a/small']
elif operation == 'list a directory': assert s3.list_objects(Bucket=bucket, Delimiter='/')['CommonPrefixes'] == [{'Prefix': 'a/'}]
elif operation == 'copy at the servers':
    s3.copy({'Bucket': bucket, 'Key': 'a/large'}, bucket, 'b/copy')
    assert read('b/copy') == large
elif operation == 'metadata':
    s3.put_object(Bucket=bucket, Key='m', Body=b'm', Metadata={'who': 'me'}, ContentType='text/x')
    head = s3.head_object(Bucket=bucket, Key='m')
    assert head['Metadata'] == {'who': 'me'} and head['ContentType'] == 'text/x'
elif operation == 'tags':
    s3.put_object_tagging(Bucket=bucket, Key='a/small', Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}]})
    assert s3.get_object_tagging(Bucket=bucket, Key='a/small')['TagSet'] == [{'Key': 'k', 'Value': 'v'}]
elif operation == 'remove many':
    s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': key} for key in keys()]})
    assert keys() == []
elif operation == 'remove the bucket': s3.delete_bucket(Bucket=bucket)
else: raise SystemExit('unknown: ' + operation)
`;
const NOT_OF_BOTO: readonly OperationName[] = ['create only if missing', 'directory tree there and back'];

async function botoSteps(): Promise<Steps | null> {
  const python = programPath('python3');
  if (python === null) return null;
  try {
    await runProgram(python, ['-c', 'import boto3'], {});
  } catch {
    // The library is not installed.
    return null;
  }
  const steps = OPERATIONS.filter((name) => !NOT_OF_BOTO.includes(name)).map((name) => [
    name,
    ({ endpoint, bucket, folder }: Place) =>
      runProgram(python, ['-c', BOTO, endpoint, bucket, name, folder], { AWS_EC2_METADATA_DISABLED: 'true' }),
  ]);
  return Object.fromEntries(steps) as Steps;
}

/** A bucket as a mount: its writes are uploads. */
function s3fsSteps(path: string): Steps {
  const at = ({ folder }: Place): string => join(folder, 'mnt');
  return {
    'create a bucket': async (place) => {
      await place.sdk.send(new CreateBucketCommand({ Bucket: place.bucket }));
      mkdirSync(at(place));
      const options = [
        `url=${place.endpoint}`,
        'use_path_request_style',
        'sigv4',
        'endpoint=us-east-1',
        'multipart_size=8',
      ];
      await runProgram(path, [place.bucket, at(place), ...options.flatMap((one) => ['-o', one])], {
        AWSACCESSKEYID: KEYS.access,
        AWSSECRETACCESSKEY: KEYS.secret,
      });
      await until('it is mounted', async () => readFileSync('/proc/mounts', 'utf8').includes(at(place)));
    },
    'store 64 KiB': async (place) => {
      fileOf(place, 'mnt/a/small', SMALL);
      await assertStored(place, 'a/small', SMALL);
    },
    'store 20 MiB in parts': async (place) => {
      fileOf(place, 'mnt/a/large', LARGE);
      await assertStored(place, 'a/large', LARGE);
    },
    'read it back': async (place) => assert.ok(readFileSync(join(at(place), 'a/large')).equals(LARGE)),
    'remove the bucket': (place) => runProgram('/bin/umount', [at(place)], {}),
  };
}

export async function testedClients(): Promise<TestedClient[]> {
  const of = (program: string, steps: (path: string) => Steps): Steps | null => {
    const path = programPath(program);
    return path === null ? null : steps(path);
  };
  return [
    { name: 'AWS SDK for JavaScript', steps: sdkSteps() },
    { name: 'aws', steps: of('aws', awsSteps) },
    { name: 'boto3', steps: await botoSteps() },
    { name: 's3cmd', steps: of('s3cmd', s3cmdSteps) },
    { name: 'rclone', steps: of('rclone', rcloneSteps) },
    { name: 's3fs', steps: of('s3fs', s3fsSteps) },
  ];
}
