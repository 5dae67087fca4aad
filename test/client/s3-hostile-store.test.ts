/**
 * Goal: a store of S3 that answers against its protocol makes no backup look whole, and no command run for ever or
 * print secrets.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { S3Store } from '../../client/backup/s3-store.ts';
import { S3Client } from '../../client/s3/s3-client.ts';
import { s3SettingsOf } from '../../client/s3/s3-settings.ts';
import { CommandFailure } from '../../client/terminal/failure.ts';
import { patientWorld } from '../patient-world.ts';

const ENV = { AWS_ACCESS_KEY_ID: 'any', AWS_SECRET_ACCESS_KEY: 'any' };
const MIB = 2 ** 20;

type Answer = (request: IncomingMessage, response: ServerResponse, count: number) => void;

async function withStore(answer: Answer, work: (store: S3Store) => Promise<void>): Promise<void> {
  let count = 0;
  const server = createServer((request, response) => {
    request.resume();
    answer(request, response, ++count);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const settings = s3SettingsOf('bucket', { s3Endpoint: `http://127.0.0.1:${port}` }, ENV);
  try {
    await work(
      new S3Store(
        new S3Client({ world: patientWorld, settings, report: () => undefined, retryMs: 1_000 }),
        '',
      ),
    );
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

function listing(inner: string): Answer {
  return (_, response) => void response.end(`<ListBucketResult>${inner}</ListBucketResult>`);
}

test('an object without a length that ends early is not whole', async () => {
  const cut: Answer = (_, response) => {
    response.writeHead(200);
    response.write('half', () => response.destroy());
  };
  await withStore(cut, (store) => assert.rejects(text(store.read('a.lhb'))));
});

test('a read does not continue in another object, whatever the store makes of its condition', async () => {
  const objects = ['a', 'b'].map((letter) => letter.repeat(300_000));
  const ignoring: Answer = ({ headers }, response, count) => {
    const object = objects[Math.min(count, objects.length) - 1] ?? '';
    const [, from = '0', to = ''] = /bytes=(\d+)-(\d*)/.exec(headers.range ?? '') ?? [];
    const end = to === '' ? object.length - 1 : Number(to);
    response.writeHead(206, { 'content-range': `bytes ${from}-${end}/${object.length}`, etag: `"${count}"` });
    response.end(object.slice(Number(from), end + 1));
  };
  await withStore(ignoring, (store) => assert.rejects(text(store.read('a.lhb'))));
});

test('a listing that never ends, or has keys that cannot be decoded, is refused', async () => {
  for (const inner of [
    '<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>',
    '<EncodingType>url</EncodingType><Contents><Key>a%ZZ.lhb</Key></Contents>',
  ])
    await withStore(listing(inner), (store) => assert.rejects(store.names(), CommandFailure));
});

test('a document that never ends is refused', async () => {
  const endless: Answer = (_, response) => {
    const piece = Buffer.alloc(MIB, 'x');
    response.write('<ListBucketResult>');
    const more = (): void => void (response.destroyed || response.write(piece, more));
    more();
  };
  await withStore(endless, (store) => assert.rejects(store.names(), CommandFailure));
});

test('objects below the place are none of its backups', async () => {
  const inner = ['sub/a.lhb', 'b.lhb'].map((key) => `<Contents><Key>${key}</Key></Contents>`).join('');
  await withStore(listing(inner), async (store) => assert.deepEqual(await store.names(), ['b.lhb']));
});

test('an upload without an id sends no part', async () => {
  const methods: (string | undefined)[] = [];
  const withoutId: Answer = ({ method, url }, response) => {
    methods.push(method);
    if (method === 'GET') return void response.writeHead(404).end();
    response.setHeader('etag', '"x"');
    response.end(url?.includes('uploads') ? '<InitiateMultipartUploadResult/>' : '');
  };
  await withStore(withoutId, (store) =>
    assert.rejects(
      store.write(
        'a.lhb',
        (async function* () {
          yield Buffer.alloc(9 * MIB);
        })(),
        0,
      ),
      CommandFailure,
    ),
  );
  assert.ok(!methods.includes('PUT'), methods.join(' '));
});

test('an endpoint with a password is refused, and the password not printed', () => {
  for (const s3Endpoint of ['https://me:hunter2@store', 'https://:hunter2@store'])
    assert.throws(
      () => s3SettingsOf('bucket', { s3Endpoint }, ENV),
      (error: Error) => !error.message.includes('hunter2'),
    );
});

test('a session token with a line break is refused as such', () => {
  assert.throws(() => s3SettingsOf('bucket', {}, { ...ENV, AWS_SESSION_TOKEN: 'token\n' }), CommandFailure);
});

test('an address that never answers is given up ten seconds after its first failure', async () => {
  let nowMs = 0;
  const settings = s3SettingsOf('bucket', { s3Endpoint: 'http://192.0.2.1' }, ENV);
  const client = new S3Client({
    world: {
      ...patientWorld,
      nowMs: () => nowMs,
      sleep: async (ms) => {
        nowMs += ms;
      },
    },
    settings,
    report: () => undefined,
  });
  const retries = client.retries('read', 'a.lhb');
  const silent = Object.assign(new Error('Connect Timeout Error'), { code: 'UND_ERR_CONNECT_TIMEOUT' });
  const attempt = async (): Promise<void> => {
    nowMs += 10_000;
    await retries.wait(silent);
    await attempt();
  };
  await assert.rejects(attempt(), /no answer from http:\/\/192\.0\.2\.1/);
  assert.ok(nowMs < 21_000, `It took ${nowMs} ms`);
});
