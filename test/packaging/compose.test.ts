/**
 * Goal: `docker compose up` makes a cluster that only clients with certificates and tokens can use, on the first start
 * and on all others.
 * Method: the services of docker-compose.yml run as processes, with their arguments, environment and folders.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import { tokenParts } from '../../wire/tokens.ts';
import { PlayedCompose } from './played-compose.ts';

const SERVERS = ['s1', 's2', 's3'];
let compose: PlayedCompose;

before(async () => {
  const ports = await freePorts(SERVERS.length);
  compose = new PlayedCompose(new Map(SERVERS.map((id, place) => [id, ports[place] as number])));
  await compose.up('volume');
});
after(() => compose.stop());

function secretOf(service: string): string {
  const text = readFileSync(compose.path(service, '/credentials/token'), 'utf8');
  return tokenParts(text.trim())?.secret ?? assert.fail('It is no token');
}

test("the first start gives each service what it needs, and no other service's secrets", () => {
  for (const id of SERVERS) {
    assert.deepEqual(readdirSync(compose.path(id, '/credentials')).sort(), [
      'ca.pem',
      'node-key.pem',
      'node.pem',
      'tokens.json',
    ]);
    for (const secret of ['node-key.pem', 'tokens.json'])
      assert.equal(statSync(compose.path(id, `/credentials/${secret}`)).mode & 0o777, 0o600);
  }
  assert.deepEqual(readdirSync(compose.path('cli', '/credentials')).sort(), ['ca.pem', 'token']);
  const holders = Object.entries(compose.file.services)
    .filter(([name]) => name !== 'mount')
    .filter(([name]) => existsSync(compose.path(name, '/credentials/authority/ca-key.pem')));
  assert.deepEqual(
    holders.map(([name]) => name),
    ['credentials'],
    'services that could make certificates',
  );
  assert.equal(compose.service('credentials').network_mode, 'none');
  assert.notEqual(secretOf('cli'), secretOf('load'));
});

test('without a token every request is refused, and the load may not change the cluster', async () => {
  const open = await compose.run('cli', ['ls', 'main:/', '--token-file', '/dev/null']);
  assert.notEqual(open.code, 0);
  const create = await compose.run('load', ['volume', 'create', 'other']);
  assert.equal(create.code, 6, create.stderr);
});

test('an uploaded file is readable after the death of a server', async () => {
  const put = await compose.run('cli', ['put', '-', 'main:/letter'], 'dear all');
  assert.equal(put.code, 0, put.stderr);
  await compose.kill('s1');
  const get = await compose.run('cli', ['get', 'main:/letter', '-']);
  assert.equal(get.stdout, 'dear all', get.stderr);
  await compose.up('s1');
});

test('the load has the rights that it needs', async () => {
  const words = compose.service('load').command.filter((word) => word !== '--forever');
  const load = await compose.run('load', words.with(words.indexOf('10s'), '500ms'));
  assert.equal(load.code, 0, load.stderr);
});

test('a second start changes nothing', async () => {
  const token = secretOf('cli');
  const again = await compose.run('credentials', compose.service('credentials').command);
  assert.equal(again.code, 0, again.stderr);
  assert.match(again.stdout, /is complete: nothing was created/);
  assert.equal(secretOf('cli'), token);
});

test('no secret is in a list of processes, an environment or the file itself', () => {
  const secrets = ['cli', 'load'].map(secretOf);
  for (const id of SERVERS) {
    const key = readFileSync(compose.path(id, '/credentials/node-key.pem'), 'utf8').split('\n')[1] ?? '';
    assert.ok(key.length > 30);
    secrets.push(key);
  }
  const shown = [...compose.processes.values()]
    .filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null)
    .flatMap(({ pid }) => ['cmdline', 'environ'].map((name) => readFileSync(`/proc/${pid}/${name}`, 'utf8')));
  assert.equal(shown.length, 2 * SERVERS.length);
  for (const text of [...shown, JSON.stringify(compose.file)])
    for (const secret of secrets) assert.ok(!text.includes(secret));
});
