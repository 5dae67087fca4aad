/**
 * Goal: a revoked certificate grants no access, on no connection, old or new; the end of a certificate is reported days
 * before.
 * Method: real servers with TLS; certificates are revoked by the command, and servers read the file again.
 */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import {
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { connect, TLSSocket } from 'node:tls';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { emptyTokenFile } from '../../client/certificates/token-file.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { Access } from '../../client/transport/access.ts';
import { CertificateWatch, EXPIRY_WARNING_MS } from '../../server/security/certificate-watch.ts';
import { TlsMaterial } from '../../server/security/tls-material.ts';
import { formatTokenFile, parseRevokedList, parseTokenFile, serialText } from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import type { CertificateFiles } from './authority.ts';
import { SecureCluster } from './secure-cluster.ts';
import { ask, close } from './wire-client.ts';

const DAY_MS = 86_400_000;
let cluster: SecureCluster;
let book: string;
let root: { readonly cert: string; readonly key: string };

const pem = ({ cert, key }: CertificateFiles) => ({
  cert: readFileSync(cert, 'utf8'),
  key: readFileSync(key, 'utf8'),
});

before(async () => {
  cluster = await SecureCluster.start({
    flags: ({ folder }) => {
      book = join(folder, 'tokens.json');
      writeFileSync(book, formatTokenFile(emptyTokenFile()));
      return ['--tokens', book];
    },
  });
  root = pem(await cluster.authority.client('root', 'admin'));
  const volume = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 131072 };
  const json = { session: 1, number: 1, command: volume };
  assert.equal((await ask(cluster, 'POST', '/v1/catalog/commands', { json, shown: root })).status, 200);
});
after(async () => {
  await close();
  await cluster.stop();
});

function reload(): void {
  for (const server of cluster.servers.values()) assert.ok(server.reload());
}

async function revoke(certificate: string): Promise<string> {
  const { code, stdout, stderr } = await runCli(['cert', 'revoke', certificate, '--tokens', book]);
  assert.equal(code, 0, stderr);
  return stdout;
}

function put(name: string, shown = root, at = 's1') {
  return ask(cluster, 'PUT', `/v1/files/main/${name}`, { body: name, shown, at });
}

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + 20_000;
  while (!(await isSo())) {
    assert.ok(performance.now() < deadlineMs, `Not in time: ${what}`);
    await delay(20);
  }
}

test('a client whose certificate is revoked is disconnected, and refused on new connections', async () => {
  const files = await cluster.authority.client('alice', 'write', ['main']);
  const shown = pem(files);
  assert.equal((await put('before', shown)).status, 201);
  const held = connect({
    port: cluster.ports.get('s2') as number,
    host: '127.0.0.1',
    ca: readFileSync(cluster.authority.ca),
    ...shown,
  });
  await once(held, 'secureConnect');
  const gone = once(held.on('error', () => undefined).resume(), 'close');
  const said = await revoke(files.cert);
  const { serialNumber } = new X509Certificate(shown.cert);
  assert.match(said, new RegExp(`Certificate ${serialNumber.replace(/^0+/, '')} of alice is revoked`));
  reload();
  await gone;
  await assert.rejects(put('behind', shown));
  assert.equal((await ask(cluster, 'GET', '/v1/files/main/before', { shown: root })).text, 'before');
  const refused = cluster.lines(({ reason }) => /is revoked/.test(String(reason)));
  assert.ok(refused.length > 0, 'and the log says why');
  assert.ok(cluster.lines(({ audit, serial }) => audit === true && typeof serial === 'string').length > 0);
});

