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
import { ObjectPlayer } from './object-player.ts';
import { SecureS3 } from './secure-s3.ts';
import type { RawRequest } from './sign.ts';

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

test('a refused form is read to its end, so that the next request is answered', async () => {
  const refused = player.request(
    {
      method: 'POST',
      path: '/bucket',
      sign: { by: 'nothing' },
      form: {
        fields: [['key', 'refused']],
        conditions: [{ bucket: 'bucket' }, ['starts-with', '$key', 'a']],
        file: 'x'.repeat(3_000_000),
      },
    },
    '',
    null,
  );
  const next = player.request({ exactKey: 'refused', headers: [['connection', 'close']] }, '', null);
  const text = await server.sendBytes(Buffer.concat([encodedRequest(refused), encodedRequest(next)]), {
    ends: false,
  });
  assert.deepEqual(
    [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status),
    ['403', '404'],
  );
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
