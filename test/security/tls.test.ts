/**
 * Goal: servers with certificates of one authority form a cluster; a process with no certificate, another authority's,
 * or an ended one gets no service, and its messages are ignored; certificates are replaced without an interruption.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect } from 'node:tls';
import { WebSocket } from 'ws';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { downloadFile } from '../../client/transfer/download.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { Access } from '../../client/transport/access.ts';
import { ConfigurationError } from '../../server/config/configuration-error.ts';
import { PeerTls } from '../../server/security/peer-tls.ts';
import { TlsMaterial } from '../../server/security/tls-material.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type CertificateFiles, TestAuthority } from './authority.ts';
import { SecureCluster } from './secure-cluster.ts';

let cluster: SecureCluster;
let client: ClusterClient;
let stranger: TestAuthority;

before(async () => {
  cluster = await SecureCluster.start();
  stranger = await TestAuthority.create();
  client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    access: new Access({ ca: cluster.authority.ca }),
  });
  await client.command({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 131072 });
});
after(async () => {
  await client.close();
  await cluster.stop();
  stranger.remove();
});

/**
 * Connects as another server would.
 * @returns how it ends
 */
async function dial(
  files: CertificateFiles | null,
  claims: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const ws = new WebSocket(`${cluster.url('s1').replace('https', 'wss')}/v1/peer`, {
    ca: readFileSync(cluster.authority.ca),
    ...(files === null ? {} : { cert: readFileSync(files.cert), key: readFileSync(files.key) }),
    headers: {
      'leasehold-wire': '2',
      'leasehold-cluster': 'default',
      'leasehold-server': claims,
      'leasehold-incarnation': '7',
      'leasehold-params': 'x',
      ...headers,
    },
  });
  const ended = new Promise<string>((resolve) => {
    ws.on('open', () => resolve('open'));
    ws.on('error', (error) => resolve(error.message));
  });
  const end = await ended;
  ws.terminate();
  return end;
}

test('an unencrypted request is answered with the hint that a server with TLS may expect it', async () => {
  const servers = cluster.urls.map((url) => url.replace('https:', 'http:'));
  const plain = new ClusterClient({ world: systemWorld, servers });
  await assert.rejects(plain.query({ kind: 'volumes' }, { timeoutMs: 2_000 }), (error: ServiceError) => {
    assert.match(
      error.message,
      /closed the connection without an answer; if it requires TLS, use https:\/\/127\.0\.0\.1:\d+/,
    );
    return true;
  });
  await plain.close();
});

test('a cluster with TLS serves: every server accepts every request', async () => {
  const source = Buffer.from('whole and in secret');
  await uploadFile(
    client,
    'main',
    '/a',
    (async function* () {
      yield source;
    })(),
  );
  for (const url of cluster.urls) {
    const one = new ClusterClient({
      world: systemWorld,
      servers: [url],
      access: new Access({ ca: cluster.authority.ca }),
    });
    const download = await downloadFile(one, 'main', '/a');
    const chunks: Uint8Array[] = [];
    for await (const chunk of download.chunks) chunks.push(chunk);
    assert.equal(Buffer.concat(chunks).toString(), source.toString());
    await one.close();
  }
});

test('a client that does not know the authority sends nothing to the servers, and reports why at once', async () => {
  for (const access of [new Access({}), new Access({ ca: stranger.ca })]) {
    const one = new ClusterClient({ world: systemWorld, servers: cluster.urls, access });
    await assert.rejects(one.status(), (error: unknown) => {
      assert.ok(error instanceof ServiceError && error.code === 'unauthorized', String(error));
      assert.match(error.message, /TLS with https:\S+ failed:/);
      return true;
    });
    await one.close();
  }
});

test('an unencrypted connection gets no answer', async () => {
  await assert.rejects(fetch(cluster.url('s1').replace('https', 'http')));
});

test('the log of a server with TLS names the address by which it is reached', () => {
  const lines = cluster.lines(({ msg }) => msg.startsWith('Server listening'));
  assert.equal(lines.length, cluster.urls.length);
  for (const { msg } of lines) assert.match(msg, /^Server listening at https:\/\/127\.0\.0\.1:\d+$/);
});

