/**
 * Goal: a backup in a bucket of S3 is there as a whole or not at all and replaces no other, whatever happens to
 * connections and requests; it is read in one version; an upload that fails leaves nothing.
 * Method: a real server of S3, and a proxy before it that breaks chosen exchanges.
 */
import assert from 'node:assert/strict';
import { createCipheriv } from 'node:crypto';
import { once } from 'node:events';
import { beforeEach, test } from 'node:test';
import { ListMultipartUploadsCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { S3Store } from '../../client/backup/s3-store.ts';
import { SealedStreamError } from '../../client/backup/sealed-stream.ts';
import { S3Client, type S3ClientParts } from '../../client/s3/s3-client.ts';
import { s3SettingsOf } from '../../client/s3/s3-settings.ts';
import { partBytes } from '../../client/s3/s3-upload.ts';
import { CommandFailure } from '../../client/terminal/failure.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';
import { FaultyProxy, type Passing } from '../s3/faulty-proxy.ts';
import { clientOf, startS3 } from '../s3/s3-server.ts';

const MIB = 1024 * 1024;
const Bucket = 'backups';
const ENV = { AWS_ACCESS_KEY_ID: 'any', AWS_SECRET_ACCESS_KEY: 'any' };
const SMALL = Buffer.from('a small backup');
/** A whole part, and a smaller one. */
const LARGE = bytesOf(9 * MIB);

const s3 = await startS3();
await s3.server.execute({
  ...{ kind: 'volume-create', name: Bucket, policy: 'quorum', replicas: 1, quotaBytes: 0 },
  objectBytes: 128 * 1024,
});
const aws = clientOf(s3);
const proxy = await FaultyProxy.start(s3.url);
const reports: string[] = [];
let cases = 0;
let prefix = '';

beforeEach(() => {
  prefix = `case-${++cases}/`;
  proxy.fault = () => null;
  proxy.passed.length = 0;
  reports.length = 0;
});

function storeWith(parts: Partial<S3ClientParts> = {}, bucket = Bucket): S3Store {
  const settings = s3SettingsOf(bucket, { s3Endpoint: proxy.url }, ENV);
  const report = (text: string): void => void reports.push(text);
  return new S3Store(new S3Client({ world: systemWorld, settings, report, ...parts }), prefix);
}

/** No two parts are alike, so that an exchanged one is noticed. */
function bytesOf(count: number): Buffer {
  return createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(count));
}

async function* piecesOf(bytes: Buffer, size = 100_000): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function contentsOf(store: S3Store, name: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of store.read(name)) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function uploads(): Promise<number> {
  const { Uploads = [] } = await aws.send(new ListMultipartUploadsCommand({ Bucket }));
  return Uploads.length;
}

async function putOther(name: string, contents: Buffer | string): Promise<void> {
  await aws.send(new PutObjectCommand({ Bucket, Key: prefix + name, Body: Buffer.from(contents) }));
}

const isPart = ({ method, url }: Passing): boolean => method === 'PUT' && url.searchParams.has('partNumber');
const isCompletion = ({ method, url }: Passing): boolean =>
  method === 'POST' && url.searchParams.has('uploadId');
const isRead = ({ method, url }: Passing): boolean => method === 'GET' && url.pathname.endsWith('.lhb');

async function failure(work: Promise<unknown>): Promise<CommandFailure> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof CommandFailure, `It failed with ${error}`);
  return error;
}

