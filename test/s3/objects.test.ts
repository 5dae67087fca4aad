/**
 * Goal: a server answers requests about objects as the documentation of S3 says, accepts no request that is not signed
 * right, and a refused request changes nothing.
 * Method: rows of a table, played side by side against one server with TLS and tokens; the client is our own.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PRESIGNED, SIGNATURES, TOKENS } from './cases/authentication.ts';
import { CHUNKS, DIGESTS } from './cases/checksums.ts';
import { CONDITIONS } from './cases/conditions.ts';
import { CONTENTS } from './cases/contents.ts';
import { COPIES } from './cases/copies.ts';
import { FORMS } from './cases/forms.ts';
import { KEYS } from './cases/keys.ts';
import { METADATA } from './cases/metadata.ts';
import { put } from './cases/requests.ts';
import { TAGGING } from './cases/tags.ts';
import type { Sent } from './object-case.ts';
import { ObjectPlayer } from './object-player.ts';
import { SecureS3 } from './secure-s3.ts';
import { type RawRequest, STREAMED } from './sign.ts';

const TABLE = [
  ...[CONTENTS, CONDITIONS, METADATA, DIGESTS, CHUNKS, SIGNATURES, TOKENS, PRESIGNED, FORMS, KEYS],
  ...[COPIES, TAGGING],
].flat();

const server = await SecureS3.start();
const player = new ObjectPlayer(server);
for (const bucket of ['bucket', 'other'])
  await player.play({ name: bucket, send: put('', [], { path: `/${bucket}` }), answer: { status: 200 } }, '');

test('each row has a name of its own', () => {
  const names = TABLE.map(({ name }) => name);
  assert.deepEqual(
    names.filter((name, index) => names.indexOf(name) !== index),
    [],
  );
  assert.ok(names.length >= 200);
});

const LONG = Buffer.alloc(3_000_000, 'x');
const IN_CHUNKS = { payload: STREAMED, chunks: [1_000_000, 2_000_000] } as const;

/** Refused while most of their body is unread. */
const REFUSED: Readonly<Record<string, Sent>> = {
  'a form': {
    method: 'POST',
    path: '/bucket',
    sign: { by: 'nothing' },
    form: {
      fields: [['key', 'refused']],
      conditions: [{ bucket: 'bucket' }, ['starts-with', '$key', 'a']],
      file: LONG.toString(),
    },
  },
  'a form with a file that is too long': {
    method: 'POST',
    path: '/bucket',
    sign: { by: 'nothing' },
    form: {
      fields: [['key', 'refused']],
      conditions: [{ bucket: 'bucket' }, { key: 'refused' }, ['content-length-range', 0, 9]],
      file: LONG.toString(),
    },
  },
  'a body by a reader': put(LONG, [], { sign: { as: 'reader' } }),
  'a body under a condition': put(LONG, [['if-match', '"0"']]),
  'a body for a missing bucket': put(LONG, [], { bucket: 'missing' }),
  'a document': put(LONG, [], { query: 'tagging' }),
  'chunks of another signature': put(LONG, [], {
    sign: {
      ...CHUNKS,
      change: (request) => ({ ...request, body: Buffer.from(request.body).fill('y', 200, 300) }),
    },
  }),
  'chunks that are none': put(LONG, [], {
    sign: { ...IN_CHUNKS, change: (request) => ({ ...request, body: LONG }) },
  }),
  'chunks of more than announced': put(LONG, [['x-amz-decoded-content-length', '10']], { sign: IN_CHUNKS }),
};

for (const [what, sent] of Object.entries(REFUSED))
  test(`${what}: refused, and read to the end, so that the next request is answered`, async () => {
    const refused = player.request({ exactKey: 'refused', ...sent }, '', null);
    const next = player.request({ exactKey: 'refused', headers: [['connection', 'close']] }, '', null);
    const bytes = Buffer.concat([encodedRequest(refused), encodedRequest(next)]);
    const text = await server.sendBytes(bytes, { ends: false });
    const [first = '', second] = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    assert.match(first, /^4/, text);
    assert.equal(second, '404', text);
  });

/** The bytes of a request. */
function encodedRequest({ method, target, headers, body }: RawRequest): Buffer {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const head = `${method} ${target} HTTP/1.1\r\n${lines}content-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

// Rows share no key: most of their time is that of disks.
describe('rows', { concurrency: 16 }, () => {
  for (const [index, row] of TABLE.entries()) test(row.name, () => player.play(row, `c${index}`));
});
