import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import {
  CATALOG_CELL,
  FILE_NUMBERS_END,
  type FileId,
  type Incarnation,
  type ServerId,
} from '../../base/ids.ts';
import { encodeReplicaMessage } from '../../replica/codec.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { encodeStateTransferCall, STATE_CALL } from '../../server/drivers/state-call.ts';
import { encodeKnown, METHODS as FILE_METHODS } from '../../server/file/file-transfer.ts';
import { CHANNEL_REPLICA, CHANNEL_REPLICA_VIEW } from '../../server/transport/transport.ts';
import { ByteWriter } from '../../wire/bytes.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));

function heartbeatOf(cluster: SmallCluster, from: string, file = FILE): Uint8Array {
  const server = from as ServerId;
  const incarnation = 99 as Incarnation;
  const epoch = { counter: 3, server, incarnation };
  const { view } = cluster;
  const body = { kind: 'heartbeat', epoch, view, committedSeq: 0, sentSeq: 0, beat: 0, guardMs: 0 } as const;
  const frame = encodeReplicaMessage(file, { incarnation, ...body });
  return new ByteWriter(4 + frame.length).uint32(OBJECT_BYTES).raw(frame).finish();
}

type Held = 'promise' | 'remove' | 'apply' | 'digests' | 'readObject';

/** Holds back a method of the server's store, or only its answer, until the returned function is called. */
function holdBack({ store }: SmallServer, method: Held, what: 'all' | 'answer' = 'all'): () => void {
  const gate = Promise.withResolvers<void>();
  const real = store[method].bind(store) as (...given: unknown[]) => Promise<unknown>;
  const held = async (...given: unknown[]): Promise<unknown> => {
    if (what === 'all') await gate.promise;
    const answer = await real(...given);
    await gate.promise;
    return answer;
  };
  Object.assign(store, { [method]: held });
  return gate.resolve;
}

test("a message that arrives during a replica's removal does not open the replica", async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  const [a] = cluster.servers as [SmallServer];
  a.host.create(FILE, cluster.view, OBJECT_BYTES);
  const letGo = holdBack(a, 'remove');
  const removing = a.host.remove(FILE);
  a.host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeatOf(cluster, 'b'));
  assert.equal(a.host.loaded(FILE), null);
  letGo();
  await removing;
  assert.equal(a.store.record(FILE), null);
});

for (const method of ['digests', 'readObject'] as const) {
  test(`a fetch of a replica's state that is removed meanwhile fails with not-found (${method})`, async (t) => {
    const cluster = new SmallCluster(['a']);
    t.after(() => cluster.close());
    await cluster.ready();
    const [a] = cluster.servers as [SmallServer];
    await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
    const { promised } = a.store.record(FILE) as ReplicaRecord;
    const letGo = holdBack(a, method, 'answer');
    const known = encodeKnown({ epoch: 0, seq: 0 });
    const serving = a.host.serve(
      STATE_CALL,
      encodeStateTransferCall(FILE, promised, FILE_METHODS.compare, known),
    );
    await turn();
    await a.host.remove(FILE);
    letGo();
    await assert.rejects(serving, (error: ServiceError) => {
      assert.ok(error instanceof ServiceError, `${error}`);
      return error.code === 'not-found';
    });
  });
}

test('a message of a catalog creates no replica of a file', (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  const [a] = cluster.servers as [SmallServer];
  for (const [cell, isFile] of [
    [CATALOG_CELL, false],
    [FILE_NUMBERS_END, false],
    [FILE_NUMBERS_END - 1, true],
  ] as const) {
    a.host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeatOf(cluster, 'b', cell as FileId));
    assert.equal(a.host.loaded(cell as FileId) !== null, isFile, `${cell}`);
  }
});

test('a message for which the store has no free space does not end the process', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  const [a] = cluster.servers as [SmallServer];
  Object.assign(a.store, {
    create: () => {
      throw new ServiceError('no-space', 'The disk is full');
    },
  });
  a.host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeatOf(cluster, 'b'));
  assert.deepEqual(cluster.fatal, []);
});

