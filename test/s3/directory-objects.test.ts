import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { Directories } from '../../server/http/directories.ts';
import { NewFiles } from '../../server/http/new-files.ts';
import { Uploads } from '../../server/http/upload.ts';
import { Buckets } from '../../server/s3/buckets.ts';
import { PayloadCheck } from '../../server/s3/checksums.ts';
import { IMPLICIT_XATTR } from '../../server/s3/object-record.ts';
import { ObjectStore } from '../../server/s3/object-store.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { FakeCluster } from '../http/fake-services.ts';

/**
 * Goal: a directory that was put as an object stays, although the last object in it is removed at the same time; one
 * that another request removes is no failure.
 * Method: a real catalog, before which the test holds a command or query for the directory.
 */
const cluster = await FakeCluster.start();
after(() => cluster.close());
const gateway = cluster.servers[0]?.gateway;
assert.ok(gateway);
const buckets = new Buckets(gateway, { kind: 'volumes' });
const directories = new Directories(gateway, [IMPLICIT_XATTR]);
const files = new NewFiles(gateway, { uploads: new Uploads(gateway), directories, wholeFiles: null });
const objects = new ObjectStore({ gateway, files, directories, buckets });
const bucket = buckets.named('main');

async function put(key: string, text: string, ifNoneMatch?: '*'): Promise<void> {
  const check = new PayloadCheck({ md5: null, sha256: null, algorithm: null, claimed: () => null });
  const conditions = { ifMatch: undefined, ifNoneMatch };
  const body = Readable.from(text === '' ? [] : [Buffer.from(text)], { objectMode: false });
  await objects.put(
    { bucket, key, conditions, record: {}, removal: {} },
    { body, check, lengthBytes: text.length, announcedBytes: null },
  );
}

/** Does `work` once, before the catalog gets the first command of this kind. */
function before(kind: Command['kind'], work: () => Promise<void>): void {
  let isDone = false;
  cluster.intercept = async ({ request }) => {
    if (isDone || request === undefined || !('command' in request) || request.command.kind !== kind) return;
    isDone = true;
    await work();
  };
}

test('a directory goes with the last object in it', async () => {
  await put('alone/last', 'x');
  await objects.remove(bucket, 'alone/last', {}, {});
  const query = { kind: 'resolve', volume: 'main', path: '/alone', follow: true } as const;
  await assert.rejects(gateway.queryCatalog(query), { code: 'not-found' });
});

test('a directory that is put while its last object is removed stays', async () => {
  await put('both/last', 'x');
  before('remove-directory', () => put('both/', ''));
  await objects.remove(bucket, 'both/last', {}, {});
  assert.equal((await objects.find(bucket, 'both/')).attributes.kind, 'directory');
});

test('a directory that another request removes at the same time goes with its parent', async () => {
  await put('shared/deep/last', 'x');
  const place = { volume: 'main', path: '/shared/deep' } as const;
  // After the object, its directory is found, and then listed.
  let queries = Number.NEGATIVE_INFINITY;
  cluster.intercept = async ({ method, request }) => {
    if (request !== undefined && 'command' in request && request.command.kind === 'unlink') queries = 0;
    if (method !== 'query' || ++queries !== 2) return;
    await gateway.durably({ kind: 'remove-directory', place });
  };
  await objects.remove(bucket, 'shared/deep/last', {}, {});
  assert.ok(queries > 2);
  const query = { kind: 'resolve', volume: 'main', path: '/shared', follow: true } as const;
  await assert.rejects(gateway.queryCatalog(query), { code: 'not-found' });
});

test('a directory with objects that another request removes at the same time is removed', async () => {
  await put('full/', '');
  await put('full/last', 'x');
  before('set-xattr', async () => {
    await objects.remove(bucket, 'full/last', {}, {});
    await objects.remove(bucket, 'full/', {}, {});
  });
  await objects.remove(bucket, 'full/', {}, {});
  await assert.rejects(objects.find(bucket, 'full/'), { s3: 'NoSuchKey' });
});

test('of two requests that put a directory only if it is missing, one succeeds', async () => {
  before('make-directory', () => put('once/', '', '*'));
  await assert.rejects(put('once/', '', '*'), { code: 'precondition-failed' });
});
