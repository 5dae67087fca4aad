/**
 * Goal: a token permits what its role and its volumes say, on every server and by every route, and nothing else does;
 * no secret is written anywhere.
 */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, request } from 'undici';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { NamedLeaseClient } from '../../client/lease/named-lease-client.ts';
import { LocalDisk } from '../../client/local-reads/local-disk.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { Access } from '../../client/transport/access.ts';
import { Capabilities } from '../../server/security/capabilities.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { HEADER_LOCAL_PROOF, LOCAL_PROOF_FILE, type LocalAnswer } from '../../wire/locations.ts';
import { parseTokenFile } from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { SecureCluster } from './secure-cluster.ts';

let cluster: SecureCluster;
let agent: Agent;
let book: string;
const tokens = new Map<string, string>();
const clients: ClusterClient[] = [];

/** Makes a token as an administrator does. */
async function createToken(name: string, ...flags: string[]): Promise<void> {
  const { code, stdout, stderr } = await runCli(['token', 'create', name, '--tokens', book, ...flags]);
  assert.equal(code, 0, stderr);
  tokens.set(name, stdout.trim());
}

function as(name: string, servers: readonly string[] = cluster.urls): ClusterClient {
  const client = new ClusterClient({
    world: systemWorld,
    servers,
    access: new Access({ ca: cluster.authority.ca, token: tokens.get(name) as string }),
  });
  clients.push(client);
  return client;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

async function ask(
  method: string,
  path: string,
  options: {
    readonly token?: string;
    readonly headers?: Record<string, string>;
    readonly body?: string;
  } = {},
): Promise<Answer> {
  const { token, headers = {}, body = null } = options;
  const response = await request(`${cluster.url('s1')}${path}`, {
    method: method as 'GET',
    dispatcher: agent,
    headers: { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...headers },
    body,
  });
  return { status: response.statusCode, headers: response.headers, text: await response.body.text() };
}

function askJson(
  path: string,
  name: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return ask('POST', path, {
    token: tokens.get(name) as string,
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
}

let drawn = 0;
function command(name: string, body: unknown): Promise<Answer> {
  return askJson('/v1/catalog/commands', name, { session: 1_000 + ++drawn, number: 1, command: body });
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'ok',
    (error: unknown) => (error instanceof ServiceError ? error.code : String(error)),
  );
}

async function* bytes(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

before(async () => {
  cluster = await SecureCluster.start({
    flags: ({ folder }) => {
      book = join(folder, 'tokens.json');
      // A first token; the others are made while the servers run.
      writeFileSync(
        book,
        JSON.stringify({ format: 1, keys: [randomBytes(32).toString('base64url')], tokens: [] }),
      );
      return ['--tokens', book];
    },
  });
  agent = new Agent({ connect: { ca: readFileSync(cluster.authority.ca) } });
  await createToken('root', '--role', 'admin');
  await createToken('writer', '--role', 'write');
  await createToken('reader', '--role', 'read');
  await createToken('scoped', '--role', 'write', '--volume', 'main');
  for (const server of cluster.servers.values()) assert.ok(server.reload());
  const root = as('root');
  for (const volume of ['main', 'other']) {
    await root.command({ kind: 'volume-create', name: volume, replicas: 3, objectBytes: 131072 });
    await uploadFile(root, volume, '/a', bytes(`in ${volume}`));
  }
});
after(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await agent.close();
  await cluster.stop();
});

test('without a token only probes are answered; no answer shows what exists', async () => {
  for (const path of ['/livez', '/readyz']) assert.equal((await ask('GET', path)).status, 200, path);
  for (const path of [
    '/metrics',
    '/v1/status',
    '/v1/servers',
    '/v1/files/main/a',
    '/v1/data/7',
    '/nothing/here',
  ]) {
    const { status, headers, text } = await ask('GET', path);
    assert.equal(status, 401, path);
    assert.equal(headers['www-authenticate'], 'Bearer realm="leasehold"');
    assert.equal(JSON.parse(text).code, 'unauthorized');
  }
});

test('a token that is wrong in any place is no token', async () => {
  const good = tokens.get('reader') as string;
  const [, id = '', secret = ''] = good.split('_');
  const wrong = [
    '',
    'x',
    good.slice(0, -1),
    `${good}x`,
    `lh_${id}_${randomBytes(32).toString('base64url')}`,
    `lh_${randomBytes(6).toString('hex')}_${secret}`,
    good.toUpperCase(),
  ];
  for (const token of wrong) assert.equal((await ask('GET', '/v1/status', { token })).status, 401, token);
  assert.equal((await ask('GET', '/v1/status', { token: good })).status, 200);
});

const ROLES = ['reader', 'writer', 'root'] as const;

/** The answer for each role: 1 if the request was let in, whatever its outcome. */
const MATRIX: readonly (readonly [name: string, ask: (who: string) => Promise<Answer>, allowed: string])[] = [
  ['read a file', (who) => ask('GET', '/v1/files/main/a', { token: tokens.get(who) as string }), '111'],
  ['read metrics', (who) => ask('GET', '/metrics', { token: tokens.get(who) as string }), '111'],
  [
    'store a file',
    (who) => ask('PUT', '/v1/files/main/b', { token: tokens.get(who) as string, body: 'x' }),
    '011',
  ],
  [
    'remove a file',
    (who) => ask('DELETE', '/v1/files/main/none', { token: tokens.get(who) as string }),
    '011',
  ],
  ['ask the catalog', (who) => askJson('/v1/catalog/queries', who, { query: { kind: 'volumes' } }), '111'],
  [
    'make a directory',
    (who) =>
      command(who, {
        kind: 'make-directory',
        place: { volume: 'main', path: '/d' },
        mode: 0o755,
        uid: 0,
        gid: 0,
      }),
    '011',
  ],
  [
    'make a volume',
    (who) => command(who, { kind: 'volume-create', name: 'new', replicas: 1, objectBytes: 4096 }),
    '001',
  ],
  [
    'set the quota of a directory',
    (who) => command(who, { kind: 'set-quota', inode: 1, quota: { quotaBytes: 1 } }),
    '001',
  ],
  ['drain a server', (who) => command(who, { kind: 'server-state', id: 's9', state: 'draining' }), '001'],
  ['scrub', (who) => ask('POST', '/v1/scrub/self', { token: tokens.get(who) as string }), '001'],
  ['move replicas', (who) => askJson('/v1/data/7/members', who, { members: [] }), '001'],
  [
    'acquire a lease',
    (who) => askJson(`/v1/leases/${who}`, who, { owner: 'me', ttlMs: 2000, keys: {} }),
    '011',
  ],
  [
    'report what it has read',
    (who) =>
      command(who, {
        kind: 'note-accesses',
        volume: 'main',
        accesses: [{ inode: 1, accessedNs: '1', seen: { accessedNs: '1', changedNs: '1' } }],
      }),
    '111',
  ],
  [
    'clone a snapshot',
    (who) => command(who, { kind: 'clone-create', name: 'copy', volume: 'main', snapshot: 's' }),
    '001',
  ],
  ['flatten a clone', (who) => command(who, { kind: 'clone-flatten', name: 'main' }), '001'],
  ['give a file of a clone contents', (who) => command(who, { kind: 'clone-open', inode: 1 }), '000'],
  ['say that they are copied', (who) => command(who, { kind: 'clone-filled', inode: 1 }), '000'],
  ['send an unknown report', (who) => command(who, { kind: 'from-tomorrow' }), '011'],
  ['send a report of servers', (who) => command(who, { kind: 'settle', files: [] }), '000'],
];

for (const [name, work, allowed] of MATRIX) {
  test(`which roles may ${name}: read ${allowed[0]}, write ${allowed[1]}, admin ${allowed[2]}`, async () => {
    for (const [place, who] of ROLES.entries()) {
      const { status, text } = await work(who);
      assert.notEqual(status, 401, text);
      assert.equal(status === 403 ? '0' : '1', allowed[place], `${who}: ${status} ${text}`);
    }
  });
}

test('a token for a volume reaches that volume, by name, path and number, and no other', async () => {
  const scoped = as('scoped');
  const root = as('root');
  assert.equal(await codeOf(scoped.resolve('main', '/a')), 'ok');
  const { inode, replicas } = await root.resolve('other', '/a');
  const otherRoot = (await root.resolve('other', '/')).inode;
  const { inode: own } = await scoped.resolve('main', '/a');
  // File handles of a mount lead to the directory above by it.
  const path = { inode: own, volume: 'main', path: '/a' };
  assert.deepEqual((await scoped.query({ kind: 'paths', inodes: [own] })).paths, [path]);
  const place = { volume: 'main', path: '/mine' };
  const attributes = { mode: 0o755, uid: 0, gid: 0 };
  const work: Record<string, Promise<unknown>> = {
    resolve: scoped.resolve('other', '/a'),
    attributes: scoped.query({ kind: 'attributes', inode }),
    lookup: scoped.query({ kind: 'lookup', parent: otherRoot, name: 'a' }),
    list: scoped.query({ kind: 'list', inode: otherRoot, after: '', countMax: 1 }),
    placed: scoped.query({ kind: 'placed', inodes: [inode] }),
    path: scoped.query({ kind: 'paths', inodes: [inode] }),
    paths: scoped.query({ kind: 'paths', inodes: [own, inode] }),
    quotas: scoped.query({ kind: 'directory-quotas', volume: 'other', after: 0, countMax: 1 }),
    quotasOf: scoped.query({ kind: 'quotas-of', inode }),
    trash: scoped.query({ kind: 'trash', volume: 'other', path: '/', after: null, countMax: 1 }),
    restore: scoped.command({ kind: 'trash-restore', volume: 'main', inode }),
    empty: scoped.command({ kind: 'trash-empty', volume: 'other', countMax: 1 }),
    mkdir: scoped.command({ kind: 'make-directory', place: { parent: otherRoot, name: 'x' }, ...attributes }),
    unlink: scoped.command({ kind: 'unlink', place: { volume: 'other', path: '/a' } }),
    link: scoped.command({ kind: 'link', inode, place }),
    rename: scoped.command({
      kind: 'rename',
      from: { volume: 'other', path: '/a' },
      to: place,
      mode: 'replace',
    }),
    orphan: scoped.command({ kind: 'create-orphan', volume: 'other', ...attributes }),
    remove: scoped.command({ kind: 'volume-remove', name: 'other' }),
    contents: scoped.openFile(inode, { replicas }).read(0, 10),
    info: scoped.info('other', '/a'),
    lease: new NamedLeaseClient({
      world: systemWorld,
      servers: cluster.urls,
      access: new Access({ ca: cluster.authority.ca, token: tokens.get('scoped') as string }),
    }).show('x'),
  };
  const codes = Object.fromEntries(
    await Promise.all(Object.entries(work).map(async ([name, one]) => [name, await codeOf(one)])),
  );
  assert.deepEqual(codes, Object.fromEntries(Object.keys(work).map((name) => [name, 'forbidden'])));
  const { volumes } = await scoped.query({ kind: 'volumes' });
  assert.deepEqual(
    volumes.map(({ name }) => name),
    ['main'],
  );
  for (const [from, to] of [
    ['main/a', 'other:/stolen'],
    ['other/a', 'main:/stolen'],
  ] as const) {
    for (const way of ['copy-to', 'move-to']) {
      const path = `/v1/files/${from}?${way}=${encodeURIComponent(to)}`;
      const { status, text } = await ask('POST', path, { token: tokens.get('scoped') as string });
      assert.ok(status === 403 || status === 400, `${path}: ${status} ${text}`);
    }
  }
  for (const path of ['/v1/files/other/a', '/v1/files/main/../other/a', '/v1/files/other/']) {
    const { status } = await ask('GET', path, { token: tokens.get('scoped') as string });
    assert.notEqual(status, 200, path);
  }
});

test('contents by number need a capability: for that file, mode and client, from these servers, not yet ended', async () => {
  const root = as('root');
  const a = await root.resolve('main', '/a');
  const other = await root.resolve('other', '/a');
  const path = `/v1/data/${a.inode}?offset=0&length=7`;
  const capability = async (name: string, file: number): Promise<string> => {
    const { text } = await askJson('/v1/catalog/capabilities', name, { files: [file] });
    return JSON.parse(text).capabilities[0].capability as string;
  };
  const read = (name: string, shown: string | null): Promise<Answer> =>
    ask('GET', path, {
      token: tokens.get(name) as string,
      headers: shown === null ? {} : { 'leasehold-capability': shown },
    });
  const own = await capability('reader', a.inode);
  assert.equal((await read('reader', own)).text, 'in main');
  const [payload = '', signature = ''] = own.split('.');
  const fields = JSON.parse(Buffer.from(payload, 'base64url').toString()) as unknown[];
  const forged = (place: number, value: unknown): string => {
    const changed = Buffer.from(JSON.stringify(fields.with(place, value))).toString('base64url');
    return `${changed}.${signature}`;
  };
  const strangers = new Capabilities(() => [createSecretKey(randomBytes(32))], Date.now);
  const keys = parseTokenFile(readFileSync(book, 'utf8')).keys.map((key) =>
    createSecretKey(key, 'base64url'),
  );
  const hourAgo = new Capabilities(
    () => keys,
    () => Date.now() - 3_600_000,
  );
  const wanted = { file: a.inode, volume: 'main', mode: 'read', to: 'reader' } as const;
  const refused: Record<string, string | null> = {
    none: null,
    empty: '',
    'of another file': await capability('reader', other.inode),
    "somebody else's": await capability('writer', a.inode),
    'another file': forged(0, a.inode + 1),
    'another volume': forged(1, 'other'),
    'another mode': forged(2, 'write'),
    'another holder': forged(3, 'root'),
    'a later end': forged(4, Number(fields[4]) + 1),
    'without a signature': payload,
    'with half a signature': own.slice(0, -20),
    'signed by an unknown key': strangers.issue(wanted),
    ended: hourAgo.issue(wanted),
  };
  for (const [name, shown] of Object.entries(refused)) {
    assert.equal((await read('reader', shown)).status, 403, name);
  }
  const write = (name: string, shown: string): Promise<Answer> =>
    ask('PUT', `/v1/data/${a.inode}?offset=0&session=9&number=1&since=0`, {
      token: tokens.get(name) as string,
      headers: { 'leasehold-capability': shown },
      body: 'IN',
    });
  assert.equal((await write('reader', own)).status, 403);
  const asReader = new Capabilities(() => keys, Date.now).issue({ ...wanted, to: 'writer' });
  assert.equal((await write('writer', asReader)).status, 403, 'a capability to read does not write');
});

test('the location of contents on a disk is reported only to clients that may read them, and can read the disk', async () => {
  const root = as('root');
  const { inode } = await root.resolve('main', '/a');
  const { inode: hidden } = await root.resolve('other', '/a');
  assert.equal((await ask('GET', '/v1/local')).status, 401);
  const told = await ask('GET', '/v1/local', { token: tokens.get('reader') as string });
  const { folder } = JSON.parse(told.text) as LocalAnswer;
  const disk = await LocalDisk.open(systemWorld, folder);
  assert.ok(disk !== null, told.text);
  disk.close();
  const { text } = await askJson('/v1/catalog/capabilities', 'reader', { files: [inode] });
  const capability = JSON.parse(text).capabilities[0].capability as string;
  const locations = (file: number, headers: Record<string, string>): Promise<Answer> =>
    ask('GET', `/v1/data/${file}/locations?offset=0&length=7`, {
      token: tokens.get('reader') as string,
      headers,
    });
  const shown = { 'leasehold-capability': capability };
  const proven = { [HEADER_LOCAL_PROOF]: disk.proof };
  assert.equal(
    (await locations(inode, proven)).status,
    403,
    'the disk can be read, and the file must not be',
  );
  assert.equal((await locations(hidden, { ...shown, ...proven })).status, 403, 'of another file');
  const secret = readFileSync(join(folder, LOCAL_PROOF_FILE), 'latin1');
  for (const wrong of [{}, { [HEADER_LOCAL_PROOF]: secret }, { [HEADER_LOCAL_PROOF]: '0'.repeat(64) }])
    assert.equal(
      (await locations(inode, { ...shown, ...wrong })).status,
      403,
      'may be read, and is not here',
    );
  assert.notEqual((await locations(inode, { ...shown, ...proven })).status, 403);
});

test('the client library gets capabilities by itself, on every server, and survives new keys', async () => {
  const writer = as('writer', [cluster.url('s2')]);
  const place = { volume: 'main', path: '/library' };
  const made: Command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true };
  const { attributes } = await writer.command(made);
  assert.equal(typeof attributes.capability, 'string', 'it is part of the answer');
  const handle = writer.openFile(attributes.inode, { replicas: attributes.replicas });
  await handle.write(0, Buffer.from('one'));
  // A client that never queried the attributes requests a capability.
  const fresh = as('reader', [cluster.url('s3')]).openFile(attributes.inode);
  assert.equal(Buffer.from((await fresh.read(0, 3)).bytes).toString(), 'one');
  for (let round = 0; round < 2; round++) {
    assert.equal((await runCli(['token', 'rekey', '--tokens', book])).code, 0);
    for (const server of cluster.servers.values()) assert.ok(server.reload());
  }
  await handle.write(3, Buffer.from(' two'));
  await handle.writeParts([
    { offset: 0, bytes: Buffer.from('O') },
    { offset: 4, bytes: Buffer.from('T') },
  ]);
  assert.equal(Buffer.from((await fresh.read(0, 7)).bytes).toString(), 'One Two');
});

test('a certificate can replace a token', async () => {
  const files = await cluster.authority.client('build', 'write', ['main']);
  const client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    access: new Access({ ca: cluster.authority.ca, clientCert: files.cert, clientKey: files.key }),
  });
  clients.push(client);
  await uploadFile(client, 'main', '/built', bytes('with a certificate'));
  assert.equal(await codeOf(uploadFile(client, 'other', '/built', bytes('x'))), 'forbidden');
  assert.equal(
    await codeOf(client.command({ kind: 'server-state', id: 's2', state: 'draining' })),
    'forbidden',
  );
});