test('what was written is listed, page by page, and read', async () => {
  const store = storeWith();
  assert.deepEqual(await store.names(), []);
  for (const [name, bytes] of [
    ['a b+c%.lhb', SMALL],
    ['ü&<.lhb', SMALL],
    ['large.lhb', LARGE],
    ['exact.lhb', LARGE.subarray(0, 8 * MIB)],
  ] as const) {
    await store.write(name, piecesOf(bytes), 0);
    assert.ok((await contentsOf(store, name)).equals(bytes), name);
  }
  for (const other of ['note.txt', '.hidden.lhb', 'deeper/d.lhb']) await putOther(other, 'x');
  proxy.fault = ({ url }) =>
    url.searchParams.has('list-type')
      ? { kind: 'send', target: `${url.pathname}${url.search}&max-keys=2` }
      : null;
  proxy.passed.length = 0;
  const names = ['a b+c%.lhb', 'exact.lhb', 'large.lhb', 'ü&<.lhb'];
  assert.deepEqual(await store.names(), names);
  assert.equal(proxy.passed.length, 4);
  assert.equal(await uploads(), 0);
});

test('a beginning is read without the rest', async () => {
  const store = storeWith();
  await store.write('large.lhb', piecesOf(LARGE), 0);
  proxy.passed.length = 0;
  for await (const _ of store.read('large.lhb')) break;
  assert.deepEqual(
    proxy.passed.map(({ headers }) => headers.range),
    ['bytes=0-262143'],
  );
  await putOther('empty.lhb', '');
  assert.equal((await contentsOf(store, 'empty.lhb')).length, 0);
});

for (const [what, bytes] of [
  ['one request', SMALL],
  ['parts', LARGE],
] as const) {
  test(`a name that is taken stays that of the other backup, for ${what}`, async () => {
    const store = storeWith();
    await putOther('taken.lhb', 'of another');
    const { exit, message } = await failure(store.write('taken.lhb', piecesOf(bytes), 0));
    assert.equal(exit, 4);
    assert.match(message, /Cannot write s3:\/\/backups\/case-\d+\/taken.lhb: it exists already/);
    assert.equal(proxy.passed.length, 1, 'Nothing was sent');
    assert.equal((await contentsOf(store, 'taken.lhb')).toString(), 'of another');
  });

  test(`a name that is taken meanwhile stays that of the other backup, for ${what}`, async () => {
    const store = storeWith();
    proxy.fault = async (request) => {
      if (request.headers['if-none-match'] === '*') await putOther('raced.lhb', 'of another');
      return null;
    };
    assert.equal((await failure(store.write('raced.lhb', piecesOf(bytes), 0))).exit, 4);
    assert.equal((await contentsOf(store, 'raced.lhb')).toString(), 'of another');
    assert.equal(await uploads(), 0);
  });

  test(`a store that knows no conditions is asked again whether the name is free, for ${what}`, async () => {
    const store = storeWith();
    let other = false;
    proxy.fault = async ({ headers }) => {
      if (headers['if-none-match'] === undefined) return null;
      if (other) await putOther('raced.lhb', 'of another');
      return { kind: 'answer', status: 501, code: 'NotImplemented' };
    };
    await store.write('free.lhb', piecesOf(bytes), 0);
    assert.ok((await contentsOf(store, 'free.lhb')).equals(bytes));
    other = true;
    assert.equal((await failure(store.write('raced.lhb', piecesOf(bytes), 0))).exit, 4);
    assert.equal((await contentsOf(store, 'raced.lhb')).toString(), 'of another');
    assert.equal(await uploads(), 0);
  });

  test(`a backup whose answer was lost is recognized, for ${what}`, async () => {
    const store = storeWith();
    proxy.fault = ({ headers, attempt }) =>
      headers['if-none-match'] === '*' && attempt === 1 ? { kind: 'lose-answer' } : null;
    await store.write('kept.lhb', piecesOf(bytes), 0);
    assert.ok((await contentsOf(store, 'kept.lhb')).equals(bytes));
    assert.match(reports.join('\n'), /no answer from http:.*; trying again/);
  });
}

test('an answer to a repeated completion that names no upload any more is no failure', async () => {
  const store = storeWith();
  proxy.fault = (request) => {
    if (!isCompletion(request)) return null;
    return request.attempt === 1
      ? { kind: 'lose-answer' }
      : { kind: 'answer', status: 404, code: 'NoSuchUpload' };
  };
  await store.write('kept.lhb', piecesOf(LARGE), 0);
  assert.ok((await contentsOf(store, 'kept.lhb')).equals(LARGE));
});

