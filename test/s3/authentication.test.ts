/** The rules of signatures and policies, each by itself: planted bugs are detected here, without a server. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { FastifyRequest } from 'fastify';
import { s3CredentialsOf, tokenIdOf } from '../../platform/s3-credentials.ts';
import { type Authenticated, authenticate, verifyPolicy } from '../../server/s3/authentication.ts';
import { checkPolicy } from '../../server/s3/post-object.ts';
import { TokenStore } from '../../server/security/token-file.ts';
import { formatTokenFile, type KnownToken } from '../../wire/tokens.ts';
import { patientWorld } from '../patient-world.ts';
import {
  amzDateOf,
  type Header,
  presign,
  type RawRequest,
  type Scope,
  sha256Hex,
  signHeaders,
  signPolicy,
  signPolicyOld,
} from './sign.ts';

const NOW_MS = Date.parse('2026-11-30T12:00:00Z');
const KEY = Buffer.alloc(32, 5).toString('base64url');

function token(id: string, more: Partial<KnownToken> = {}): KnownToken {
  const hash = Buffer.alloc(32, id).toString('base64url');
  const createdAt = '2026-01-01T00:00:00.000Z';
  return { ...{ id, name: id, role: 'write', volumes: null, hash, createdAt, expiresAt: null }, ...more };
}

const WRITER = token('0123456789ab');
const ENDED = token('ba9876543210', { expiresAt: '2026-11-30T11:59:59.000Z' });
const folder = mkdtempSync(join(tmpdir(), 'leasehold-s3-authentication-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const file = join(folder, 'tokens.json');
writeFileSync(file, formatTokenFile({ keys: [KEY], tokens: [WRITER, ENDED], revoked: [] }));
const tokens = new TokenStore(patientWorld, file);
const credentials = s3CredentialsOf(KEY, WRITER);

function scopeAt(ms: number): Scope {
  return { amzDate: amzDateOf(ms), region: 'us-east-1', service: 's3' };
}

function put(target = '/bucket/key', headers: readonly Header[] = []): RawRequest {
  return { method: 'PUT', target, headers: [['host', 'h'], ...headers], body: Buffer.from('bar') };
}

/** What the server finds out about a request. */
function found(request: RawRequest, nowMs = NOW_MS): Authenticated {
  const [path = '', query = ''] = request.target.split('?');
  const headers: Record<string, string> = {};
  for (const [name, value] of request.headers) headers[name] ??= value;
  const rawHeaders = request.headers.flat();
  const raw = { rawHeaders, socket: {} };
  const fake = { method: request.method, headers, raw } as unknown as FastifyRequest;
  return authenticate(fake, { path, query: [...new URLSearchParams(query)] }, tokens, nowMs);
}

function signed(request: RawRequest, atMs = NOW_MS): RawRequest {
  return signHeaders(request, credentials, scopeAt(atMs), sha256Hex(request.body)).request;
}

function adding(request: RawRequest, ...headers: readonly Header[]): RawRequest {
  return { ...request, headers: [...request.headers, ...headers] };
}

test('a signed request is of its token, and has the digest of its body', () => {
  const { principal, payload } = found(signed(put()));
  assert.equal(principal.kind === 'client' && principal.grant.name, WRITER.name);
  assert.deepEqual(payload, { kind: 'plain', sha256: Buffer.from(sha256Hex('bar'), 'hex') });
});

test('a signature covers method, key, parameters and signed headers', () => {
  const request = signed(put('/bucket/key?a=b', [['user-agent', 'one']]));
  const changes: readonly Partial<RawRequest>[] = [
    { method: 'DELETE' },
    { target: '/bucket/other?a=b' },
    { target: '/bucket/key?a=c' },
    { target: '/bucket/key' },
    { target: '/bucket/key?a=b&tagging' },
    { headers: request.headers.map(([name, value]) => [name, value.replace(/^one$/, 'two')]) },
  ];
  for (const change of changes)
    assert.throws(() => found({ ...request, ...change }), { s3: 'SignatureDoesNotMatch' });
});

test('headers that S3 obeys are signed', () => {
  const name = 'x-amz-copy-source';
  assert.throws(() => found(adding(signed(put()), [name, 'other/secret'])), { s3: 'AccessDenied' });
  const url = presign(put(), credentials, scopeAt(NOW_MS), '60');
  assert.throws(() => found(adding(url, [name, 'other/secret'])), { s3: 'AccessDenied' });
  found(adding(url, ['content-type', 'text/plain']));
});

test('a signature in headers is valid for a quarter of an hour', () => {
  const minutes = (count: number): RawRequest => signed(put(), NOW_MS + count * 60_000);
  for (const count of [-15, 0, 15]) found(minutes(count));
  for (const count of [-16, 16]) assert.throws(() => found(minutes(count)), { s3: 'RequestTimeTooSkewed' });
});

test('a presigned URL is valid until it expires, a week at most', () => {
  const url = (expires: string): RawRequest => presign(put(), credentials, scopeAt(NOW_MS), expires);
  found(url('60'), NOW_MS + 60_000);
  found(url('604800'), NOW_MS + 604_800_000);
  assert.throws(() => found(url('60'), NOW_MS + 60_001), { s3: 'AccessDenied' });
  assert.throws(() => found(url('60'), NOW_MS - 16 * 60_000), { s3: 'AccessDenied' });
  for (const expires of ['604801', '-1', '1e9', '', 'Infinity'])
    assert.throws(() => found(url(expires)), { s3: 'AccessDenied' }, expires);
});