test('a revoked token is invalid from the next request on; a client with a new one continues', async () => {
  await createToken('leaving', '--role', 'write');
  for (const server of cluster.servers.values()) server.reload();
  const file = join(cluster.authority.folder, 'leaving.token');
  writeFileSync(file, tokens.get('leaving') as string);
  const client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    access: new Access({ ca: cluster.authority.ca, tokenFile: file }),
  });
  clients.push(client);
  await uploadFile(client, 'main', '/left', bytes('x'));
  assert.equal((await runCli(['token', 'revoke', 'leaving', '--tokens', book])).code, 0);
  for (const server of cluster.servers.values()) server.reload();
  assert.equal(await codeOf(client.resolve('main', '/left')), 'unauthorized');
  await createToken('leaving', '--role', 'write');
  for (const server of cluster.servers.values()) server.reload();
  writeFileSync(file, tokens.get('leaving') as string);
  // The file is read again once per second.
  const deadlineMs = performance.now() + 10_000;
  let code = await codeOf(client.resolve('main', '/left'));
  while (code === 'unauthorized' && performance.now() < deadlineMs)
    code = await codeOf(client.resolve('main', '/left'));
  assert.equal(code, 'ok');
});

test('a token is not sent unencrypted', () => {
  const access = new Access({ token: tokens.get('reader') as string });
  assert.throws(
    () => new ClusterClient({ world: systemWorld, servers: ['http://10.0.0.1:7401'], access }),
    /would be sent unencrypted/,
  );
});