test('a serial number is enough, and the list forgets certificates that have ended', async () => {
  const { cert } = await cluster.authority.client('bob', 'read');
  const { serialNumber } = new X509Certificate(readFileSync(cert));
  const file = parseTokenFile(readFileSync(book, 'utf8'));
  const [first] = file.revoked;
  assert.ok(first !== undefined);
  const old = { ...first, serial: 'AB12', expiresAt: new Date(Date.now() - 1_000).toISOString() };
  writeFileSync(book, formatTokenFile({ ...file, revoked: [...file.revoked, old] }));
  await revoke(serialNumber.toLowerCase());
  const { revoked } = parseTokenFile(readFileSync(book, 'utf8'));
  assert.deepEqual(
    revoked.map(({ name }) => name),
    ['alice', null],
  );
  assert.equal((await runCli(['token', 'create', 'x', '--role', 'read', '--tokens', book])).code, 0);
  assert.equal(
    parseTokenFile(readFileSync(book, 'utf8')).revoked.length,
    2,
    'Tokens are added and removed independently',
  );
  assert.equal(
    (await runCli(['cert', 'revoke', join(cluster.folder, 'none.pem'), '--tokens', book])).code,
    3,
  );
  assert.equal((await runCli(['cert', 'revoke', book, '--tokens', book])).code, 2);
});

test('a server whose certificate is revoked is no server of the cluster, until it has another', async () => {
  const own = join(cluster.authority.folder, 's3.pem');
  const peers = async (): Promise<string> => {
    const { text } = await ask(cluster, 'GET', '/metrics', { shown: root });
    return /leasehold_peer_connected\{peer="s3"\} (\d)/.exec(text)?.[1] ?? '';
  };
  await until('s3 is a peer', async () => (await peers()) === '1');
  copyFileSync(own, join(cluster.folder, 'stolen.pem'));
  await revoke(own);
  reload();
  await until('s3 is cut off', async () => (await peers()) === '0');
  assert.equal((await put('without-s3')).status, 201, 'a majority continues');
  assert.ok(
    cluster.lines(({ msg }) => msg?.startsWith('the certificate of this server is revoked') === true).length,
  );
  // It connects as often as it likes.
  const refusals = () => cluster.lines(({ reason }) => /is revoked/.test(String(reason))).length;
  const before = refusals();
  await until('it was refused', () => refusals() > before + 2);
  assert.equal(await peers(), '0');
  await cluster.authority.server('s3');
  reload();
  await until('s3 is back', async () => (await peers()) === '1');
});

test('a client that was given the list trusts no server whose certificate is on it, on no connection', async () => {
  const list = join(cluster.folder, 'revoked.json');
  const reader = await cluster.authority.client('reader', 'read', ['main']);
  const { ca } = cluster.authority;
  const shown = ['--ca', ca, '--client-cert', reader.cert, '--client-key', reader.key];
  assert.equal((await put('believed')).status, 201);
  // The servers' answer to a client with the smallest role is to become the content of the file.
  const asked = await runCli(['cert', 'revoked', '--out', list, '--servers', cluster.url('s1'), ...shown]);
  assert.equal(asked.code, 0, asked.stderr);
  const known = parseRevokedList(readFileSync(list, 'utf8'));
  assert.ok(known.length > 0 && known.every(({ name }) => name === null));

  const files = { ca, clientCert: reader.cert, clientKey: reader.key, revoked: list };
  // If one server is on the list and one is down, the client waits for the latter: that it does not trust one says
  // nothing of the others.
  writeFileSync(
    list,
    JSON.stringify({ revoked: [{ serial: serialOf('s1'), name: null, revokedAt: '', expiresAt: null }] }),
  );
  const [unused] = await freePorts(1);
  const away = `https://127.0.0.1:${unused}`;
  const left = new ClusterClient({
    world: systemWorld,
    servers: [away, cluster.url('s1')],
    access: new Access(files),
    operationTimeoutMs: 1_000,
  });
  await assert.rejects(left.resolve('main', '/believed'), (error: unknown) => {
    return error instanceof ServiceError && error.code === 'no-majority';
  });
  await left.close();
  writeFileSync(list, JSON.stringify({ revoked: known }));
  const client = new ClusterClient({
    world: systemWorld,
    servers: [cluster.url('s2')],
    access: new Access(files),
  });
  try {
    assert.equal((await client.resolve('main', '/believed')).kind, 'file');
    // All of them: a client continues with the remaining servers.
    const entries = [...cluster.servers.keys()].map((id) => {
      return { serial: serialOf(id), name: null, revokedAt: '', expiresAt: null };
    });
    writeFileSync(list, JSON.stringify({ revoked: [...known, ...entries] }));
    // It reads the list now and then, and also ends the connections on which it was requested.
    const refused = () => client.resolve('main', '/believed').then(() => false, isRevokedServer);
    await until('no server is trusted any more', refused);
  } finally {
    await client.close();
  }
  const stat = await runCli([
    'stat',
    'main:/believed',
    '--servers',
    cluster.url('s2'),
    '--revoked',
    list,
    ...shown,
  ]);
  assert.equal(stat.code, 6, stat.stderr);
  assert.match(stat.stderr, new RegExp(`the certificate ${serialOf('s2')} is revoked`));
  assert.throws(() => new Access({ ...files, revoked: ca }), /Cannot read the revoked certificates/);
});

