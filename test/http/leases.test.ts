import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { type FastifyInstance, fastify } from 'fastify';
import { pino } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { leaseRoutes } from '../../server/http/lease-routes.ts';
import { openApiDocument } from '../../server/http/openapi/document.ts';
import { LEASE_OPERATIONS } from '../../server/http/openapi/lease-operations.ts';
import { collectRoutes } from '../../server/http/openapi-routes.ts';
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

interface Described {
  readonly responses: Readonly<
    Record<
      string,
      {
        readonly headers?: Readonly<Record<string, object>>;
        readonly content?: Readonly<Record<string, { readonly schema: object }>>;
      }
    >
  >;
  readonly parameters: readonly { readonly name: string; readonly in: string; readonly required?: boolean }[];
}

describe('the description of named leases in OpenAPI', () => {
  const routes = Object.keys(LEASE_OPERATIONS).map((route) => {
    const [method = '', url = ''] = route.split(' ');
    return { method, url, role: 'write' as const };
  });
  const document = openApiDocument(routes, '0') as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
    readonly components: object;
  };
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  let server: LeaseServer;

  before(async () => {
    server = await LeaseServer.start();
    await server.ready();
  });
  after(() => server.close());

  /** A schema with what it refers to. */
  const isValid = (schema: object, value: unknown): void => {
    const validate = ajv.compile({ ...schema, components: document.components });
    assert.ok(validate(value), `${JSON.stringify(value)}: ${JSON.stringify(validate.errors)}`);
  };

  /** @returns what is described for this answer, which fits it */
  function described(method: string, path: string, answer: Answer): void {
    const operation = document.paths[`/v1/leases${path}`]?.[method.toLowerCase()];
    const response = operation?.responses[answer.status];
    assert.ok(response !== undefined, `${method} ${path}: no answer ${answer.status}: ${answer.text}`);
    for (const name of Object.keys(response.headers ?? {}))
      assert.match(String(answer.headers[name.toLowerCase()]), /^\d+$/, `${method} ${path}: ${name}`);
    const [type = '', { schema = {} } = {}] = Object.entries(response.content ?? {})[0] ?? [];
    assert.ok(String(answer.headers['content-type'] ?? '').startsWith(type), answer.text);
    if (type !== '') isValid(schema, JSON.parse(answer.text));
  }

  test('has every route, with what each request needs', async () => {
    const app = fastify();
    const collected = collectRoutes(app);
    leaseRoutes(app, server.named, patientWorld);
    await app.close();
    const known = collected
      .filter(({ method }) => method !== 'HEAD')
      .map(({ method, url }) => `${method} ${url}`);
    assert.deepEqual(known.toSorted(), Object.keys(LEASE_OPERATIONS).toSorted());
    for (const methods of Object.values(document.paths)) {
      for (const [method, { parameters }] of Object.entries(methods)) {
        const session = parameters.find(({ name }) => name === 'Leasehold-Session');
        // An acquisition may leave it to the server.
        assert.equal(
          session?.required,
          ['patch', 'put', 'delete'].includes(method) ? true : undefined,
          method,
        );
      }
    }
  });

  test('fits what a server answers, errors included', async () => {
    const good = '{"owner":"x","ttlMs":1000,"keys":{"a":"1"}}';
    const large = JSON.stringify({ owner: 'x', ttlMs: 1000, keys: { a: 'x'.repeat(2_000) } });
    const change = (number: number) => ({ 'leasehold-session': '7', 'leasehold-change': `${number}` });
    const put = (number: number) =>
      ask(server.url, 'PUT', '/v1/leases/n/keys/k', {
        headers: { ...change(number), 'content-type': 'application/json' },
        body: '{"value":"v"}',
      });
    const steps: [string, string, () => Promise<Answer>, number][] = [
      ['GET', '/{name}', () => server.send('GET', 'n'), 200],
      ['POST', '/{name}', () => server.send('POST', 'n', good, '7'), 201],
      ['POST', '/{name}', () => server.send('POST', 'n', good, '8'), 409],
      ['POST', '/{name}', () => server.send('POST', 'n', large, '8'), 413],
      ['POST', '/{name}', () => server.send('POST', 'n', '{}', '8'), 400],
      ['PATCH', '/{name}', () => server.send('PATCH', 'n', '{"keys":{}}', '7'), 200],
      ['PATCH', '/{name}', () => server.send('PATCH', 'n', '{}', '8'), 409],
      ['PUT', '/{name}/keys/{key}', () => put(5), 200],
      ['PUT', '/{name}/keys/{key}', () => put(4), 412],
      ['GET', '/{name}', () => server.send('GET', 'n'), 200],
      ['GET', '/{name}', () => server.send('GET', 'n?consistency=stale'), 200],
      ['GET', '/{name}/keys/{key}', () => server.send('GET', 'n/keys/k'), 200],
      ['GET', '/{name}/keys/{key}', () => server.send('GET', 'n/keys/none'), 404],
      ['DELETE', '/{name}/keys/{key}', () => server.send('DELETE', 'n/keys/k', undefined, '7'), 200],
      ['GET', '', () => ask(server.url, 'GET', '/v1/leases'), 200],
      ['DELETE', '/{name}', () => server.send('DELETE', 'n', undefined, '8'), 409],
      ['DELETE', '/{name}', () => server.send('DELETE', 'n', undefined, '7'), 204],
    ];
    for (const [method, path, step, status] of steps) {
      const answer = await step();
      assert.equal(answer.status, status, answer.text);
      described(method, path, answer);
    }
  });

  test('fits an event of a watch, and the refusal of a server that recovers', async () => {
    const watch = await server.watch('n');
    watch.setEncoding('utf8');
    let text = '';
    for await (const part of watch) {
      text += part;
      if (/^data: .*\n/m.test(text)) break;
    }
    assert.match(text, /^event: state$/m);
    const stream =
      document.paths['/v1/leases/{name}/watch']?.get?.responses[200]?.content?.['text/event-stream'];
    isValid(stream?.schema ?? { not: {} }, JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? ''));
    const recovering = await LeaseServer.start(RECOVERS_LONG_MS);
    try {
      described('GET', '/{name}/watch', await recovering.send('GET', 'n/watch'));
      described('POST', '/{name}', await recovering.send('POST', 'n', '{"owner":"x","ttlMs":500}'));
    } finally {
      await recovering.close();
    }
  });
});
