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

// Rows share no key: most of their time is that of disks.
describe('rows', { concurrency: 16 }, () => {
  for (const [index, row] of TABLE.entries()) test(row.name, () => player.play(row, `c${index}`));
});
