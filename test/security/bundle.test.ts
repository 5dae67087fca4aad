/**
 * Goal: the doctor's bundle has what servers with TLS and tokens report, and nothing that grants access.
 * Method: it also gets everything that it may be given by mistake: the file of tokens, a token, a key; then every byte
 * of it is searched.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import type { ClusterStatus } from '../../wire/http-api.ts';
import { formatTokenFile, parseTokenFile, tokenParts } from '../../wire/tokens.ts';
import { runCli } from '../client/run-cli.ts';
import { until } from '../cluster/real-cluster.ts';
import { SecureCluster } from './secure-cluster.ts';
import { ask, close } from './wire-client.ts';

const run = promisify(execFile);
const { text: token, known } = issueToken({ name: 'helper', role: 'admin', volumes: null }, null);
const CONTROL_KEY = 'a-word-that-kills-servers';
let cluster: SecureCluster;
let book: string;

before(async () => {
  cluster = await SecureCluster.start({
    servers: 1,
    flags: ({ folder }) => {
      book = join(folder, 'tokens.json');
      writeFileSync(book, formatTokenFile({ ...emptyTokenFile(), tokens: [known] }));
      return ['--tokens', book];
    },
  });
});
after(async () => {
  await close();
  await cluster.stop();
});

test('a bundle over TLS and with a token has useful files, and no secret', async () => {
  const { folder, ca } = cluster.authority;
  const headers = { authorization: `Bearer ${token}` };
  const command = { kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 131072 };
  await ask(cluster, 'POST', '/v1/catalog/commands', { json: { session: 1, number: 1, command }, headers });
  const put = await ask(cluster, 'PUT', '/v1/files/main/a', { body: 'a', headers });
  assert.equal(put.status, 201, put.text);
  const query = { kind: 'resolve', volume: 'main', path: '/a', follow: true };
  const { text } = await ask(cluster, 'POST', '/v1/catalog/queries', { json: { query }, headers });
  const { capability } = (JSON.parse(text) as { attributes: { capability: string } }).attributes;

  const file = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const secret = tokenParts(token)?.secret ?? '';
  const configs = [
    file('s1.toml', `id = "s1"\ntokens = "${book}"\ntls-key = "${join(folder, 's1-key.pem')}"\n`),
    book,
    join(folder, 's1-key.pem'),
    file('helper.token', `${token}\n`),
  ];
  const logs = [
    file('s1.log', cluster.log.join('')),
    file(
      'client.log',
      `curl -H "Authorization: Bearer ${token}"\nsent ${token}\nleasehold-capability: ${capability}\n`,
    ),
  ];
  await cluster.authority.server('s2');
  await cluster.join('s2');
  await until('s1 has read in the catalog that s2 has joined', async () => {
    const status = await ask(cluster, 'GET', '/v1/status', { headers });
    return (JSON.parse(status.text) as ClusterStatus).servers.some(({ id }) => id === 's2');
  });
  const bundle = join(folder, 'bundle.tar.gz');
  const words = ['--bundle', bundle, '--json', '--servers', cluster.url('s1'), '--ca', ca];
  const doctor = await runCli(['doctor', ...words, '--config', ...configs, '--log', ...logs], {
    env: { LEASEHOLD_TOKEN: token, LEASEHOLD_DEV_CONTROL: `http://127.0.0.1:1#${CONTROL_KEY}` },
  });
  // Its other findings on this machine are not the subject.
  assert.match(doctor.stderr, /wrote .*bundle\.tar\.gz/);
  await run('tar', ['-xzf', bundle, '-C', folder]);
  const root = join(folder, 'leasehold-bundle');
  const pieces = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const ids = readdirSync(join(root, 'servers')).map(
    (name) => JSON.parse(readFileSync(join(root, 'servers', name, 'status.json'), 'utf8')).id,
  );
  assert.deepEqual(ids.toSorted(), ['s1', 's2'], 'also of a server that was not named');
  const own = join(root, 'servers', new URL(cluster.url('s1')).host.replaceAll(':', '-'));
  assert.equal(JSON.parse(readFileSync(join(own, 'status.json'), 'utf8')).id, 's1', 'It was let in');
  assert.match(readFileSync(join(own, 'metrics.txt'), 'utf8'), /^leasehold_build_info/m);
  assert.match(readFileSync(join(root, 'logs/s1.log'), 'utf8'), /server/);
  assert.match(readFileSync(join(root, 'configuration/s1.toml'), 'utf8'), /^id = "s1"$/m);

  const { keys } = parseTokenFile(readFileSync(book, 'utf8'));
  const key = readFileSync(join(folder, 's1-key.pem'), 'utf8').split('\n')[1] ?? '';
  const secrets = [secret, known.hash, ...keys, key, capability.split('.')[1] ?? '', CONTROL_KEY];
  assert.ok(secrets.every((one) => one.length > 20));
  for (const piece of pieces) {
    const content = readFileSync(piece, 'utf8');
    for (const one of secrets) assert.ok(!content.includes(one), `${piece} has a secret in it`);
  }
});