test('a presigned URL cannot be prolonged', () => {
  const { target, ...request } = presign(put(), credentials, scopeAt(NOW_MS), '60');
  const longer = { ...request, target: target.replace('Expires=60', 'Expires=600') };
  assert.throws(() => found(longer), { s3: 'SignatureDoesNotMatch' });
  const twice = { ...request, target: `${target}&X-Amz-Expires=600` };
  assert.throws(() => found(twice), { s3: 'AuthorizationQueryParametersError' });
});

test('the access key of a token that has ended is unknown', () => {
  const ended = s3CredentialsOf(KEY, ENDED);
  const request = signHeaders(put(), ended, scopeAt(NOW_MS), sha256Hex('bar')).request;
  assert.throws(() => found(request), { s3: 'InvalidAccessKeyId' });
});

test('an access key names its token, and its secret depends on the key of the file and the token', () => {
  assert.equal(tokenIdOf(credentials.accessKeyId), WRITER.id);
  for (const text of [
    '',
    'LHS3',
    'LHS30123456789A',
    'LHS30123456789ABC',
    'lhs30123456789AB',
    'AKIAIOSFODNN7EXAMPLE',
  ])
    assert.equal(tokenIdOf(text), null);
  const other = Buffer.alloc(32, 6).toString('base64url');
  const secrets = [
    credentials,
    s3CredentialsOf(other, WRITER),
    s3CredentialsOf(KEY, { ...WRITER, hash: 'A'.repeat(43) }),
    s3CredentialsOf(KEY, { ...WRITER, id: 'cccccccccccc' }),
  ].map(({ secretAccessKey }) => secretAccessKey);
  assert.equal(new Set(secrets).size, secrets.length);
});

function encodedPolicy(conditions: readonly unknown[], expiration = '2026-11-30T13:00:00Z'): string {
  return Buffer.from(JSON.stringify({ expiration, conditions })).toString('base64');
}

test('a policy is signed by version 4 or 2', () => {
  const policy = encodedPolicy([{ bucket: 'bucket' }]);
  const scope = scopeAt(NOW_MS);
  const { accessKeyId, secretAccessKey } = credentials;
  const of4 = {
    'x-amz-algorithm': 'AWS4-HMAC-SHA256',
    'x-amz-credential': `${accessKeyId}/20261130/us-east-1/s3/aws4_request`,
    'x-amz-signature': signPolicy(policy, secretAccessKey, scope),
  };
  const of2 = { awsaccesskeyid: accessKeyId, signature: signPolicyOld(policy, secretAccessKey) };
  for (const fields of [of4, of2]) {
    const given = new Map(Object.entries(fields));
    assert.equal(verifyPolicy(given, policy, tokens, NOW_MS).kind, 'client');
    const other = encodedPolicy([{ bucket: 'other' }]);
    assert.throws(() => verifyPolicy(given, other, tokens, NOW_MS), { s3: 'SignatureDoesNotMatch' });
    assert.throws(() => verifyPolicy(given, '', tokens, NOW_MS), { s3: 'AccessDenied' });
  }
  assert.throws(() => verifyPolicy(new Map(), policy, tokens, NOW_MS), { s3: 'InvalidArgument' });
});

const FIELDS = { bucket: 'bucket', key: 'user/a' };
const CONDITIONS = [{ bucket: 'bucket' }, ['starts-with', '$key', 'user/']];

test('a policy allows what it says until it expires', () => {
  const range = ['content-length-range', 1, 10];
  const { lengthMin, lengthMax } = checkPolicy(encodedPolicy([...CONDITIONS, range]), FIELDS, NOW_MS);
  assert.deepEqual([lengthMin, lengthMax], [1, 10]);
  assert.throws(() => checkPolicy(encodedPolicy(CONDITIONS), FIELDS, NOW_MS + 3_600_000), {
    s3: 'AccessDenied',
  });
});

test('a policy mentions the bucket and each field', () => {
  const denied = { s3: 'AccessDenied' };
  assert.throws(() => checkPolicy(encodedPolicy(CONDITIONS.slice(1)), FIELDS, NOW_MS), denied);
  assert.throws(() => checkPolicy(encodedPolicy(CONDITIONS.slice(0, 1)), FIELDS, NOW_MS), denied);
  const more = { ...FIELDS, 'x-amz-meta-a': 'b' };
  assert.throws(() => checkPolicy(encodedPolicy(CONDITIONS), more, NOW_MS), denied);
  checkPolicy(encodedPolicy(CONDITIONS), { ...FIELDS, 'x-ignore-a': 'b', policy: '' }, NOW_MS);
});

test('a policy allows no other value', () => {
  const other = { ...FIELDS, key: 'other/a' };
  assert.throws(() => checkPolicy(encodedPolicy(CONDITIONS), other, NOW_MS), { s3: 'AccessDenied' });
  const exact = [{ bucket: 'bucket' }, ['eq', '$key', 'user/']];
  assert.throws(() => checkPolicy(encodedPolicy(exact), FIELDS, NOW_MS), { s3: 'AccessDenied' });
});