test('older versions of TLS are refused', async () => {
  const socket = connect({
    port: cluster.ports.get('s1') as number,
    host: '127.0.0.1',
    ca: readFileSync(cluster.authority.ca),
    maxVersion: 'TLSv1.2',
  });
  const [error] = (await once(socket, 'error')) as [Error & { code?: string }];
  assert.equal(error.code, 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
});

test("a server is the one that its certificate names: no certificate, a client's, another server's and an unknown one are refused", async () => {
  const asClient = await cluster.authority.client('eve', 'admin');
  const s2 = {
    cert: join(cluster.authority.folder, 's2.pem'),
    key: join(cluster.authority.folder, 's2-key.pem'),
  };
  const ended = await cluster.authority.server('s3', { lifeMs: -1_000, name: 'ended' });
  assert.match(await dial(null, 's2'), /403/);
  assert.match(await dial(asClient, 's2'), /403/);
  assert.match(await dial(s2, 's3'), /403/, 'it is s2, and claims to be s3');
  assert.match(await dial(s2, 's2'), /409/, 'accepted as far as its parameters, which are wrong');
  assert.match(await dial(await stranger.server('s2'), 's2'), /ECONNRESET|closed|hang up/);
  assert.match(await dial(ended, 's3'), /ECONNRESET|closed|hang up/);
  const refused = cluster.lines(({ msg }) => msg === 'connection refused: invalid client certificate');
  assert.ok(refused.length >= 2);
});

test('a server that shows a certificate of another id is refused by those that connect to it', async () => {
  const { folder, ca } = cluster.authority;
  const files = { cert: join(folder, 's3.pem'), key: join(folder, 's3-key.pem'), ca };
  const server = new PeerTls(new TlsMaterial(systemWorld, files, 's3' as ServerId));
  for (const [expected, wanted] of [
    ['s1', null],
    ['s2', /The certificate at the address of s2 is for s1/],
  ] as const) {
    const socket = connect({
      ...server.dialOptions(expected as ServerId),
      port: cluster.ports.get('s1') as number,
      host: '127.0.0.1',
    });
    const outcome = await once(socket, 'secureConnect').then(
      () => null,
      (error: Error) => error.message,
    );
    socket.destroy();
    if (wanted === null) assert.equal(outcome, null);
    else assert.match(String(outcome), wanted);
  }
});

test('new certificates are used after a signal, and no connection and no lease ends', async () => {
  const place = { volume: 'main', path: '/kept' };
  const { attributes } = await client.command({
    kind: 'create-file',
    place,
    mode: 0o644,
    uid: 0,
    gid: 0,
    exclusive: true,
  });
  const handle = client.openFile(attributes.inode);
  const first = await handle.write(0, Buffer.from('before'));
  const connectionsBefore = cluster.lines(({ msg }) => /^peer (?:dis)?connected$/.test(msg)).length;
  const serialBefore = await serialOf('s1');
  for (const id of cluster.ports.keys()) await cluster.authority.server(id);
  for (const server of cluster.servers.values()) assert.ok(server.reload());
  assert.notEqual(await serialOf('s1'), serialBefore, 'a new connection gets the new certificate');
  const second = await handle.write(0, Buffer.from('behind'));
  assert.equal(second.primary, first.primary);
  assert.equal(second.epoch, first.epoch, 'the lease was not lost');
  assert.equal(cluster.lines(({ msg }) => /^peer (?:dis)?connected$/.test(msg)).length, connectionsBefore);
  // An unusable certificate is refused, and the present one stays.
  const s1 = join(cluster.authority.folder, 's1.pem');
  const good = readFileSync(s1);
  copyFileSync(join(cluster.authority.folder, 's2.pem'), s1);
  assert.equal(cluster.server('s1').reload(), false);
  await serialOf('s1');
  writeFileSync(s1, good);
  assert.ok(cluster.server('s1').reload());
});

async function serialOf(id: string): Promise<string> {
  const socket = connect({
    port: cluster.ports.get(id) as number,
    host: '127.0.0.1',
    ca: readFileSync(cluster.authority.ca),
  });
  await once(socket, 'secureConnect');
  const serial = socket.getPeerX509Certificate()?.serialNumber ?? '';
  socket.destroy();
  return serial;
}

test('a server joins by its certificate, and is one of the servers', async () => {
  await cluster.authority.server('s4');
  await cluster.join('s4');
  const { servers } = await client.query({ kind: 'servers', counts: false });
  const url = servers.find(({ id }) => id === 's4')?.url ?? '';
  assert.match(url, /^https:/);
  const one = new ClusterClient({
    world: systemWorld,
    servers: [url],
    access: new Access({ ca: cluster.authority.ca }),
  });
  assert.equal((await one.resolve('main', '/a')).kind, 'file', 'it forwards over TLS');
  await one.close();
});

test('a server does not start with files that do not fit together', async () => {
  const { folder, ca } = cluster.authority;
  const files = (name: string) => ({
    cert: join(folder, `${name}.pem`),
    key: join(folder, `${name}-key.pem`),
    ca,
  });
  const s1 = 's1' as ServerId;
  const refused = (given: ConstructorParameters<typeof TlsMaterial>[1], why: RegExp): void =>
    assert.throws(
      () => new TlsMaterial(systemWorld, given, s1),
      (error: unknown) => error instanceof ConfigurationError && why.test(error.message),
    );
  await cluster.authority.server('s1', { lifeMs: -1_000, name: 'old' });
  await cluster.authority.client('carol', 'read');
  refused(files('s2'), /issued for s2, not for s1/);
  refused(files('old'), /it expired on/);
  refused(files('carol'), /it is not a server certificate/);
  refused({ ...files('s1'), key: files('s2').key }, /belongs to another certificate/);
  refused({ ...files('s1'), ca: stranger.ca }, /no certificate authority in/);
  refused({ ...files('s1'), key: ca }, /contains no unencrypted PEM private key/);
  refused({ ...files('s1'), cert: files('s1').key }, /contains no PEM certificate/);
  refused({ ...files('s1'), ca: join(folder, 'missing.pem') }, /Cannot read --tls-ca/);
});
