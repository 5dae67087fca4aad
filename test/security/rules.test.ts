/**
 * Goal: each rule of who may do what holds by itself: what a signature covers, how long it is good, what a role includes, which
 * volumes are reached.
 * Method: an application with nothing behind its routes, and capabilities by a clock of the test. The same over real servers is in `access.test.ts`.
 */
import assert from 'node:assert/strict';
import { createSecretKey, hash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fastify } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { ADMIN, READ, WRITE } from '../../server/http/roles.ts';
import { installAuthorization } from '../../server/security/authorization.ts';
import { CAPABILITY_MS, Capabilities } from '../../server/security/capabilities.ts';
import { RateLimits } from '../../server/security/rate-limits.ts';
import { TokenBook } from '../../server/security/token-book.ts';
import { VolumeScope } from '../../server/security/volume-scope.ts';
import { formatTokenFile, TOKEN_ID_BYTES, TOKEN_SECRET_BYTES, tokenText } from '../../wire/tokens.ts';

const KEY = createSecretKey(Buffer.alloc(32, 7));
const GIVEN = { file: 17, volume: 'main', mode: 'read', to: 'anna' } as const;

function capabilitiesAt(clock: { nowMs: number }): Capabilities {
  const keys = [KEY];
  return new Capabilities(
    () => keys,
    () => clock.nowMs,
  );
}

test('a capability is worth nothing with any of its fields changed', () => {
  const capabilities = capabilitiesAt({ nowMs: 1_000 });
  const text = capabilities.issue(GIVEN);
  assert.deepEqual(capabilities.verify(text), { ...GIVEN, untilMs: 1_000 + CAPABILITY_MS });
  const [payload = '', signature = ''] = text.split('.');
  const fields = JSON.parse(Buffer.from(payload, 'base64url').toString()) as unknown[];
  const others = [18, 'other', 'write', 'bert', 2_000 + CAPABILITY_MS];
  for (const [place, other] of others.entries()) {
    const changed = Buffer.from(JSON.stringify(fields.with(place, other))).toString('base64url');
    assert.equal(capabilities.verify(`${changed}.${signature}`), null, `field ${place}`);
  }
});

test('a capability ends when its time is over, also where it was used before', () => {
  const clock = { nowMs: 1_000 };
  const capabilities = capabilitiesAt(clock);
  const text = capabilities.issue(GIVEN);
  clock.nowMs += CAPABILITY_MS - 1;
  assert.notEqual(capabilities.verify(text), null);
  clock.nowMs += 1;
  assert.equal(capabilities.verify(text), null);
});

/** An application that answers `let in` to whoever is, and tokens of each kind. */
async function guarded(t: { after(work: () => unknown): void }) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-rules-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const secrets = new Map<string, string>();
  const token = (
    name: string,
    role: 'read' | 'write' | 'admin',
    volumes: string[] | null,
    expiresAt: string | null,
  ) => {
    const place = secrets.size;
    const id = Buffer.alloc(TOKEN_ID_BYTES, place + 1).toString('hex');
    const secret = Buffer.alloc(TOKEN_SECRET_BYTES, place + 1).toString('base64url');
    const text = tokenText(id, secret);
    secrets.set(name, text);
    const digest = hash('sha256', secret, 'buffer').toString('base64url');
    const createdAt = '2024-01-01T00:00:00.000Z';
    return { id, name, role, volumes, hash: digest, createdAt, expiresAt };
  };
  const tokens = [
    token('reader', 'read', null, null),
    token('writer', 'write', null, null),
    token('admin', 'admin', null, null),
    token('scoped', 'write', ['main'], null),
    token('ended', 'admin', null, '2024-01-02T00:00:00.000Z'),
  ];
  const file = join(folder, 'tokens.json');
  writeFileSync(
    file,
    formatTokenFile({ keys: [Buffer.alloc(32, 9).toString('base64url')], tokens, revoked: [] }),
    { mode: 0o600 },
  );
  const book = new TokenBook(file);
  const app = fastify();
  t.after(() => app.close());
  app.setErrorHandler((error, _request, reply) => {
    assert.ok(error instanceof ServiceError, String(error));
    return reply.code(403).send(error.code);
  });
  installAuthorization(app, {
    tokens: book,
    capabilities: new Capabilities(() => book.keys, Date.now),
    scope: new VolumeScope(async (inode) => (inode < 100 ? 'main' : 'other')),
    limits: new RateLimits(Number.POSITIVE_INFINITY),
  });
  app.get('/v1/status', READ, async () => 'let in');
  app.post('/v1/catalog/commands', WRITE, async () => 'let in');
  app.delete('/v1/trash/:volume', WRITE, async () => 'let in');
  app.post('/v1/catalog/members', ADMIN, async () => 'let in');
  return async (who: string, method: 'GET' | 'POST' | 'DELETE', url: string, command?: object) => {
    const headers = { authorization: `Bearer ${secrets.get(who)}` };
    const body = command === undefined ? {} : { payload: { command } };
    return (await app.inject({ method, url, headers, ...body })).body;
  };
}

test('a role lets do what it includes, and no more', async (t) => {
  const ask = await guarded(t);
  const unlink = { kind: 'unlink', place: { volume: 'main', path: '/a' } };
  const told: Record<string, string[]> = {};
  for (const who of ['reader', 'writer', 'admin', 'ended']) {
    told[who] = [
      await ask(who, 'GET', '/v1/status'),
      await ask(who, 'POST', '/v1/catalog/commands', unlink),
      await ask(who, 'POST', '/v1/catalog/commands', { kind: 'volume-remove', name: 'main' }),
      await ask(who, 'POST', '/v1/catalog/members'),
      await ask(who, 'POST', '/v1/catalog/commands', { kind: 'settle', files: [] }),
    ];
  }
  const [yes, no, unknown] = ['let in', 'forbidden', 'unauthorized'];
  assert.deepEqual(told, {
    reader: [yes, no, no, no, no],
    writer: [yes, yes, no, no, no],
    admin: [yes, yes, yes, yes, no],
    ended: [unknown, unknown, unknown, unknown, unknown],
  });
});

test('who is let in for a volume reaches no other, by name or by number', async (t) => {
  const ask = await guarded(t);
  const command = (place: object) => ask('scoped', 'POST', '/v1/catalog/commands', { kind: 'unlink', place });
  assert.equal(await command({ volume: 'main', path: '/a' }), 'let in');
  assert.equal(await command({ parent: 17, name: 'a' }), 'let in');
  assert.equal(await command({ volume: 'other', path: '/a' }), 'forbidden');
  assert.equal(await command({ parent: 117, name: 'a' }), 'forbidden');
  assert.equal(await ask('scoped', 'DELETE', '/v1/trash/main'), 'let in');
  assert.equal(await ask('scoped', 'DELETE', '/v1/trash/other'), 'forbidden');
});
