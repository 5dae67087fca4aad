import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type FastifyInstance, fastify } from 'fastify';
import { pino } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { leaseRoutes } from '../../server/http/lease-routes.ts';
import { handleError, installErrorHandlers } from '../../server/http/problems.ts';
import { NamedLeases } from '../../server/named/named-leases.ts';
import { Clock } from '../../server/process/clock.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';
import { type Answer, ask, problemIn } from './ask.ts';

const LEASE_MS = 1_000;
const SKEW_MS = 20;

/** A cluster of one server, with `/v1/leases` and nothing else. */
class LeaseServer {
  readonly fatal: unknown[] = [];
  readonly named: NamedLeases;
  readonly app: FastifyInstance;
  url = '';
  readonly #closers: (() => void)[] = [];

  private constructor(leaseMs: number) {
    const self = 's1' as ServerId;
    const log = pino({ level: 'silent' });
    const clock = new Clock(patientWorld);
    const wakes = new WakeQueue(patientWorld, clock);
    const handlers = {
      message: () => undefined,
      connected: () => undefined,
      disconnected: () => undefined,
      call: async () => new Uint8Array(),
    };
    const transport: MemoryTransport = new MemoryNetwork(patientWorld).join({ server: self, log, handlers });
    this.named = new NamedLeases({
      world: patientWorld,
      self,
      founders: [self],
      urls: new Map([[self, 'http://127.0.0.1:1']]),
      peers: [],
      voters: { voters: 'first', setVoters: () => undefined },
      leaseMs,
      clockSkewMaxMs: SKEW_MS,
      operationTimeoutMs: 3_000,
      clock,
      wakes,
      log,
      drawIncarnation: () => 77 as Incarnation,
      transport: () => transport,
      isConnected: () => true,
      stream: () => Promise.reject(new Error('There is no other server')),
      fatal: (error) => this.fatal.push(error),
    });
    this.app = fastify({
      routerOptions: { maxParamLength: 1024 },
      frameworkErrors: (error, request, reply) => handleError(patientWorld, error, request, reply),
    });
    installErrorHandlers(this.app, patientWorld);
    leaseRoutes(this.app, this.named, patientWorld);
    this.#closers.push(
      () => this.named.close(),
      () => wakes.close(),
      () => void transport.close(),
    );
  }

  /** @param leaseMs also determines the recovery wait */
  static async start(leaseMs = LEASE_MS): Promise<LeaseServer> {
    const server = new LeaseServer(leaseMs);
    await server.app.listen({ host: '127.0.0.1', port: 0 });
    server.url = `http://127.0.0.1:${(server.app.server.address() as AddressInfo).port}`;
    return server;
  }

  async ready(): Promise<void> {
    while (this.named.driver.recoveringMs() > 0) await delay(10);
  }

  async close(): Promise<void> {
    for (const close of this.#closers) close();
    this.app.server.closeAllConnections();
    await this.app.close();
  }

  /** Resolves with the head of a watch. */
  async watch(name: string): Promise<IncomingMessage> {
    const request = get(`${this.url}/v1/leases/${name}/watch`, { agent: false });
    const [response] = await once(request, 'response');
    return response as IncomingMessage;
  }

  send(method: string, path: string, body?: string, session?: string): Promise<Answer> {
    return ask(this.url, method, `/v1/leases/${path}`, {
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(session === undefined ? {} : { 'leasehold-session': session }),
      },
      ...(body === undefined ? {} : { body }),
    });
  }
}

/** Longer than three requests take on any machine. */
const RECOVERS_LONG_MS = 10 * 60_000;

