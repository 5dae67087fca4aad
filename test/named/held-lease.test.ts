import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { leaseRemainingMs } from '../../client/lease/lease-clock.ts';
import { NamedLeaseClient } from '../../client/lease/named-lease-client.ts';
import { streamEventText } from '../../wire/sse.ts';
import { systemWorld } from '../../world/system-world.ts';
import { patientWorld } from '../patient-world.ts';

const { sleep: delay } = patientWorld;
const TTL_MS = 1_000;
const NAME = 'a/b';

interface Seen {
  readonly server: number;
  readonly method: string;
  readonly path: string;
  readonly session: number;
}

type Answering = (seen: Seen, response: ServerResponse, request: IncomingMessage) => void;

function grant(seen: Seen, response: ServerResponse, token = 9): void {
  const { session } = seen;
  const lease = { name: NAME, owner: 'me', session, token, ttlMs: TTL_MS, remainingMs: TTL_MS, keys: {} };
  response.writeHead(seen.method === 'POST' ? 201 : 200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(lease));
}

function problem(response: ServerResponse, status: number, code: string, more: object = {}): void {
  response.writeHead(status, { 'content-type': 'application/problem+json' });
  response.end(JSON.stringify({ code, detail: `said to be ${code}`, ...more }));
}

describe('a lease held by a client', () => {
  let servers: Server[];
  let client: NamedLeaseClient;
  let seen: Seen[];
  let answer: Answering;

  beforeEach(async () => {
    seen = [];
    answer = (one, response) => {
      if (one.method === 'DELETE') response.writeHead(204).end();
      else grant(one, response);
    };
    servers = [0, 1].map((server) =>
      createServer((request, response) => {
        const session = Number(request.headers['leasehold-session']);
        const one = { server, method: request.method ?? '', path: request.url ?? '', session };
        seen.push(one);
        request.resume();
        answer(one, response, request);
      }).listen(0, '127.0.0.1'),
    );
    await Promise.all(servers.map((server) => once(server, 'listening')));
    client = clientOf(patientWorld);
  });

  afterEach(async () => {
    await client.close();
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  });

  const clientOf = (world: World): NamedLeaseClient => {
    const urls = servers.map((server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    return new NamedLeaseClient({ world, servers: urls, operationTimeoutMs: 5_000 });
  };

  const acquire = () => client.acquire(NAME, { ttlMs: TTL_MS, owner: 'me' });

  test('counts from before its request was sent', async () => {
    const slowMs = 300;
    answer = (one, response) => void delay(slowMs).then(() => grant(one, response));
    const held = await acquire();
    assert.ok(
      leaseRemainingMs(patientWorld, held.end) <= TTL_MS - slowMs + 5,
      `${leaseRemainingMs(patientWorld, held.end)} ms are left`,
    );
    assert.ok(
      held.remainingMs <= leaseRemainingMs(patientWorld, held.end) - TTL_MS / 10 + 5,
      'And counts as lost earlier',
    );
    answer = (_one, response) => response.writeHead(204).end();
    await held.release();
  });

  test('is refreshed at another server if one does not answer, and outlives its first end', async () => {
    const held = await acquire();
    const first = held.end;
    answer = (one, response) => {
      // The first server accepts the request and does not answer.
      if (one.server === 1) grant(one, response);
    };
    const lost = once(held.lost, 'abort');
    while (leaseRemainingMs(patientWorld, first) > 0 && !held.lost.aborted) {
      await Promise.race([new Promise<void>((resolve) => held.onRefreshed(() => resolve())), lost]);
    }
    assert.ok(held.isHeld && !held.lost.aborted);
    const refreshes = seen.filter(({ method }) => method === 'PATCH');
    assert.ok(refreshes.every(({ session }) => session === held.session));
    answer = (_one, response) => response.writeHead(204).end();
    await held.release();
    assert.deepEqual(seen.at(-1)?.path, '/v1/leases/a%2Fb');
    assert.ok(!held.lost.aborted && !held.isHeld, 'A released lease is not lost');
  });

  test('is lost before its end if no refresh succeeds', async () => {
    const held = await acquire();
    const { end } = held;
    answer = (_one, response) => problem(response, 503, 'unknown');
    await once(held.lost, 'abort');
    assert.equal(held.remainingMs, 0);
    assert.ok(leaseRemainingMs(patientWorld, end) <= TTL_MS / 10 + 5, 'Not before the margin');
    assert.throws(
      () => held.assertHeld(),
      (error) => error instanceof ServiceError && error.code === 'lease-lost',
    );
    assert.ok(
      seen.some(({ method, server }) => method === 'PATCH' && server === 1),
      'Both were asked',
    );
    assert.ok(
      seen.some(({ method, server }) => method === 'PATCH' && server === 0),
      'Both were asked',
    );
  });

  test('is lost at once when a server says so', async () => {
    const held = await acquire();
    answer = (_one, response) => problem(response, 409, 'lease-lost');
    await once(held.lost, 'abort');
    assert.ok(leaseRemainingMs(patientWorld, held.end) > TTL_MS / 10, 'Long before its end');
    assert.match((held.lost.reason as Error).message, /said to be lease-lost/);
    await assert.rejects(
      held.refresh(),
      (error) => error instanceof ServiceError && error.code === 'lease-lost',
    );
  });

  test('is lost when a refresh returns another token: the hold with the old token had ended', async () => {
    const held = await acquire();
    answer = (one, response) => {
      if (one.method === 'DELETE') response.writeHead(204).end();
      else grant(one, response, 10);
    };
    await assert.rejects(
      held.refresh(),
      (error) => error instanceof ServiceError && error.code === 'lease-lost',
    );
    assert.ok(held.lost.aborted && !held.isHeld);
    assert.match((held.lost.reason as Error).message, /token 9\) is lost: .* token 10/);
    assert.equal(held.token, 9);
    await held.release();
    assert.equal(seen.at(-1)?.method, 'DELETE', "The session's present lease is released");
  });

  test('a suspended process learns that its lease has ended before any timer has run', async () => {
    await client.close();
    client = clientOf(systemWorld);
    const held = await acquire();
    const patches = seen.length;
    // No code of this process runs meanwhile, as if it had been stopped.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TTL_MS + 100);
    assert.equal(held.isHeld, false);
    assert.equal(held.lost.aborted, false, 'The timer runs later');
    assert.throws(() => held.assertHeld(), /it has expired by the clock/);
    await once(held.lost, 'abort');
    assert.equal(seen.length, patches, 'It is not refreshed after its end');
  });

  test('an acquisition whose answer was lost is repeated for the same session', async () => {
    answer = (one, response, request) => {
      if (seen.length === 1) request.socket.destroy();
      else if (one.method === 'DELETE') response.writeHead(204).end();
      else grant(one, response);
    };
    const held = await acquire();
    const posts = seen.filter(({ method }) => method === 'POST');
    assert.deepEqual(
      posts.map(({ server, session }) => [server, session]),
      [
        [0, held.session],
        [1, held.session],
      ],
    );
    await held.release();
  });

  test('a held lease is waited for: an event of a watch suffices', async () => {
    let free = false;
    const holder = { owner: 'other', token: 4, remainingMs: 60_000 };
    const state = { name: NAME, held: true, owner: 'other', token: 4, keys: {}, remainingMs: 60_000 };
    answer = (one, response) => {
      if (one.path.endsWith('/watch')) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(streamEventText('state', JSON.stringify(state)));
        const gone = { ...state, held: false, owner: null, remainingMs: 0 };
        free = true;
        response.write(streamEventText('released', JSON.stringify(gone)));
      } else if (one.method === 'DELETE') response.writeHead(204).end();
      else if (free) grant(one, response);
      else problem(response, 409, 'lease-taken', { holder });
    };
    const told: string[] = [];
    const held = await client.acquire(NAME, {
      ttlMs: TTL_MS,
      owner: 'me',
      onTaken: ({ owner }) => told.push(owner),
    });
    assert.deepEqual(told, ['other']);
    await held.release();
  });

  test('however many holders are waited for, one listener waits for the abort', async (t) => {
    const waits: AbortSignal[] = [];
    const combine = AbortSignal.any.bind(AbortSignal);
    t.mock.method(AbortSignal, 'any', (signals: AbortSignal[]) => {
      const made = combine(signals);
      waits.push(made);
      return made;
    });
    const rounds = 8;
    let token = 0;
    answer = (one, response) => {
      if (one.path.endsWith('/watch')) problem(response, 503, 'busy');
      else if (one.method === 'DELETE') response.writeHead(204).end();
      else if (++token > rounds) grant(one, response, token);
      else problem(response, 409, 'lease-taken', { holder: { owner: 'other', token, remainingMs: 1 } });
    };
    const controller = new AbortController();
    const counts: number[] = [];
    const held = await client.acquire(NAME, {
      ttlMs: TTL_MS,
      owner: 'me',
      signal: controller.signal,
      onTaken: () => counts.push(getEventListeners(waits[0] as AbortSignal, 'abort').length),
    });
    assert.equal(counts.length, rounds);
    assert.ok(Math.max(...counts) <= 2, `Listeners at each holder: ${counts.join(' ')}`);
    await held.release();
  });

  test('a client that aborts its wait releases what may have been granted meanwhile', async () => {
    const holder = { owner: 'other', token: 4, remainingMs: 60_000 };
    const controller = new AbortController();
    answer = (one, response) => {
      if (one.method === 'DELETE') response.writeHead(204).end();
      else problem(response, 409, 'lease-taken', { holder });
    };
    const waiting = client.acquire(NAME, {
      ttlMs: TTL_MS,
      owner: 'me',
      signal: controller.signal,
      onTaken: () => controller.abort(new Error('enough')),
    });
    await assert.rejects(waiting, /enough/);
    const [posted, last] = [seen.find(({ method }) => method === 'POST'), seen.at(-1)];
    assert.deepEqual([last?.method, last?.session], ['DELETE', posted?.session]);
  });
});