test('a driver with work under way to the disk is not idle', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  const [a] = cluster.servers as [SmallServer];
  const driver = a.host.create(FILE, cluster.view, OBJECT_BYTES);
  assert.ok(driver.idle);
  const letGo = holdBack(a, 'promise');
  a.host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeatOf(cluster, 'b'));
  assert.ok(!driver.idle);
  letGo();
  while (!driver.idle) await turn();
});

test('a request that waits for a file that is just being released is refused with an immediate retry', async (t) => {
  const cluster = new SmallCluster(['a']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const letGo = holdBack(a, 'apply');
  const writing = a.files.write(FILE, requestOf(2), 0, Uint8Array.of(2));
  for (let turns = 0; turns < 5; turns++) await turn();
  const driver = a.host.loaded(FILE);
  assert.ok(driver !== null);
  const stopping = driver.stop();
  const reading = a.files.read(FILE, 0, 1);
  reading.catch(() => undefined);
  letGo();
  await Promise.all([writing, stopping]);
  a.lease.release(FILE);
  a.lease.close(FILE);
  a.host.unload(driver);
  await assert.rejects(reading, (error: ServiceError) => error.code === 'not-primary');
  const { bytes } = await a.files.read(FILE, 0, 1);
  assert.deepEqual(bytes, Uint8Array.of(2));
  assert.deepEqual(cluster.fatal, []);
});

test('a change of members that was lost with its primary is not used', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c', 'd', 'e']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c, ...others] = cluster.servers as [SmallServer, SmallServer, SmallServer, SmallServer];
  const rest = [c, ...others];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const apart = (one: SmallServer, from: readonly SmallServer[]) => {
    for (const other of from) cluster.network.cut(one.id, other.id);
  };
  apart(a, rest);
  apart(b, rest);
  const changing = assert.rejects(
    a.files.changeMembers(
      FILE,
      [a, b, c].map(({ id }) => id),
    ),
    ServiceError,
  );
  while (b.host.knownView(FILE)?.joint === undefined) await delay(1);
  apart(a, [b]);
  await changing;
  for (let isDone = false; !isDone; ) {
    isDone = await c.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2)).then(
      () => true,
      (error: ServiceError) => error.code !== 'not-primary',
    );
  }
  cluster.network.heal();
  apart(a, [b, ...rest]);
  const counter = c.store.record(FILE)?.installed.counter ?? 0;
  while ((b.store.record(FILE)?.installed.counter ?? 0) < counter) await delay(1);
  assert.equal(b.store.record(FILE)?.view.number, 1);
  assert.equal(b.host.knownView(FILE), null);
  assert.deepEqual(cluster.fatal, []);
});

test('a replica that starts again twice is still bound by what the first one answered', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.state(FILE);
  const driver = b.host.loaded(FILE);
  assert.ok(driver !== null);
  while (driver.boundUntilMs === -Infinity) await delay(1);
  for (const other of [a, c]) cluster.network.cut(other.id, b.id);
  while (!driver.idle) await delay(1);
  const { boundUntilMs } = driver;
  for (let times = 0; times < 2; times++) {
    driver.step({ kind: 'storage-failed', reason: 'by intent' });
    driver.restartFailed();
    assert.equal(driver.boundUntilMs, boundUntilMs);
  }
});

test('messages to the third replica may be delayed, unless another one is disconnected', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const { transport } = a;
  const send = transport.send.bind(transport);
  const told = new Map<ServerId, boolean>();
  const noted: typeof send = (to, channel, payload, options) => {
    if (channel === CHANNEL_REPLICA) told.set(to, options?.deferrable === true);
    send(to, channel, payload, options);
  };
  Object.assign(transport, { send: noted });
  await a.files.write(FILE, requestOf(2), 0, Uint8Array.of(2));
  assert.deepEqual(
    [...told],
    [
      ['b', false],
      ['c', true],
    ],
  );
  cluster.network.cut('a' as ServerId, 'b' as ServerId);
  told.clear();
  await a.files.write(FILE, requestOf(3), 0, Uint8Array.of(3));
  assert.deepEqual([...told], [['c', false]]);
});