describe('watches of a server that is alone', () => {
  test('while it recovers a watch is refused with a time for its retry, and does not count', async () => {
    const server = await LeaseServer.start(RECOVERS_LONG_MS);
    try {
      for (let round = 0; round < 3; round++) {
        const answer = await server.send('GET', 'n/watch');
        assert.equal(answer.status, 503, answer.text);
        assert.equal(problemIn(answer).code, 'recovering');
        assert.ok(Number(answer.headers['retry-after']) >= 1);
      }
      assert.equal(server.named.watches.count, 0);
    } finally {
      await server.close();
    }
  });

  test('after it has recovered a watch begins, and counts until it ends', async () => {
    const server = await LeaseServer.start();
    try {
      await server.ready();
      const watch = await server.watch('n');
      assert.equal(watch.statusCode, 200);
      assert.match(String((await once(watch.setEncoding('utf8'), 'data'))[0]), /^:/);
      assert.equal(server.named.watches.count, 1);
      watch.destroy();
      while (server.named.watches.count > 0) await delay(5);
    } finally {
      await server.close();
    }
  });

  test('a server that ends, ends its watches', async () => {
    const server = await LeaseServer.start();
    await server.ready();
    const watch = await server.watch('n');
    const ended = once(watch.resume(), 'end');
    server.named.watches.close();
    await ended;
    while (server.named.watches.count > 0) await delay(5);
    await server.close();
  });
});

