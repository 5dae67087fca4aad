import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { EXIT_LEASE_LOST } from '../../client/commands/lease.ts';
import { EXIT_FAILED } from '../../client/terminal/failure.ts';
import { streamEventText } from '../../wire/sse.ts';
import { runCli } from '../client/run-cli.ts';
import { until } from '../cluster/real-cluster.ts';

/** Half of it is how long a busy machine may take to start and to end processes. */
const TTL_MS = 16_000;
const TOKEN = 9;

/** A server that grants every lease, until a test gives other answers. */
describe('leasehold lease acquire', () => {
  let server: Server;
  let folder: string;
  let seen: string[];
  let watches: ServerResponse[];
  let refresh: (response: ServerResponse) => void;
  let grantedMs = 0;

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'leasehold-command-'));
    seen = [];
    watches = [];
    const grant = (response: ServerResponse) => {
      const [name, owner, session, token] = ['n', 'me', 1, TOKEN];
      const lease = { name, owner, session, token, ttlMs: TTL_MS, remainingMs: TTL_MS, keys: {} };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(lease));
    };
    refresh = grant;
    server = createServer((request, response) => {
      const { method = '', url = '' } = request;
      seen.push(method);
      request.resume();
      if (url.endsWith('/watch')) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(': \n\n');
        watches.push(response);
      } else if (method === 'DELETE') response.writeHead(204).end();
      else if (method === 'PATCH') refresh(response);
      else {
        grantedMs = performance.now();
        grant(response);
      }
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
  });

  afterEach(() => {
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true });
  });

  const acquire = (script: string, env: Record<string, string> = {}) =>
    runCli(['lease', 'acquire', 'n', '--ttl', `${TTL_MS}ms`, '--', 'sh', '-c', script], {
      env: {
        LEASEHOLD_SERVERS: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
        FOLDER: folder,
        ...env,
      },
    });

  const ready = () => until('the command runs', async () => existsSync(join(folder, 'ready')));
  const tell = (kind: string, held: boolean, token: number) => {
    const state = {
      name: 'n',
      held,
      owner: held ? 'other' : null,
      token,
      keys: {},
      remainingMs: held ? 9 : 0,
    };
    for (const watch of watches) watch.write(streamEventText(kind, JSON.stringify(state)));
  };

  test('a lease that is lost at a refresh: a command that handles no signal is killed, half a lease before its end', async () => {
    refresh = (response) => {
      response.writeHead(409, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ code: 'lease-lost', detail: 'another has it' }));
    };
    const running = acquire('trap "" TERM; while :; do sleep 0.02; done');
    const { code, stderr } = await running;
    assert.equal(code, EXIT_LEASE_LOST, stderr);
    assert.match(stderr, /another has it; the command is stopped/);
    assert.ok(performance.now() - grantedMs < 0.9 * TTL_MS, 'Not only when its lease would have ended');
  });

  for (const [what, kind, held, token] of [
    ['released by another process', 'released', false, TOKEN],
    ['taken over', 'acquired', true, TOKEN + 1],
  ] as const) {
    test(`a lease that is ${what}: its command is stopped without waiting for the next refresh`, async () => {
      const running = acquire('echo > $FOLDER/ready; while :; do sleep 0.02; done');
      await ready();
      await until('it is watched', async () => watches.length > 0);
      tell('state', false, TOKEN - 1);
      tell('state', true, TOKEN - 2);
      tell('refreshed', true, TOKEN);
      tell(kind, held, token);
      const { code, stderr } = await running;
      assert.equal(code, EXIT_LEASE_LOST, stderr);
      assert.match(stderr, /the command is stopped/);
      assert.ok(!seen.includes('PATCH'), 'It was lost before the first refresh');
    });
  }

  test("a supervisor that is killed before it could report its command's process: the lease is not released", async () => {
    // The supervisor's process ends right after the command was started.
    const hook = `
      import child from 'node:child_process';
      import { syncBuiltinESMExports } from 'node:module';
      if (/supervisor.[jt]s$/.test(process.argv[1])) {
        const { spawn } = child;
        child.spawn = (...all) => { spawn(...all); process.kill(process.pid, 'SIGKILL'); for (;;); };
        syncBuiltinESMExports();
      }`;
    const { code, stderr } = await acquire('echo $$ > $FOLDER/pid; exec sleep 1000 > $FOLDER/out 2>&1', {
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hook)}`,
    });
    const file = join(folder, 'pid');
    await until(
      'the command runs',
      async () => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'),
    );
    process.kill(Number(readFileSync(file, 'utf8')), 'SIGKILL');
    assert.equal(code, EXIT_FAILED, stderr);
    assert.match(stderr, /the command may still run/);
    assert.ok(!seen.includes('DELETE'), 'Others wait for its end');
  });
});
