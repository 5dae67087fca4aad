/**
 * Goal: backups use a store with TLS and access keys with their rights, and say what is wrong with the access.
 * Method: one server with TLS and tokens, asked by the client of backups; the signature is checked by the server.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { World } from '../../base/world.ts';
import { S3Store } from '../../client/backup/s3-store.ts';
import { S3Client } from '../../client/s3/s3-client.ts';
import { s3SettingsOf } from '../../client/s3/s3-settings.ts';
import { CommandFailure } from '../../client/terminal/failure.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { SecureS3, type TokenName } from './secure-s3.ts';
import type { Credentials } from './sign.ts';

const server = await SecureS3.start();
const s3Endpoint = `https://${server.host}`;
const s3Ca = server.cluster.authority.ca;

function variables({ accessKeyId, secretAccessKey }: Credentials): Record<string, string> {
  return { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey };
}

function clientWith(credentials: Credentials, world: World = systemWorld, bucket = 'bucket'): S3Client {
  const env = { ...variables(credentials), AWS_REGION: 'eu-central-1', AWS_SESSION_TOKEN: 'of a session' };
  const settings = s3SettingsOf(bucket, { s3Endpoint, s3Ca }, env);
  return new S3Client({ world, settings, report: () => undefined });
}

async function* oneOf(bytes: Buffer): AsyncGenerator<Buffer, void, undefined> {
  yield bytes;
}

async function refused(work: Promise<unknown>, message: RegExp, hint: RegExp): Promise<void> {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(error instanceof CommandFailure, String(error));
    assert.match(error.message, message);
    assert.match(error.hint, hint);
    assert.equal(error.exit, 6);
    return true;
  });
}

for (const bucket of ['bucket', 'other'])
  await clientWith(server.credentials('admin'), systemWorld, bucket).send(
    { method: 'PUT', what: 'create', key: '' },
    async ({ body }) => body.dump(),
  );
const of = (name: TokenName, bucket = 'bucket'): S3Store =>
  new S3Store(clientWith(server.credentials(name), systemWorld, bucket), 'ü (1)/+&=/');

test('a key with the right to write writes; one with the right to read reads', async () => {
  const bytes = Buffer.alloc(9 * 2 ** 20, 'a backup');
  await of('one').write('a +1.lhb', oneOf(bytes), 0);
  await of('writer').write("b*!'().lhb", oneOf(Buffer.from('small')), 0);
  assert.deepEqual(await of('reader').names(), ['a +1.lhb', "b*!'().lhb"]);
  const read: Uint8Array[] = [];
  for await (const piece of of('reader').read('a +1.lhb')) read.push(piece);
  assert.ok(Buffer.concat(read).equals(bytes));
});

test('what the key may not do is refused, and changes nothing', async () => {
  const write = (store: S3Store): Promise<void> => store.write('new.lhb', oneOf(Buffer.from('x')), 0);
  await refused(write(of('reader')), /Cannot write s3:.*new.lhb: .*AccessDenied/, /needs the right to list/);
  await refused(write(of('one', 'other')), /AccessDenied/, /needs the right/);
  await refused(of('one', 'other').names(), /Cannot list s3:\/\/other\/: .*AccessDenied/, /needs the right/);
  assert.ok(!(await of('reader').names()).includes('new.lhb'));
});

test('wrong credentials and a wrong clock are named', async () => {
  const known = server.credentials('writer');
  const other = { ...known, secretAccessKey: 'x'.repeat(40) };
  await refused(new S3Store(clientWith(other), '').names(), /SignatureDoesNotMatch/, /AWS_SECRET_ACCESS_KEY/);
  const unknown = { ...known, accessKeyId: 'LHS3000000000000' };
  await refused(new S3Store(clientWith(unknown), '').names(), /InvalidAccessKeyId/, /AWS_ACCESS_KEY_ID/);
  const late: World = { ...systemWorld, wallMs: () => systemWorld.wallMs() - 3_600_000 };
  await refused(
    new S3Store(clientWith(known, late), '').names(),
    /RequestTimeTooSkewed/,
    /synchronize the clock .*: it is 60 minutes behind the store's/,
  );
});

test('the command line trusts the CA that is named', async () => {
  const words = ['backup', 'verify', 's3://bucket/none/', '--s3-endpoint', s3Endpoint];
  const env = variables(server.credentials('reader'));
  const trusted = await runCli([...words, '--s3-ca', s3Ca], { env });
  assert.match(trusted.stderr, /There are no backups in s3:\/\/bucket\/none\//);
  const byVariable = await runCli(words, { env: { ...env, AWS_CA_BUNDLE: s3Ca } });
  assert.equal(byVariable.code, 3);
  const untrusted = await runCli(words, { env });
  assert.equal(untrusted.code, 6);
  assert.match(untrusted.stderr, /has no trusted certificate: .*\n {2}name its CA certificate with --s3-ca/);
  const missing = await runCli([...words, '--s3-ca', '/nowhere/ca.pem'], { env });
  assert.equal(missing.code, 2);
});