describe('invalid requests', () => {
  let server: LeaseServer;
  before(async () => {
    server = await LeaseServer.start();
    await server.ready();
  });
  after(() => server.close());

  /** Checks that it is refused with a reason, and changes nothing. */
  async function refused(
    [method, path, body, session]: readonly [string, string, (string | undefined)?, string?],
    status: number,
    reason: RegExp,
  ): Promise<void> {
    const answer = await server.send(method, path, body, session);
    const what = `${method} ${path} ${body?.slice(0, 80)} ${session}: ${answer.text}`;
    assert.equal(answer.status, status, what);
    assert.match(problemIn(answer).detail, reason, what);
    assert.deepEqual(server.fatal, []);
    assert.equal(server.named.driver.claimCount, 0, what);
  }

  test('bodies', async () => {
    const bodies: [string, RegExp][] = [
      ['{"owner":"x","ttlMs":1e400}', /malformed|ttlMs/],
      ['{"owner":"x","ttlMs":-1}', /malformed at \/ttlMs/],
      ['{"owner":"x","ttlMs":0}', /malformed at \/ttlMs/],
      ['{"owner":"x","ttlMs":1e300}', /"ttlMs" must be between 80 .* and 1000 \(--named-lease-max\)/],
      ['{"owner":"x","ttlMs":5e-324}', /"ttlMs" must be between/],
      ['{"owner":"x","ttlMs":"500"}', /malformed at \/ttlMs/],
      ['{"owner":"x","ttlMs":null}', /malformed at \/ttlMs/],
      ['{"owner":"x","ttlMs":[500]}', /malformed at \/ttlMs/],
      ['{"owner":7,"ttlMs":500}', /malformed at \/owner/],
      ['{"owner":"a\\u0000b","ttlMs":500}', /Invalid "owner"/],
      ['{"owner":"a\\nb","ttlMs":500}', /Invalid "owner"/],
      [`{"owner":"${'x'.repeat(256)}","ttlMs":500}`, /Invalid "owner"/],
      ['{"owner":"x","ttlMs":500,"keys":[]}', /malformed at \/keys/],
      ['{"owner":"x","ttlMs":500,"keys":{"a":1}}', /malformed at \/keys/],
      ['{"owner":"x","ttlMs":500,"keys":{"":"v"}}', /a key has/],
      ['{"owner":"x","ttlMs":500,"keys":{"__proto__":"v"}}', /./],
      ['{"owner":"x","ttlMs":500,"__proto__":{}}', /./],
      ['{"owner":"x","ttlMs":500,"session":1}', /malformed/],
      ['null', /malformed/],
      ['[]', /malformed/],
      ['7', /malformed/],
      ['{', /./],
      ['', /./],
      ['['.repeat(100_000), /./],
    ];
    for (const [body, reason] of bodies) await refused(['POST', 'n', body], 400, reason);
    for (const body of ['{"ttlMs":-1}', '{"ttlMs":1e400}', '{"keys":null}', '{"owner":"x"}', 'null', '[]'])
      await refused(['PATCH', 'n', body, '7'], 400, /malformed/);
    await refused(['PATCH', 'n', '{"ttlMs":1e9}', '7'], 400, /and 1000 \(--named-lease-max\)/);
    for (const body of ['{}', '{"value":1}', '{"value":"v","more":1}', 'null'])
      await refused(['PUT', 'n/keys/k', body, '7'], 400, /malformed/);
    await refused(['POST', 'n'], 400, /malformed/);
  });

  test('sessions', async () => {
    const good = '{"owner":"x","ttlMs":500}';
    for (const session of [
      '',
      '0',
      '-1',
      '1.5',
      '1e3',
      '0x10',
      'x',
      '7 8',
      '7, 8',
      '9007199254740992',
      '٣',
      '01',
    ]) {
      const header = Buffer.from(session).toString('latin1');
      await refused(['POST', 'n', good, header], 400, /"Leasehold-Session" must be an integer from 1 to/);
      await refused(['PATCH', 'n', '{}', header], 400, /"Leasehold-Session" must be an integer from 1 to/);
      await refused(
        ['DELETE', 'n', undefined, header],
        400,
        /"Leasehold-Session" must be an integer from 1 to/,
      );
    }
    for (const [method, path, body] of [
      ['PATCH', 'n', '{}'],
      ['DELETE', 'n', undefined],
      ['PUT', 'n/keys/k', '{"value":"v"}'],
      ['DELETE', 'n/keys/k', undefined],
    ] as const)
      await refused([method, path, body], 400, /The header Leasehold-Session is missing/);
  });

  test('names and keys', async () => {
    const good = '{"owner":"x","ttlMs":500}';
    const names = [
      '%00',
      'a%00',
      'a%0Ab',
      'a%7F',
      '%2Fa',
      '.',
      'a%20b',
      'a%25b',
      '%C3%A4',
      'a'.repeat(256),
      '%EF%BF%BD',
    ];
    for (const name of [...names, encodeURIComponent('/'.repeat(256)), 'a'.repeat(1_000)]) {
      await refused(['POST', name, good], 400, /a name has 1 to 255/);
      await refused(['PATCH', name, '{}', '7'], 400, /a name has 1 to 255/);
      await refused(['DELETE', name, undefined, '7'], 400, /a name has 1 to 255/);
      await refused(['GET', name], 400, /a name has 1 to 255/);
      await refused(['GET', `${name}?consistency=stale`], 400, /a name has 1 to 255/);
      await refused(['GET', `${name}/watch`], 400, /a name has 1 to 255/);
      await refused(['PUT', `${name}/keys/k`, '{"value":"v"}', '7'], 400, /a name has 1 to 255/);
    }
    for (const name of ['%', '%zz', 'a%E4', 'a%2', 'a'.repeat(5_000)]) {
      await refused(['POST', name, good], 400, /./);
      await refused(['GET', `${name}/watch`], 400, /./);
    }
    for (const key of ['%00', 'a%0Ab', 'k'.repeat(65), '__proto__', '%2F'])
      await refused(['PUT', `n/keys/${key}`, '{"value":"v"}', '7'], 400, /a key has 1 to 64/);
    assert.equal(server.named.watches.count, 0);
  });

  test('a length with a fraction, the longest name and the largest session are served', async () => {
    const name = 'x'.repeat(255);
    const answer = await server.send('POST', name, '{"owner":"x","ttlMs":500.25}', '9007199254740991');
    assert.equal(answer.status, 201, answer.text);
    assert.equal((await server.send('DELETE', name, undefined, '9007199254740991')).status, 204);
    assert.deepEqual(server.fatal, []);
  });
});
