/**
 * Goal: the Dockerfile builds, and `docker compose up` starts a cluster with TLS and tokens that outlives a server.
 * Method: with a running Docker daemon, which makes the containers; compose.test.ts plays the same file as processes.
 */
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { stringify } from 'yaml';
import { freePorts } from '../../client/dev/free-ports.ts';
import { until } from '../cluster/real-cluster.ts';
import { onlyLong } from '../long.ts';
import { ROOT, readCompose } from './played-compose.ts';

const run = promisify(execFile);
const SERVERS = ['s1', 's2', 's3'];
const BASE = 'node:24-bookworm-slim';
const BUILD_MS_MAX = 1_200_000;

/** The plugin of today, or the program of before. */
const COMPOSE = [['docker', 'compose'], ['docker-compose']].find((words) => isThere([...words, 'version']));

const skip = onlyLong('test/packaging/compose.test.ts') || obstacle();

function isThere([command = '', ...argv]: readonly string[]): boolean {
  try {
    execFileSync(command, argv, { stdio: 'pipe' });
    return true;
  } catch {
    return false;
  }
}

function obstacle(): string | false {
  if (COMPOSE === undefined) return 'docker compose is not installed';
  if (!isThere(['docker', 'info'])) return 'no Docker daemon runs';
  const hasBase =
    isThere(['docker', 'image', 'inspect', BASE]) || isThere(['docker', 'pull', '--quiet', BASE]);
  return hasBase ? false : `the image ${BASE} cannot be pulled`;
}

test('docker compose builds the image and runs a cluster with TLS and tokens', { skip }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-image-'));
  const file = join(folder, 'compose.yml');
  const ports = await freePorts(SERVERS.length);
  const compose = readCompose();
  const services = Object.fromEntries(
    Object.entries(compose.services).map(([name, service]) => {
      const place = SERVERS.indexOf(name);
      // Ports of the machine may be in use, and an image of the same name.
      const free = place < 0 ? {} : { ports: [`127.0.0.1:${ports[place]}:7401`] };
      return [name, { ...service, ...free, build: ROOT, image: `leasehold:test-${process.pid}` }];
    }),
  );
  await writeFile(file, stringify({ ...compose, version: '3.9', services }));
  const [command = '', ...first] = COMPOSE ?? [];
  const words = [...first, '-f', file, '-p', `leasehold-test-${process.pid}`];
  const play = async (...argv: readonly string[]) =>
    (await run(command, [...words, ...argv], { timeout: BUILD_MS_MAX, maxBuffer: 1 << 26 })).stdout;
  t.after(async () => {
    await play('down', '--volumes', '--remove-orphans', '--rmi', 'all');
    await rm(folder, { recursive: true });
  });

  await play('build');
  await play('up', '-d', 'volume', 'load');
  await until('the volume is there', async () => {
    const listed = await play('run', '--rm', '--no-deps', '-T', 'cli', 'volume', 'ls');
    return listed.includes('main');
  });
  const put = spawn(
    command,
    [...words, 'run', '--rm', '--no-deps', '-T', 'cli', 'put', '-', 'main:/letter'],
    {
      stdio: ['pipe', 'ignore', 'inherit'],
    },
  );
  put.stdin.end('dear all');
  assert.deepEqual(await once(put, 'exit'), [0, null]);

  const ca = await play(
    'run',
    '--rm',
    '--no-deps',
    '-T',
    '--entrypoint',
    'cat',
    'cli',
    '/credentials/ca.pem',
  );
  const token = await play(
    'run',
    '--rm',
    '--no-deps',
    '-T',
    '--entrypoint',
    'cat',
    'cli',
    '/credentials/token',
  );
  const path = '/v1/files/main/letter';
  assert.equal((await fetched(ports[1] ?? 0, path, ca, null)).status, 401, 'Without a token, nothing');
  const [container = ''] = (await play('ps', '-q', 's2')).trim().split('\n');
  const { stdout: user } = await run('docker', ['exec', container, 'id', '-un']);
  assert.equal(user.trim(), 'node', 'Servers do not run as root');
  await assert.rejects(run('docker', ['exec', container, 'touch', '/opt/leasehold/x']), /Read-only/);
  await until('the health check has passed', async () => {
    const state = ['inspect', '--format', '{{.State.Health.Status}}', container];
    return (await run('docker', state)).stdout.trim() === 'healthy';
  });

  await play('kill', 's1');
  await until('another server has the file', async () => {
    const { status, text } = await fetched(ports[1] ?? 0, path, ca, token.trim());
    return status === 200 && text === 'dear all';
  });
  await play('up', '-d', 's1');
  const status = await play('run', '--rm', '--no-deps', '-T', 'cli', 'doctor').catch(
    (error: { stdout: string }) => error.stdout,
  );
  for (const id of SERVERS) assert.ok(status.includes(id), status);
});

async function fetched(
  port: number,
  path: string,
  ca: string,
  token: string | null,
): Promise<{ status: number; text: string }> {
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const sent = request({ host: '127.0.0.1', port, path, ca, headers, servername: 'localhost' });
  sent.end();
  const [response] = await once(sent, 'response');
  let text = '';
  for await (const part of response.setEncoding('utf8')) text += part;
  return { status: response.statusCode, text };
}