const obstacle = await mountObstacle();

test('a mount reads and writes over TLS with a token, and shows it to no other process', {
  skip: obstacle ?? false,
}, async () => {
  const file = join(cluster.authority.folder, 'mount.token');
  writeFileSync(file, tokens.get('scoped') as string, { mode: 0o600 });
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-tls-mount-'));
  const flags = ['--servers', cluster.urls.join(','), '--ca', cluster.authority.ca];
  const log = join(cluster.authority.folder, 'mount.log');
  try {
    const refused = await runCli(['mount', 'main', directory, ...flags]);
    assert.equal(refused.code, 6, refused.stderr);
    const other = await runCli(['mount', 'other', directory, ...flags, '--token-file', file]);
    assert.equal(other.code, 6, other.stderr);
    // A list of processes shows nothing of the environment, or of the file.
    const env = { LEASEHOLD_TOKEN: tokens.get('scoped') as string };
    const mounted = await runCli(
      ['mount', 'main', directory, ...flags, '--log', log, '-o', 'log_level=debug'],
      { env },
    );
    assert.equal(mounted.code, 0, mounted.stderr);
    const contents = randomBytes(3 * 1024 * 1024);
    await writeFile(join(directory, 'through-the-mount'), contents);
    assert.ok(contents.equals(await readFile(join(directory, 'through-the-mount'))));
    assert.equal(await readFile(join(directory, 'a'), 'utf8'), 'in main');
    const secret = (tokens.get('scoped') as string).slice(-43);
    const commandLines = readdirSync('/proc')
      .filter((name) => /^[0-9]+$/.test(name))
      .map((pid) => commandLine(pid));
    assert.ok(commandLines.some((line) => line.includes('mount-daemon')));
    for (const line of commandLines) assert.ok(!line.includes(secret));
    assert.ok(!readFileSync(log, 'utf8').includes(secret));
  } finally {
    await runCli(['umount', directory]);
    rmdirSync(directory);
  }
});

/** Empty for a process that has ended meanwhile. */
function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ESRCH'))
      return '';
    throw error;
  }
}

test('every administrative act is in the log with actor, object and outcome, and no secret is anywhere', async () => {
  const lines = cluster.lines((line) => line.audit === true && line.command === 'volume-create');
  assert.ok(lines.some(({ who, name, status }) => who === 'root' && name === 'main' && status === 200));
  assert.ok(
    lines.some(
      ({ who, name, status }) => who === 'reader' || (who === 'writer' && name === 'new' && status === 403),
    ),
  );
  const { text } = await ask('GET', '/metrics', { token: tokens.get('root') as string });
  const { keys, tokens: known } = parseTokenFile(readFileSync(book, 'utf8'));
  const secrets = [
    ...[...tokens.values()].map((token) => token.split('_').slice(2).join('_')),
    ...keys,
    ...known.map(({ hash }) => hash),
    readFileSync(join(cluster.authority.folder, 's1-key.pem'), 'utf8').split('\n')[1] as string,
  ];
  assert.ok(secrets.every((secret) => secret.length > 30));
  const written = [...cluster.log, text].join('\n');
  assert.ok(written.length > 10_000);
  for (const secret of secrets) assert.ok(!written.includes(secret));
});