const obstacle = await mountObstacle();

test('a mount continues with the remaining servers, and sends nothing to one whose certificate is on its list', {
  skip: obstacle ?? false,
}, async () => {
  const list = join(cluster.folder, 'mount-revoked.json');
  const mounter = await cluster.authority.client('mounter', 'write', ['main']);
  const { serialNumber } = new X509Certificate(readFileSync(mounter.cert));
  const revoked = (...ids: string[]) => {
    const entries = ids.map((id) => {
      return { serial: serialOf(id), name: null, revokedAt: '', expiresAt: null };
    });
    // As `cert revoked --out` does: no reader sees half of it.
    writeFileSync(`${list}.new`, JSON.stringify({ revoked: entries }));
    renameSync(`${list}.new`, list);
  };
  // The mount's requests to each server: all servers run in this process.
  const asked: string[] = [];
  const onRequest = (message: unknown): void => {
    const { socket } = (message as { readonly request: IncomingMessage }).request;
    if (!(socket instanceof TLSSocket)) return;
    if (socket.getPeerX509Certificate()?.serialNumber === serialNumber) asked.push(idAt(socket.localPort));
  };
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-revoked-mount-'));
  const flags = ['--servers', cluster.urls.join(','), '--ca', cluster.authority.ca, '--revoked', list];
  // From the servers' short leases follow time limits of few seconds, which are too short for a busy machine.
  flags.push('-o', 'op_timeout=2m');
  const shown = ['--client-cert', mounter.cert, '--client-key', mounter.key];
  subscribe('http.server.request.start', onRequest);
  try {
    revoked('s1');
    const mounted = await runCli(['mount', 'main', directory, ...flags, ...shown, '--json']);
    assert.equal(mounted.code, 0, mounted.stderr);
    const { pid } = JSON.parse(mounted.stdout) as { pid: number };
    const file = join(directory, 'a-file');
    // More than fits into one request, so that there are connections for contents alone, too.
    const work = async (byte: number): Promise<void> => {
      const contents = Buffer.alloc(1_500_000, byte);
      await writeFile(file, contents, { flush: true });
      await writeFile(`${file}-${byte}`, 'new');
      assert.ok(contents.equals(await readFile(file)));
      assert.ok((await readdir(directory)).includes(`a-file-${byte}`));
    };
    await work(1);
    assert.ok(asked.length > 0 && !asked.includes('s1'), asked.join());
    // Now the server that is primary of the file, with which the mount has connections.
    const { text } = await ask(cluster, 'GET', '/v1/info/main/a-file', { shown: root });
    const { primary } = JSON.parse(text) as { primary: string };
    const next = primary === 's1' ? 's2' : primary;
    await until(`the mount speaks with ${next}`, async () => {
      await work(2);
      return connectionsOf(pid).includes(cluster.ports.get(next) as number);
    });
    revoked(next);
    await until('its connections end', () => !connectionsOf(pid).includes(cluster.ports.get(next) as number));
    asked.length = 0;
    await work(3);
    assert.ok(asked.length > 0 && !asked.includes(next), asked.join());
    // And a server that is removed from the list is trusted again.
    const other = ['s1', 's2', 's3'].filter((id) => id !== 's1' && id !== next);
    revoked(next, ...other);
    await until(
      's1 alone is left',
      () => !connectionsOf(pid).includes(cluster.ports.get(other[0] ?? next) as number),
    );
    asked.length = 0;
    await work(4);
    assert.deepEqual([...new Set(asked)], ['s1']);
  } finally {
    unsubscribe('http.server.request.start', onRequest);
    await runCli(['umount', directory]);
    rmdirSync(directory);
  }
});

