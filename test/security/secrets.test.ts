/**
 * Goal: what makes secrets protects them: in files that only their owner reads, that no command overwrites by mistake,
 * and nowhere else.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import { parseTokenFile, tokenParts } from '../../wire/tokens.ts';
import { LAUNCHER, runCli } from '../client/run-cli.ts';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-secrets-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const file = (name: string): string => join(folder, name);
const modeOf = (name: string): string => (statSync(file(name)).mode & 0o777).toString(8);
const cert = (...argv: string[]) => runCli(['cert', ...argv, '--dir', folder]);
const token = (...argv: string[]) => runCli(['token', ...argv, '--tokens', file('tokens.json')]);

test('certificates: an authority, a server with its names, a client with its role; keys for their owner only', async () => {
  assert.equal((await cert('create-node', 's1')).code, 3, 'there is no authority yet');
  for (const argv of [
    ['create-ca', '--days', '100'],
    ['create-node', 's1', '--host', '10.0.0.1', '--host', 'fs1.example.org'],
    ['create-client', 'alice', '--role', 'write', '--volume', 'main', '--volume', 'other'],
  ]) {
    const { code, stdout, stderr } = await cert(...argv);
    assert.equal(code, 0, stderr);
    assert.doesNotMatch(stdout + stderr, /PRIVATE|BEGIN/);
  }
  const ca = new X509Certificate(readFileSync(file('ca.pem')));
  assert.ok(ca.ca);
  const node = new X509Certificate(readFileSync(file('s1.pem')));
  assert.ok(node.checkIssued(ca) && node.verify(ca.publicKey) && !node.ca);
  assert.equal(node.checkHost('fs1.example.org'), 'fs1.example.org');
  assert.equal(node.checkIP('10.0.0.1'), '10.0.0.1');
  assert.equal(node.checkIP('10.0.0.2'), undefined);
  assert.equal(node.checkHost('localhost'), 'localhost');
  assert.match(node.subjectAltName ?? '', /URI:urn:leasehold:server:s1/);
  const client = new X509Certificate(readFileSync(file('alice.pem')));
  assert.equal(
    client.subjectAltName,
    'URI:urn:leasehold:client:alice, URI:urn:leasehold:role:write, URI:urn:leasehold:volume:main, URI:urn:leasehold:volume:other',
  );
  // Extended usages: of a server both, of a client only that.
  assert.deepEqual(client.keyUsage, ['1.3.6.1.5.5.7.3.2']);
  for (const key of ['ca-key.pem', 's1-key.pem', 'alice-key.pem']) assert.equal(modeOf(key), '600', key);
});

test('no existing file is replaced by mistake', async () => {
  const before = readFileSync(file('s1-key.pem'), 'utf8');
  const again = await cert('create-node', 's1');
  assert.equal(again.code, 4);
  assert.match(again.stderr, /the file exists[\s\S]*--force/);
  assert.equal(readFileSync(file('s1-key.pem'), 'utf8'), before);
  assert.equal((await cert('create-node', 's1', '--force')).code, 0);
  assert.notEqual(readFileSync(file('s1-key.pem'), 'utf8'), before);
  assert.equal(modeOf('s1-key.pem'), '600');
  assert.deepEqual(
    readdirSync(folder).filter((name) => /pem\./.test(name)),
    [],
    'no file is left',
  );
  assert.equal((await cert('create-node', 'ca', '--force')).code, 2, 'that would be the authority itself');
});

test('a token is shown once, and its file has no usable secret', async () => {
  const made = await token('create', 'me', '--role', 'admin');
  assert.equal(made.code, 0, made.stderr);
  const parts = tokenParts(made.stdout.trim());
  assert.ok(parts !== null);
  assert.ok(!made.stderr.includes(parts.secret));
  assert.equal((await token('create', 'me', '--role', 'read')).code, 4);
  const out = await token(
    'create',
    'ci',
    '--role',
    'read',
    '--volume',
    'main',
    '--days',
    '1',
    '--out',
    file('ci.token'),
  );
  assert.equal(out.stdout, '');
  const secret = tokenParts(readFileSync(file('ci.token'), 'utf8').trim())?.secret ?? '';
  assert.equal(secret.length, 43);
  for (const name of ['tokens.json', 'ci.token']) assert.equal(modeOf(name), '600', name);
  const text = readFileSync(file('tokens.json'), 'utf8');
  assert.ok(!text.includes(secret) && !text.includes(parts.secret));
  const known = parseTokenFile(text).tokens;
  assert.equal(known[0]?.hash, createHash('sha256').update(parts.secret).digest('base64url'));
  assert.deepEqual(known[1]?.volumes, ['main']);
  const listed = await token('ls');
  assert.match(listed.stdout, /me +admin +all/);
  assert.ok(!known.some(({ hash, id }) => listed.stdout.includes(hash) || listed.stdout.includes(id)));
  assert.equal((await token('revoke', 'nobody')).code, 3);
  assert.equal((await token('revoke', 'me')).code, 0);
  assert.deepEqual(
    parseTokenFile(readFileSync(file('tokens.json'), 'utf8')).tokens.map(({ name }) => name),
    ['ci'],
  );
});

test('faults of a file of secrets are reported without quoting it', async () => {
  const secret = 'c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU';
  writeFileSync(file('broken.json'), `{"format":1,"keys":["${secret}"],"tokens":[{"name":"${secret}"}`);
  const result = await runCli(['token', 'ls', '--tokens', file('broken.json')]);
  assert.equal(result.code, 2);
  assert.ok(!result.stderr.includes(secret), result.stderr);
  writeFileSync(file('no.token'), `${secret} and more`);
  const used = await runCli(['status', '--servers', 'https://127.0.0.1:1', '--token-file', file('no.token')]);
  assert.equal(used.code, 2);
  assert.ok(!used.stderr.includes(secret), used.stderr);
  const keyArgs = [
    '--tls-cert',
    file('s1.pem'),
    '--tls-key',
    file('broken.json'),
    '--tls-ca',
    file('ca.pem'),
  ];
  const server = await runCli([
    ...['server', '--id', 's1', '--peer', 's1=127.0.0.1:7999', '--data', file('data')],
    ...keyArgs,
  ]);
  assert.equal(server.code, 2);
  assert.match(server.stderr, /contains no unencrypted PEM private key/);
  assert.ok(!server.stderr.includes(secret), server.stderr);
});

test('a server process reads certificate and tokens again at SIGHUP, and continues', async (context) => {
  const [port] = await freePorts(1);
  const child = spawn(process.execPath, [
    ...[LAUNCHER, 'server', '--id', 's1', '--peer', `s1=127.0.0.1:${port}`, '--data', file('hangup')],
    ...['--tls-cert', file('s1.pem'), '--tls-key', file('s1-key.pem'), '--tls-ca', file('ca.pem')],
    ...['--tokens', file('tokens.json')],
  ]);
  context.after(() => child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stderr })[Symbol.asyncIterator]();
  const said = async (wanted: string): Promise<void> => {
    for (let line = await lines.next(); line.done !== true; line = await lines.next()) {
      if (line.value.includes(wanted)) return;
    }
    throw new Error(`It ended without a word of "${wanted}"`);
  };
  await said('server listens');
  child.kill('SIGHUP');
  await said('the certificate is reloaded');
  await said('the tokens are reloaded');
  writeFileSync(file('tokens.json'), 'not what it should be');
  child.kill('SIGHUP');
  await said('cannot reload the tokens');
  child.kill('SIGTERM');
  const [code] = await once(child, 'exit');
  assert.equal(code, 0, 'it continued until it was ended');
});

test('no command takes a token as an argument', async () => {
  const { stdout } = await runCli(['status', '--help']);
  assert.match(stdout, /--token-file/);
  assert.doesNotMatch(stdout, /--token[ =]/);
});

test('the credentials of a cluster are completed if something is missing, and otherwise unchanged', async () => {
  const all = file('cluster');
  const create = (...argv: string[]) => runCli(['cert', 'create-cluster', ...argv, '--dir', all]);
  const read = (name: string): string => readFileSync(join(all, name), 'utf8');
  const words = ['s1', 's2', '--client', 'me=admin', '--client', 'ci=read'];
  assert.equal((await create(...words)).code, 0);
  const ids = () => parseTokenFile(read('s1/tokens.json')).tokens.map(({ name, role }) => `${name}=${role}`);
  assert.deepEqual(ids(), ['me=admin', 'ci=read']);
  assert.equal(read('s1/tokens.json'), read('s2/tokens.json'));
  assert.match((await create(...words)).stdout, /is complete: nothing was created/);

  // Stopped between the key and its certificate, a lost token, a host that is new.
  const before = {
    ca: read('authority/ca.pem'),
    s1: read('s1/node.pem'),
    s2: read('s2/node.pem'),
    ci: read('ci/token'),
  };
  rmSync(join(all, 's1/node.pem'));
  rmSync(join(all, 'me/token'));
  assert.equal((await create(...words)).code, 0);
  assert.equal(read('authority/ca.pem'), before.ca);
  assert.equal(read('s2/node.pem'), before.s2);
  assert.equal(read('ci/token'), before.ci);
  assert.ok(new X509Certificate(read('s1/node.pem')).verify(new X509Certificate(before.ca).publicKey));
  assert.deepEqual(ids().sort(), ['ci=read', 'me=admin']);
  assert.equal((await create(...words, '--host', 's2=fs2.example.org')).code, 0);
  assert.equal(new X509Certificate(read('s2/node.pem')).checkHost('fs2.example.org'), 'fs2.example.org');

  // Tokens that were made by hand reach the servers.
  const tokens = join(all, 'authority/tokens.json');
  assert.equal((await runCli(['token', 'create', 'more', '--role', 'write', '--tokens', tokens])).code, 0);
  assert.equal((await create(...words, '--host', 's2=fs2.example.org')).code, 0);
  assert.deepEqual(ids().sort(), ['ci=read', 'me=admin', 'more=write']);

  for (const wrong of [
    ['s1', 's1'],
    ['s1', 'authority'],
    ['s1', '--client', 's1=read'],
    ['s1', '--client', 'me=king'],
    ['s1', '--client', 'me=read=write'],
    ['s1', '--host', 's1=a=b'],
    ['s1', '--host', 's9=x'],
  ])
    assert.equal((await create(...wrong)).code, 2, wrong.join(' '));
});
