/**
 * Goal: each rule of authorization holds by itself: what a signature covers, how long it is valid, what a role
 * includes, which volumes are reached.
 * Method: an application with nothing behind its routes, and capabilities by a clock of the test. The same over real
 * servers is in `access.test.ts`.
 */
import assert from 'node:assert/strict';
import { createSecretKey, hash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { fastify } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { issueToken } from '../../client/certificates/token-file.ts';
import { RevokedServers } from '../../client/transport/revoked-servers.ts';
import { ADMIN, READ, WRITE } from '../../server/http/roles.ts';
import { installAuthorization } from '../../server/security/authorization.ts';
import { CAPABILITY_MS, Capabilities, type Capability } from '../../server/security/capabilities.ts';
import { Connections } from '../../server/security/connections.ts';
import { RateLimits } from '../../server/security/rate-limits.ts';
import { Revocations } from '../../server/security/revocations.ts';
import { TokenStore } from '../../server/security/token-file.ts';
import { VolumeScope } from '../../server/security/volume-scope.ts';
import { HEADER_CAPABILITY } from '../../wire/http-api.ts';
import {
  formatTokenFile,
  serialText,
  TOKEN_ID_BYTES,
  TOKEN_SECRET_BYTES,
  tokenText,
} from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import { TestAuthority } from './authority.ts';

const KEY = createSecretKey(Buffer.alloc(32, 7));
const GIVEN = { file: 17, volume: 'main', mode: 'read', to: 'anna' } as const;

function capabilitiesAt(clock: { nowMs: number }): Capabilities {
  const keys = [KEY];
  return new Capabilities(
    () => keys,
    () => clock.nowMs,
  );
}

test('a capability is invalid with any of its fields changed', () => {
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

test('a capability ends when its time is over, also if it was used before', () => {
  const clock = { nowMs: 1_000 };
  const capabilities = capabilitiesAt(clock);
  const text = capabilities.issue(GIVEN);
  clock.nowMs += CAPABILITY_MS - 1;
  assert.notEqual(capabilities.verify(text), null);
  clock.nowMs += 1;
  assert.equal(capabilities.verify(text), null);
});

test('a client on a revocation list is refused, and disconnected', async (t) => {
  const authority = await TestAuthority.create();
  t.after(() => authority.remove());
  const { cert, key } = await authority.server('s1');
  const anna = await authority.client('anna', 'read');
  const pem = (path: string) => readFileSync(path, 'utf8');
  const revocations = new Revocations(systemWorld);
  const server = createServer({ cert: pem(cert), key: pem(key), ca: pem(authority.ca), requestCert: true });
  const seen: boolean[] = [];
  const attended: TLSSocket[] = [];
  server.on('secureConnection', (socket) => {
    attended.push(socket);
    socket.on('error', () => undefined);
    seen.push(revocations.isRevoked(socket.getPeerX509Certificate() as X509Certificate));
    revocations.track(socket);
  });
  server.listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const shown = { ca: pem(authority.ca), cert: pem(anna.cert), key: pem(anna.key) };
  const dial = () =>
    connect({ host: '127.0.0.1', port, ...shown })
      .on('error', () => undefined)
      .resume();
  const arrived = () => once(server, 'secureConnection');
  const first = dial();
  await arrived();
  assert.equal(revocations.replace(['AB12']), 0, 'Another serial number');
  assert.equal(revocations.replace([serialText(new X509Certificate(shown.cert).serialNumber)]), 1);
  assert.deepEqual(
    attended.map(({ destroyed }) => destroyed),
    [true],
  );
  const again = dial();
  await arrived();
  assert.deepEqual(seen, [false, true]);
  for (const socket of [first, again]) socket.destroy();

  // The other way round: a client with such a list.
  const list = join(authority.folder, 'revoked.json');
  const entry = {
    serial: serialText(new X509Certificate(pem(cert)).serialNumber),
    name: null,
    revokedAt: '',
    expiresAt: null,
  };
  const check = (revoked: object[]) => {
    writeFileSync(list, JSON.stringify({ revoked }));
    return connect({
      host: '127.0.0.1',
      port,
      ...shown,
      checkServerIdentity: new RevokedServers(list).check,
    });
  };
  const believed = check([]);
  await once(believed, 'secureConnect');
  believed.destroy();
  const refused = check([entry]);
  const [error] = await Promise.race([once(refused, 'error'), once(refused, 'secureConnect')]);
  refused.destroy();
  assert.equal((error as NodeJS.ErrnoException | undefined)?.code, 'CERT_REVOKED');
});

/** An application that answers `let in` to every client that is, and tokens of each kind. */
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
  const book = new TokenStore(systemWorld, file);
  const app = fastify();
  t.after(() => app.close());
  app.setErrorHandler((error, _request, reply) => {
    assert.ok(error instanceof ServiceError, String(error));
    return reply.code(403).send(error.code);
  });
  installAuthorization(app, {
    world: systemWorld,
    tokens: book,
    capabilities: new Capabilities(() => book.keys, Date.now),
    scope: new VolumeScope({ of: async (inode) => (inode < 100 ? 'main' : 'other') }),
    limits: new RateLimits(Number.POSITIVE_INFINITY, systemWorld.nowMs),
    connections: new Connections({ perAddress: 100, all: 100 }),
  });
  const names = ['main', 'other'];
  const lists = { unavailable: names, volumes: names.map((name) => ({ name })), verdict: 'down' };
  app.get('/v1/status', READ, async ({ url }) =>
    url.endsWith('?lists') ? { ...lists, catalogs: lists.volumes } : 'let in',
  );
  app.get('/v1/data/:file', READ, async () => 'let in');
  app.put('/v1/data/:file', WRITE, async () => 'let in');
  app.post('/v1/catalog/commands', WRITE, async () => 'let in');
  app.delete('/v1/trash/:volume', WRITE, async () => 'let in');
  app.post('/v1/catalog/members', ADMIN, async () => 'let in');
  const revoke = (name: string) => {
    const left = tokens.filter((one) => one.name !== name);
    const keys = [Buffer.alloc(32, 9).toString('base64url')];
    writeFileSync(file, formatTokenFile({ keys, tokens: left, revoked: [] }));
    book.reload();
  };
  const capability = (given: Omit<Capability, 'untilMs'>) =>
    new Capabilities(() => book.keys, Date.now).issue(given);
  const ask = async (
    who: string,
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    url: string,
    command?: object,
    shown?: string,
  ) => {
    const headers = {
      authorization: `Bearer ${secrets.get(who)}`,
      ...(shown === undefined ? {} : { [HEADER_CAPABILITY]: shown }),
    };
    const body = command === undefined ? {} : { payload: { command } };
    return (await app.inject({ method, url, headers, ...body })).body;
  };
  return { ask, revoke, capability };
}

test('a role permits what it includes, and no more', async (t) => {
  const { ask } = await guarded(t);
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

test('a token that is removed from the file is invalid, once the file was read again', async (t) => {
  const { ask, revoke } = await guarded(t);
  assert.equal(await ask('reader', 'GET', '/v1/status'), 'let in');
  revoke('reader');
  assert.equal(await ask('reader', 'GET', '/v1/status'), 'unauthorized');
  assert.equal(await ask('writer', 'GET', '/v1/status'), 'let in');
});

test('the end of a token is reported also during the report of another change', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-rules-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const { text, known } = issueToken({ name: 'visitor', role: 'read', volumes: null }, 60);
  const endsMs = Date.parse(known.expiresAt ?? '');
  const file = join(folder, 'tokens.json');
  const keys = [Buffer.alloc(32, 9).toString('base64url')];
  writeFileSync(file, formatTokenFile({ keys, tokens: [known], revoked: [] }), { mode: 0o600 });
  const book = new TokenStore(systemWorld, file);
  const told = Promise.withResolvers<void>();
  book.onChange((nowMs) => {
    if (book.grantOf(text, nowMs) === null) told.resolve();
  });
  // One with much to do, or on a busy machine.
  book.onChange(() => {
    while (Date.now() < endsMs);
  });
  book.reload();
  // The object itself keeps no process alive.
  const late = setTimeout(() => told.reject(new Error('The end of the token is not reported')), 10_000);
  await told.promise.finally(() => clearTimeout(late));
});

test('a capability is for its file, the permitted access, its holder and its volume', async (t) => {
  const { ask, capability } = await guarded(t);
  const given = { file: 17, volume: 'main', mode: 'read', to: 'scoped' } as const;
  const touch = (method: 'GET' | 'PUT', changed: Partial<Capability>, who = 'scoped') =>
    ask(who, method, '/v1/data/17', undefined, capability({ ...given, ...changed }));
  assert.equal(await touch('GET', {}), 'let in');
  assert.equal(await touch('PUT', { mode: 'write' }), 'let in');
  assert.equal(await touch('PUT', {}), 'forbidden', 'to be read');
  assert.equal(await touch('GET', { file: 18 }), 'forbidden', 'of another file');
  assert.equal(await touch('GET', {}, 'reader'), 'forbidden', 'another client');
  assert.equal(
    await touch('GET', { volume: 'other' }),
    'forbidden',
    'of a volume that its holder may no longer use',
  );
});

test('a client with access to one volume is shown no other in lists of volumes', async (t) => {
  const { ask } = await guarded(t);
  const listsOf = async (who: string) => JSON.parse(await ask(who, 'GET', '/v1/status?lists'));
  const main = [{ name: 'main' }];
  assert.deepEqual(await listsOf('scoped'), {
    ...{ unavailable: ['main'], volumes: main, verdict: 'down', catalogs: main },
  });
  assert.equal((await listsOf('reader')).catalogs.length, 2);
});

test('a client with access to one volume reaches no other, by name or by number', async (t) => {
  const { ask } = await guarded(t);
  const command = (place: object) => ask('scoped', 'POST', '/v1/catalog/commands', { kind: 'unlink', place });
  assert.equal(await command({ volume: 'main', path: '/a' }), 'let in');
  assert.equal(await command({ parent: 17, name: 'a' }), 'let in');
  assert.equal(await command({ volume: 'other', path: '/a' }), 'forbidden');
  assert.equal(await command({ parent: 117, name: 'a' }), 'forbidden');
  const many = (...parents: number[]) => {
    const files = parents.map((parent) => ({ parent, name: 'a', inode: 18 }));
    return ask('scoped', 'POST', '/v1/catalog/commands', { kind: 'unlink-files', files });
  };
  assert.deepEqual([await many(17, 17), await many(17, 117)], ['let in', 'forbidden']);
  const reads = (volume: string) => {
    const seen = { accessedNs: '1', changedNs: '1' };
    const accesses = [17, 117].map((inode) => ({ inode, accessedNs: '1', seen }));
    return ask('scoped', 'POST', '/v1/catalog/commands', { kind: 'note-accesses', volume, accesses });
  };
  assert.deepEqual([await reads('main'), await reads('other')], ['let in', 'forbidden']);
  assert.equal(await ask('scoped', 'DELETE', '/v1/trash/main'), 'let in');
  assert.equal(await ask('scoped', 'DELETE', '/v1/trash/other'), 'forbidden');
});