function idAt(port: number | undefined): string {
  return [...cluster.ports].find(([, one]) => one === port)?.[0] ?? '';
}

function serialOf(id: string): string {
  const { serialNumber } = new X509Certificate(readFileSync(join(cluster.authority.folder, `${id}.pem`)));
  return serialText(serialNumber);
}

/** @returns the ports to which a process has established connections */
function connectionsOf(pid: number): number[] {
  const own = new Set(readdirSync(`/proc/${pid}/fd`).map((fd) => linkOf(`/proc/${pid}/fd/${fd}`)));
  return readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .slice(1, -1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode]) => state === '01' && own.has(`socket:[${inode}]`))
    .map(([, , remote = '']) => Number.parseInt(remote.split(':')[1] ?? '', 16));
}

/** Empty for one that is closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
    return '';
  }
}

function isRevokedServer(error: unknown): boolean {
  assert.ok(error instanceof ServiceError && error.code === 'unauthorized', String(error));
  return /is revoked/.test(error.message);
}

test('a client is disconnected when its certificate ends, and not at its next connection', async () => {
  const shown = pem(await cluster.authority.client('brief', 'read', null, 6_000));
  const socket = connect({
    port: cluster.ports.get('s1') as number,
    host: '127.0.0.1',
    ca: readFileSync(cluster.authority.ca),
    ...shown,
  });
  await once(socket, 'secureConnect');
  socket.write('GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(socket, 'data');
  await once(socket.on('error', () => undefined).resume(), 'close');
});

test('the coming end of a certificate is reported every day, in the log, as an event and in a metric', async () => {
  const files = await cluster.authority.server('s2', { lifeMs: 3 * DAY_MS });
  assert.ok(cluster.server('s2').reload());
  const lines = cluster.lines(({ msg }) => /certificate of this server expires soon/.test(msg));
  assert.ok(lines.some(({ server }) => server === 's2'));
  assert.ok(!lines.some(({ server }) => server === 's1' && lines.length === 1));
  const { text } = await ask(cluster, 'GET', '/v1/events/self', { shown: root, at: 's2' });
  assert.match(text, /"certificate-ends"/);
  assert.match(text, /The certificate of s2 expires in 2 days: then no client or server can connect to it/);
  const metrics = (await ask(cluster, 'GET', '/metrics', { shown: root, at: 's2' })).text;
  const [, end = ''] =
    /leasehold_certificate_end_timestamp_seconds\{whose="server"\} (\S+)/.exec(metrics) ?? [];
  const expected = new X509Certificate(readFileSync(files.cert)).validToDate.getTime() / 1_000;
  assert.equal(Number(end), expected);
  assert.match(metrics, /leasehold_certificate_end_timestamp_seconds\{whose="authority"\} \d/);

  // With the test's own clock: nothing before, one event at once, one at each check.
  const material = new TlsMaterial(systemWorld, { ...files, ca: cluster.authority.ca }, 's2' as ServerId);
  const told: string[] = [];
  let nowMs = material.expiresAtMs - 2 * EXPIRY_WARNING_MS;
  const tell = ({ whose }: { readonly whose: string }): void => void told.push(whose);
  const watch = new CertificateWatch({ ...systemWorld, wallMs: () => nowMs }, material, tell);
  assert.deepEqual(told, []);
  nowMs = material.expiresAtMs - EXPIRY_WARNING_MS + 1;
  watch.check();
  watch.close();
  assert.ok(told.some((whose) => whose === 'server'));
});
