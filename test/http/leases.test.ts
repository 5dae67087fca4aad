import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type FastifyInstance, fastify } from 'fastify';
import { pino } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Clock } from '../../server/clock.ts';
import { leaseRoutes } from '../../server/http/lease-routes.ts';
import { handleError, installProblems } from '../../server/http/problems.ts';
import { NamedLeases } from '../../server/named/named-leases.ts';
import { MemoryNetwork, type MemoryTransport } from '../../server/transport/memory-transport.ts';
import { WakeQueue } from '../../server/wake-queue.ts';
import { type Answer, ask, problemIn } from './ask.ts';

const LEASE_MS = 1_000;
const SKEW_MS = 20;

/** One server that is all of its cluster, with `/v1/leases` and nothing else. */
class LeaseServer {
  readonly fatal: unknown[] = [];
  readonly named: NamedLeases;
  readonly app: FastifyInstance;
  url = '';
  readonly #closers: (() => void)[] = [];

  private constructor() {
    const self = 's1' as ServerId;
    const log = pino({ level: 'silent' });
    const clock = new Clock();
    const wakes = new WakeQueue(clock);
    const handlers = {
      message: () => undefined,
      connected: () => undefined,
      disconnected: () => undefined,
      call: async () => new Uint8Array(),
    };
    const transport: MemoryTransport = new MemoryNetwork().join({ server: self, log, handlers });
    this.named = new NamedLeases({
      self,
      urls: new Map([[self, 'http://127.0.0.1:1']]),
      leaseMs: LEASE_MS,
      clockSkewMaxMs: SKEW_MS,
      operationTimeoutMs: 3_000,
      clock,
      wakes,
      log,
      drawIncarnation: () => 77 as Incarnation,
      transport: () => transport,
      isConnected: () => true,
      fatal: (error) => this.fatal.push(error),
    });
    this.app = fastify({ routerOptions: { maxParamLength: 1024 }, frameworkErrors: handleError });
    installProblems(this.app);
    leaseRoutes(this.app, this.named);
    this.#closers.push(
      () => this.named.close(),
      () => wakes.close(),
      () => void transport.close(),
    );
  }

  static async start(): Promise<LeaseServer> {
    const server = new LeaseServer();
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

describe('watches of a server that is alone', () => {
  test('while it recovers a watch is told when to come again, and counts for nothing', async () => {
    const server = await LeaseServer.start();
    try {
      for (let round = 0; round < 3; round++) {
        const answer = await server.send('GET', 'n/watch');
        assert.equal(answer.status, 503, answer.text);
        assert.equal(problemIn(answer).code, 'recovering');
        assert.ok(Number(answer.headers['retry-after']) >= 1);
      }
      assert.equal(server.named.watches.count, 0);
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
