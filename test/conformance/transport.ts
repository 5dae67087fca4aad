import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import {
  CHANNEL_LEASE,
  CHANNEL_REPLICA,
  type Transport,
  type TransportHandlers,
  type TransportLimits,
} from '../../server/transport/transport.ts';
import { MalformedError } from '../../wire/bytes.ts';

/** A cluster of servers whose transport is under test. */
export interface TransportCluster {
  /** Starts a server, or starts it again without closing the one before, as after `kill -9`. */
  start(server: ServerId, handlers: TransportHandlers, limits?: Partial<TransportLimits>): Promise<Transport>;
  /** Closes all transports. */
  stop(): Promise<void>;
}

const A = 's1' as ServerId;
const B = 's2' as ServerId;
const C = 's3' as ServerId;
const ABSENT = 's9' as ServerId;

interface Heard {
  readonly from: ServerId;
  readonly channel: number;
  readonly payload: Uint8Array;
  readonly tail: Uint8Array | undefined;
}

/** Handlers that record messages and changes, and notify waiting callers. */
export class Recorder implements TransportHandlers {
  readonly heard: Heard[] = [];
  readonly changes: string[] = [];
  serve: TransportHandlers['call'] = (_from, method, payload) =>
    Promise.resolve(Buffer.concat([Buffer.from(`${method}:`), payload]));
  onMessage: (heard: Heard) => void = () => undefined;
  readonly #listeners = new Set<() => void>();

  message(from: ServerId, channel: number, payload: Uint8Array, tail?: Uint8Array): void {
    const heard = { from, channel, payload, tail };
    this.heard.push(heard);
    this.onMessage(heard);
    this.#tell();
  }

  connected(peer: ServerId): void {
    this.changes.push(`+${peer}`);
    this.#tell();
  }

  disconnected(peer: ServerId): void {
    this.changes.push(`-${peer}`);
    this.#tell();
  }

  call(from: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array> {
    return this.serve(from, method, payload);
  }

  /** Resolves once recorded messages or changes make `condition` true. */
  async until(condition: () => boolean, claim: string, timeoutMs = 5_000): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      if (condition()) resolve();
    };
    this.#listeners.add(check);
    const timer = setTimeout(
      () =>
        reject(
          new Error(`${claim}: not within ${timeoutMs} ms; heard ${this.heard.length}, ${this.changes}`),
        ),
      timeoutMs,
    );
    check();
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#listeners.delete(check);
    }
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

async function pair(
  cluster: TransportCluster,
  limits?: Partial<TransportLimits>,
): Promise<{ a: Transport; b: Transport; heardA: Recorder; heardB: Recorder }> {
  const heardA = new Recorder();
  const heardB = new Recorder();
  const a = await cluster.start(A, heardA, limits);
  const b = await cluster.start(B, heardB, limits);
  await heardA.until(() => a.isConnected(B), 's1 reaches s2');
  await heardB.until(() => b.isConnected(A), 's2 reaches s1');
  return { a, b, heardA, heardB };
}

function numbered(index: number, size: number): Uint8Array {
  const payload = new Uint8Array(size).fill(index & 0xff);
  new DataView(payload.buffer).setUint32(0, index);
  return payload;
}

function hasCode(code: string): (error: unknown) => boolean {
  return (error) => error instanceof ServiceError && error.code === code;
}