test('parts are repeated after lost connections, 503 and 429', async () => {
  const store = storeWith();
  const faults = [
    { kind: 'cut-request', bytes: 500_000 },
    { kind: 'answer', status: 503, code: 'SlowDown' },
    { kind: 'answer', status: 429, code: 'TooManyRequests', retryAfter: '2' },
    { kind: 'lose-answer' },
  ] as const;
  proxy.fault = (request) => (isPart(request) ? (faults[request.attempt - 1] ?? null) : null);
  await store.write('large.lhb', piecesOf(LARGE), 0);
  assert.ok((await contentsOf(store, 'large.lhb')).equals(LARGE));
  const parts = proxy.passed.filter(isPart);
  assert.equal(parts.length, 2 * (faults.length + 1));
  const [third = 0, fourth = 0] = [3, 4].map((n) => parts.find(({ attempt }) => attempt === n)?.atMs);
  assert.ok(fourth - third > 1_900, 'The store said when to try again');
});

test('an interrupted read continues where it was', async () => {
  const store = storeWith();
  await store.write('large.lhb', piecesOf(LARGE), 0);
  proxy.passed.length = 0;
  const cuts = [100_000, 3 * MIB, 1, 4 * MIB];
  let cut = 0;
  proxy.fault = (request) => {
    const bytes = isRead(request) ? cuts[cut++] : undefined;
    return bytes === undefined ? null : { kind: 'cut-answer', bytes };
  };
  assert.ok((await contentsOf(store, 'large.lhb')).equals(LARGE));
  const reads = proxy.passed.filter(isRead);
  assert.ok(reads.length > cuts.length);
  for (const { headers } of reads.slice(1)) {
    assert.match(String(headers.range), /^bytes=\d{5,}-$/);
    assert.match(String(headers['if-match']), /^"/);
  }
});

test('a read does not continue in another object of the same name', async () => {
  const store = storeWith();
  await store.write('large.lhb', piecesOf(LARGE), 0);
  proxy.fault = async (request) => {
    if (!isRead(request)) return null;
    if (request.headers.range === 'bytes=0-262143') return null;
    if (proxy.passed.filter(isRead).length === 2) return { kind: 'cut-answer', bytes: 1 * MIB };
    await putOther('large.lhb', Buffer.alloc(LARGE.length, 'other'));
    return null;
  };
  await assert.rejects(contentsOf(store, 'large.lhb'), (error: unknown) => {
    assert.ok(error instanceof SealedStreamError);
    assert.match(error.message, /it was replaced while it was read/);
    return true;
  });
});

test('an upload whose source fails leaves nothing', async () => {
  const store = storeWith();
  async function* failing(): AsyncGenerator<Buffer, void, undefined> {
    yield* piecesOf(LARGE);
    throw new CommandFailure(5, 'The source has failed');
  }
  assert.match((await failure(store.write('none.lhb', failing(), 0))).message, /source has failed/);
  assert.ok(proxy.passed.some(isPart));
  assert.equal(await uploads(), 0);
  assert.deepEqual(await store.names(), []);
});

test('an upload that the store refuses leaves nothing', async () => {
  const store = storeWith({ retryMs: 1 });
  for (const [status, code, exit] of [
    [403, 'AccessDenied', 6],
    [200, 'InternalError', 5],
    [507, 'InsufficientStorage', 1],
  ] as const) {
    proxy.fault = (request) => (isCompletion(request) ? { kind: 'answer', status, code } : null);
    const failed = await failure(store.write('none.lhb', piecesOf(LARGE), 0));
    assert.equal(failed.exit, exit, failed.message);
    assert.match(failed.message, new RegExp(`s3://backups/case.*none.lhb: the store answered ${code}`));
    assert.equal(await uploads(), 0);
    assert.deepEqual(await store.names(), []);
  }
});

test('an upload that is stopped leaves nothing', async () => {
  const controller = new AbortController();
  const store = storeWith({ signal: controller.signal });
  proxy.fault = (request) => {
    if (!isPart(request) || request.url.searchParams.get('partNumber') !== '2') return null;
    controller.abort(new CommandFailure(1, 'Stopped by the test'));
    return { kind: 'hold', until: once(controller.signal, 'never') };
  };
  assert.match((await failure(store.write('none.lhb', piecesOf(LARGE), 0))).message, /Stopped by the test/);
  assert.equal(await uploads(), 0);
});

test('parts that stay in the store are reported', async () => {
  const store = storeWith();
  proxy.fault = (request) =>
    isPart(request) || request.method === 'DELETE'
      ? { kind: 'answer', status: 403, code: 'AccessDenied' }
      : null;
  assert.equal((await failure(store.write('none.lhb', piecesOf(LARGE), 0))).exit, 6);
  assert.match(
    reports.join('\n'),
    /parts of s3:.*none.lhb stay in the store until its upload ".+" is aborted: /,
  );
});

test('no more is taken from the source than the parts that are being sent', async () => {
  const store = storeWith();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  proxy.fault = (request) => (isPart(request) ? { kind: 'hold', until: released } : null);
  let taken = 0;
  async function* counted(): AsyncGenerator<Buffer, void, undefined> {
    for (let count = 0; count < 40; count++) {
      taken += MIB;
      yield Buffer.alloc(MIB, count);
    }
  }
  const written = store.write('large.lhb', counted(), 0);
  await until('four parts wait', async () => proxy.passed.filter(isPart).length >= 4);
  // The next piece shows that the part before it is full.
  assert.equal(taken, 33 * MIB);
  release();
  await written;
  assert.equal((await contentsOf(store, 'large.lhb')).length, 40 * MIB);
});

test('refusals say what to do', async () => {
  const nowhere = await failure(storeWith({}, 'nowhere').names());
  assert.equal(nowhere.exit, 3);
  assert.match(nowhere.message, /NoSuchBucket/);
  assert.match(nowhere.hint, /create the bucket "nowhere"/);
  proxy.fault = () => ({ kind: 'answer', status: 301, code: 'PermanentRedirect' });
  assert.match((await failure(storeWith().names())).hint, /set AWS_REGION/);
  proxy.target = 'http://127.0.0.1:1';
  proxy.fault = () => null;
  const unreached = await failure(storeWith({ retryMs: 1 }).names());
  assert.equal(unreached.exit, 5);
  assert.match(unreached.message, /no answer from http/);
  const s3Endpoint = proxy.url.replace('http:', 'https:');
  const settings = s3SettingsOf(Bucket, { s3Endpoint }, ENV);
  const plain = await failure(storeWith({ settings }).names());
  assert.equal(plain.exit, 6);
  assert.match(plain.hint, /not TLS/);
  proxy.target = s3.server.url;
  assert.match((await failure(storeWith().names())).message, /none of S3|HTTP status 4/);
  proxy.target = s3.url;
});

test('each object of up to 5 TiB has its 10,000 parts, of equal size if it is as large as expected', () => {
  const TIB = 2 ** 40;
  for (const expected of [0, 1, 40 * 2 ** 30, TIB, 5 * TIB]) {
    let bytes = 0;
    for (let number = 1; number <= 10_000; number++) {
      const size = partBytes(expected, number);
      assert.ok(size >= 5 * MIB && size <= 5 * 1024 * MIB);
      if (number <= 8_000) assert.equal(size, partBytes(expected, 1));
      bytes += size;
      if (number === 8_000) assert.ok(bytes >= 1.2 * expected);
    }
    assert.ok(bytes >= 5 * TIB, `${expected}: ${bytes / TIB} TiB`);
  }
});