/** Tests that each transport must pass. */
export function transportConformance(name: string, create: () => TransportCluster): void {
  const suite = (title: string, body: (cluster: TransportCluster) => Promise<void>): void => {
    test(`${name}: ${title}`, { timeout: 30_000 }, async () => {
      const cluster = create();
      try {
        await body(cluster);
      } finally {
        await cluster.stop();
      }
    });
  };

  suite('three servers reach each other', async (cluster) => {
    const recorders = new Map([A, B, C].map((id) => [id, new Recorder()]));
    const transports = new Map<ServerId, Transport>();
    for (const [id, recorder] of recorders) transports.set(id, await cluster.start(id, recorder));
    for (const [id, recorder] of recorders) {
      await recorder.until(() => recorder.changes.length === 2, `${id} reaches both others`);
      assert.deepEqual(
        recorder.changes.toSorted(),
        [A, B, C].filter((other) => other !== id).map((other) => `+${other}`),
      );
      assert.equal(transports.get(id)?.isConnected(id), false);
      assert.equal(transports.get(id)?.isConnected(ABSENT), false);
    }
  });

  suite('messages arrive once, in order, whole, whatever their size', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    const sizes = [4, 100, 31 * 1024, 32 * 1024, 4, 1 << 20, 65_536, 4, 70_000, 4, 8 << 20, 4];
    for (let index = 0; index < 600; index++) {
      const size = index < sizes.length ? sizes[index] : 4 + ((index * 37) % 3_000);
      a.send(B, index % 2 === 0 ? CHANNEL_LEASE : CHANNEL_REPLICA, numbered(index, size ?? 4));
      if (index % 50 === 49) await nextTurn();
    }
    a.send(B, CHANNEL_LEASE, new Uint8Array(0));
    await heardB.until(() => heardB.heard.length === 601, 'all messages arrive');
    for (let index = 0; index < 600; index++) {
      const heard = heardB.heard[index] as Heard;
      const size = index < sizes.length ? sizes[index] : 4 + ((index * 37) % 3_000);
      assert.equal(heard.from, A);
      assert.equal(heard.channel, index % 2 === 0 ? CHANNEL_LEASE : CHANNEL_REPLICA);
      assert.ok(
        Buffer.from(numbered(index, size ?? 4)).equals(heard.payload),
        `Message ${index} arrives unchanged`,
      );
      assert.ok(!Buffer.isBuffer(heard.payload), 'A payload is a plain view, whose slice copies');
    }
    assert.equal(heardB.heard[600]?.payload.length, 0);
    const stats = a.stats();
    assert.equal(stats.messagesSent, 601);
    assert.equal(stats.messagesDropped, 0);
  });

  suite('deferrable messages arrive as well, in order with the others', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    for (let number = 0; number < 6; number++) {
      a.send(B, CHANNEL_REPLICA, numbered(number, 8), { deferrable: number % 2 === 0 });
    }
    // A large one is sent at once, with those that waited before it.
    a.send(B, CHANNEL_REPLICA, numbered(6, 8), { deferrable: true });
    a.send(B, CHANNEL_REPLICA, numbered(7, 8), { tail: numbered(7, 32 * 1024), deferrable: true });
    await heardB.until(() => heardB.heard.length === 8, 'all arrive');
    a.send(B, CHANNEL_REPLICA, numbered(8, 8), { deferrable: true });
    await heardB.until(() => heardB.heard.length === 9, 'one that meets no other arrives');
    for (const [number, { payload }] of heardB.heard.entries()) {
      assert.ok(Buffer.from(numbered(number, 8)).equals(payload));
    }
  });

  suite('a message in two parts arrives in two parts, in order with the others', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    const tails = [32 * 1024, 1 << 20, 100_003, (8 << 20) - 4];
    for (const [index, size] of tails.entries()) {
      a.send(B, CHANNEL_LEASE, numbered(index, 4));
      a.send(B, CHANNEL_REPLICA, numbered(index, 4), { tail: numbered(100 + index, size) });
    }
    a.send(B, CHANNEL_REPLICA, numbered(0, 5), { tail: numbered(0, (8 << 20) - 4) });
    await heardB.until(() => heardB.heard.length === 2 * tails.length, 'all that fit arrive');
    for (const [index, size] of tails.entries()) {
      const before = heardB.heard[2 * index] as Heard;
      const heard = heardB.heard[2 * index + 1] as Heard;
      assert.ok(before.tail === undefined && before.channel === CHANNEL_LEASE);
      assert.ok(Buffer.from(numbered(index, 4)).equals(heard.payload));
      assert.ok(heard.tail !== undefined && Buffer.from(numbered(100 + index, size)).equals(heard.tail));
      assert.ok(!Buffer.isBuffer(heard.payload) && !Buffer.isBuffer(heard.tail));
    }
    const { bytesSent, messagesDropped } = a.stats();
    assert.equal(bytesSent, 8 * tails.length + tails.reduce((sum, size) => sum + size, 0));
    assert.equal(messagesDropped, 1, 'Both parts together are one message, which may be too large');
  });

  suite('payloads stay valid after later frames', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    for (let index = 0; index < 2_000; index++) {
      a.send(B, CHANNEL_REPLICA, numbered(index, 1_000));
      if (index % 20 === 0) await nextTurn();
    }
    await heardB.until(() => heardB.heard.length === 2_000, 'all messages arrive');
    for (const [index, { payload }] of heardB.heard.entries()) {
      assert.ok(Buffer.from(numbered(index, 1_000)).equals(payload));
    }
  });

  suite('a message to a disconnected or unknown server is dropped and counted', async (cluster) => {
    const { a } = await pair(cluster);
    a.send(C, CHANNEL_LEASE, numbered(1, 10));
    a.send(ABSENT, CHANNEL_LEASE, numbered(1, 10));
    assert.equal(a.stats().messagesDropped, 2);
  });

  suite('a message larger than a frame is dropped, and the connection stays', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    const huge = new Uint8Array((8 << 20) + 1);
    a.send(B, CHANNEL_REPLICA, huge);
    await assert.rejects(a.call(B, 'state', huge, 1_000), hasCode('too-large'));
    a.send(B, CHANNEL_REPLICA, numbered(7, 10));
    await heardB.until(() => heardB.heard.length === 1, 'the small one arrives');
    assert.equal(a.stats().messagesDropped, 2);
    heardB.serve = () => Promise.resolve(huge);
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), hasCode('too-large'));
  });

  suite('a queue at its limit drops messages, and delivers the others in order', async (cluster) => {
    const { a, heardB } = await pair(cluster, { queueBytesMax: 4 << 20 });
    const size = 1 << 20;
    for (let index = 0; index < 64; index++) a.send(B, CHANNEL_REPLICA, numbered(index, size));
    await assert.rejects(a.call(B, 'state', new Uint8Array(size), 1_000), hasCode('busy'));
    const { messagesSent, messagesDropped } = a.stats();
    assert.ok(messagesDropped > 1, 'The queue is full');
    assert.equal(messagesSent + messagesDropped, 65);
    await heardB.until(() => heardB.heard.length === messagesSent, 'what was queued arrives');
    const order = heardB.heard.map(({ payload }) =>
      new DataView(payload.buffer, payload.byteOffset).getUint32(0),
    );
    assert.deepEqual(
      order,
      order.toSorted((x, y) => x - y),
    );
    a.send(B, CHANNEL_REPLICA, numbered(99, 10));
    await heardB.until(() => heardB.heard.length === messagesSent + 1, 'there is room again');
  });

  suite('each call gets its answer, small or large, many at a time', async (cluster) => {
    const { a, b, heardB } = await pair(cluster);
    heardB.serve = async (from, method, payload) => {
      assert.equal(from, A);
      assert.equal(method, 'echo');
      if ((payload[3] ?? 0) % 2 === 0) await nextTurn();
      return payload;
    };
    const calls = Array.from({ length: 200 }, async (_, index) => {
      const payload = numbered(index, index % 10 === 0 ? 100_000 : 20);
      const answer = await a.call(B, 'echo', payload, 10_000);
      assert.ok(Buffer.from(payload).equals(answer));
    });
    await Promise.all(calls);
    assert.equal(a.stats().callsPending, 0);
    const answer = await b.call(A, 'other-method', Buffer.from('x'), 5_000);
    assert.equal(Buffer.from(answer).toString(), 'other-method:x');
  });

  suite('an error arrives with code, message and details', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    heardB.serve = () =>
      Promise.reject(
        new ServiceError('not-primary', 'Cannot read file 7: this server is a backup', {
          primary: 's3',
          unreachable: ['s1', 's2'],
          retryAfterMs: 12.5,
        }),
      );
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), (error) => {
      assert.ok(error instanceof ServiceError);
      assert.equal(error.code, 'not-primary');
      assert.equal(error.message, 'Cannot read file 7: this server is a backup');
      assert.deepEqual(error.details, { primary: 's3', unreachable: ['s1', 's2'], retryAfterMs: 12.5 });
      return true;
    });
    const long = 'ä'.repeat(100_000);
    heardB.serve = () => Promise.reject(new ServiceError('storage', long));
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), (error) => {
      assert.ok(error instanceof ServiceError && error.code === 'storage');
      assert.ok(error.message.length > 100 && long.startsWith(error.message), 'A long message is cut');
      return true;
    });
    heardB.serve = () => Promise.reject(new MalformedError('A number is not finite'));
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), hasCode('bad-request'));
    heardB.serve = () => Promise.reject(new TypeError('secret'));
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), (error) => {
      assert.ok(hasCode('internal')(error));
      assert.ok(
        error instanceof Error && !error.message.includes('secret'),
        'Internal messages are not sent',
      );
      return true;
    });
    heardB.serve = () => {
      throw new ServiceError('busy', 'Thrown, not rejected');
    };
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 5_000), hasCode('busy'));
  });

  suite('a call without an answer fails as unknown in time, and a late answer has no effect', async (cluster) => {
    const { a, heardB } = await pair(cluster);
    const { promise, resolve } = Promise.withResolvers<Uint8Array>();
    heardB.serve = () => promise;
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 50), (error) => {
      assert.ok(error instanceof ServiceError);
      assert.equal(error.code, 'unknown');
      assert.deepEqual(error.details.unreachable, [B]);
      return true;
    });
    resolve(new Uint8Array(5));
    heardB.serve = () => Promise.resolve(new Uint8Array(3));
    assert.equal((await a.call(B, 'state', new Uint8Array(0), 5_000)).length, 3);
  });

  suite('a call to a disconnected server fails at once, and the error names the server', async (cluster) => {
    const { a } = await pair(cluster);
    for (const absent of [C, ABSENT]) {
      await assert.rejects(a.call(absent, 'state', new Uint8Array(0), 60_000), (error) => {
        assert.ok(error instanceof ServiceError);
        assert.equal(error.code, 'no-majority');
        assert.deepEqual(error.details.unreachable, [absent]);
        return true;
      });
    }
  });

  suite('the number of calls is limited on both sides', async (cluster) => {
    const { a, heardB } = await pair(cluster, { callsMax: 4, servingMax: 2 });
    const { promise, resolve } = Promise.withResolvers<Uint8Array>();
    heardB.serve = () => promise;
    const calls = Array.from({ length: 4 }, () => a.call(B, 'state', new Uint8Array(0), 10_000));
    const settled = Promise.allSettled(calls);
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 10_000), hasCode('busy'));
    await Promise.race(calls.map((call) => call.catch(() => undefined)));
    resolve(new Uint8Array(1));
    const outcomes = (await settled).map((outcome) =>
      outcome.status === 'fulfilled' ? 'answered' : (outcome.reason as ServiceError).code,
    );
    assert.deepEqual(outcomes.toSorted(), ['answered', 'answered', 'busy', 'busy']);
    assert.equal((await a.call(B, 'state', new Uint8Array(0), 5_000)).length, 1);
  });

  suite('a server that was killed and restarted is connected again, and calls to it before have failed', async (cluster) => {
    const { a, heardA, heardB } = await pair(cluster);
    heardB.serve = () => new Promise(() => undefined);
    const lost = assert.rejects(a.call(B, 'state', new Uint8Array(0), 20_000), hasCode('unknown'));
    const reborn = new Recorder();
    const b = await cluster.start(B, reborn);
    await lost;
    await reborn.until(() => b.isConnected(A), 's2 reaches s1 again');
    await heardA.until(() => heardA.changes.length === 3, 's1 reaches s2 again');
    assert.deepEqual(heardA.changes, ['+s2', '-s2', '+s2']);
    a.send(B, CHANNEL_LEASE, numbered(1, 10));
    b.send(A, CHANNEL_LEASE, numbered(2, 10));
    await reborn.until(() => reborn.heard.length === 1, 'the new process hears');
    await heardA.until(() => heardA.heard.length === 1, 'the new process is heard');
    assert.equal(Buffer.from(await a.call(B, 'm', new Uint8Array(0), 5_000)).toString(), 'm:');
  });

  suite('an answer to a killed process does not reach its restarted one', async (cluster) => {
    const { b, heardA } = await pair(cluster);
    const { promise, resolve } = Promise.withResolvers<Uint8Array>();
    heardA.serve = () => promise;
    b.call(A, 'state', new Uint8Array(0), 20_000).catch(() => undefined);
    await b.call(A, 'state', new Uint8Array(0), 50).catch(() => undefined);
    const reborn = new Recorder();
    const next = await cluster.start(B, reborn);
    await reborn.until(() => next.isConnected(A), 's2 reaches s1 again');
    heardA.serve = () => new Promise(() => undefined);
    const call = next.call(A, 'state', new Uint8Array(0), 100);
    resolve(new Uint8Array(9));
    await assert.rejects(call, hasCode('unknown'));
  });

  suite('an orderly close delivers queued messages, notifies the peers, and fails pending calls', async (cluster) => {
    const { a, b, heardA, heardB } = await pair(cluster);
    heardB.serve = () => new Promise(() => undefined);
    const waiting = assert.rejects(a.call(B, 'state', new Uint8Array(0), 20_000), hasCode('unknown'));
    a.send(B, CHANNEL_LEASE, numbered(1, 10));
    await a.close();
    await waiting;
    await heardB.until(() => !b.isConnected(A), 's2 sees that s1 is gone');
    assert.equal(heardB.heard.length, 1);
    a.send(B, CHANNEL_LEASE, numbered(1, 10));
    await assert.rejects(a.call(B, 'state', new Uint8Array(0), 1_000), hasCode('no-majority'));
    assert.equal(a.isConnected(B), false);
    assert.deepEqual(heardA.changes, ['+s2', '-s2']);
    await a.close();
  });

  suite('a handler may send, and messages cross', async (cluster) => {
    const { a, b, heardA, heardB } = await pair(cluster);
    heardA.onMessage = ({ payload }) => {
      const count = payload[0] ?? 0;
      if (count < 100) a.send(B, CHANNEL_LEASE, Uint8Array.of(count + 1));
    };
    heardB.onMessage = ({ payload }) => {
      const count = payload[0] ?? 0;
      if (count < 100) b.send(A, CHANNEL_LEASE, Uint8Array.of(count + 1));
    };
    a.send(B, CHANNEL_LEASE, Uint8Array.of(1));
    await heardA.until(() => heardA.heard.some(({ payload }) => payload[0] === 100), 'the hundredth message');
  });
}
