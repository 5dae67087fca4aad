/**
 * Goal: a server copies the contents of a clone's file only while the catalog says that they are shared, all servers
 * make the same copy, and none uses its copy before the catalog has named it.
 * Method: the parts of real servers in one process, with a catalog and a source of the test.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import { encodeReplicaMessage } from '../../replica/codec.ts';
import { copyEpoch } from '../../replica/create-with-contents.ts';
import type { View } from '../../replica/view.ts';
import { extentStep } from '../../server/file/extents.ts';
import { SharedCopies, type SharedCopiesParts } from '../../server/file/shared-copies.ts';
import { bounded } from '../../server/process/bounded.ts';
import { CHANNEL_REPLICA_VIEW } from '../../server/transport/transport.ts';
import { ByteWriter } from '../../wire/bytes.ts';
import type { Attributes, SharedContents } from '../../wire/catalog-api.ts';
import { describeFile } from '../conformance/description.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const SOURCE = 3 as FileId;
const IDS = ['a', 'b', 'c'] as const;
const MEMBERS = IDS as readonly string[] as readonly ServerId[];
const SIZE_BYTES = 9 * OBJECT_BYTES;
const SHARED: SharedContents = {
  ...{ source: SOURCE, contents: { epoch: 4, seq: 2 }, sizeBytes: SIZE_BYTES, modifiedNs: '7' },
  ...{ objectBytes: OBJECT_BYTES, policy: 'quorum', members: [...MEMBERS] },
};

/** What the snapshot shows: data, a hole that begins within an object, data, and a hole at the end. */
async function source(): Promise<MemoryStore> {
  const store = new MemoryStore();
  const view: View = { number: 1, members: MEMBERS };
  store.create(SOURCE, view, OBJECT_BYTES);
  const epoch = { counter: 4, server: MEMBERS[0] as ServerId, incarnation: 1 as Incarnation };
  await store.promise(SOURCE, epoch);
  await store.install(SOURCE, epoch, 0, new Uint8Array(0), null);
  const none = new Uint8Array(0);
  const write = (seq: number, offset: number, length: number) =>
    store.apply(
      ...([SOURCE, epoch, seq] as const),
      { kind: 'write', offset, bytes: new Uint8Array(length).fill(seq), modifiedNs: 5n },
      none,
    );
  await write(1, 0, OBJECT_BYTES + 100);
  await write(2, 5 * OBJECT_BYTES + 9, OBJECT_BYTES);
  await store.apply(SOURCE, epoch, 3, { kind: 'truncate', sizeBytes: SIZE_BYTES, modifiedNs: 7n }, none);
  return store;
}

/** The catalog's word about the file, the servers, and how each of them copies. */
class World {
  shared: SharedContents = SHARED;
  replicas: readonly string[] = [];
  readonly cluster: SmallCluster;
  readonly #from: MemoryStore;

  private constructor(t: TestContext, from: MemoryStore) {
    this.#from = from;
    this.cluster = new SmallCluster(IDS, {
      attributes: async () =>
        ({
          ...{ inode: FILE, kind: 'file', live: true, replicas: this.replicas, objectBytes: OBJECT_BYTES },
          view: this.replicas.length === 0 ? 0 : 1,
        }) as unknown as Attributes,
    });
    t.after(() => this.cluster.close());
  }

  static async make(t: TestContext): Promise<World> {
    const world = new World(t, await source());
    await world.cluster.ready();
    return world;
  }

  server(place: number): SmallServer {
    return this.cluster.servers[place] ?? assert.fail('There are three');
  }

  copiesOf({ id, host }: SmallServer, changes: Partial<SharedCopiesParts> = {}): SharedCopies {
    return new SharedCopies({
      ...{ self: id, world: patientWorld, log: pino({ level: 'silent' }), host },
      locate: async () => this.shared,
      read: async (file, offset, length) => this.#from.read(file, offset, length),
      extent: async (file, offset, whence) => {
        const step = extentStep(this.#from, file, offset, whence);
        assert.ok(step.kind === 'found');
        return { found: step.at } as never;
      },
      ...changes,
    });
  }
}

function heartbeat(view: View): Uint8Array {
  const server = MEMBERS[1] as ServerId;
  const incarnation = 99 as Incarnation;
  const epoch = { counter: 3, server, incarnation };
  const body = { kind: 'heartbeat', epoch, view, committedSeq: 0, sentSeq: 0, beat: 0, guardMs: 0 } as const;
  const frame = encodeReplicaMessage(FILE, { incarnation, ...body });
  return new ByteWriter(4 + frame.length).uint32(OBJECT_BYTES).raw(frame).finish();
}

test('all servers make the same copy, with the holes and the policy of the file', async (t) => {
  const world = await World.make(t);
  world.shared = { ...SHARED, policy: 'all' };
  const described: unknown[] = [];
  for (const server of world.cluster.servers) {
    assert.equal(await world.copiesOf(server).copy(FILE), 'copied');
    const { view, promised, installed, seq } = server.store.record(FILE) ?? assert.fail('It is there');
    assert.deepEqual(view, { number: 1, members: MEMBERS, policy: 'all' });
    assert.deepEqual([promised, installed, seq], [copyEpoch(view), copyEpoch(view), 1]);
    assert.deepEqual(
      server.store.entries(FILE, 0, Number.MAX_SAFE_INTEGER, 99).map(({ index, length }) => [index, length]),
      [0, 1, 5, 6].map((index) => [index, index === 1 ? 100 : index === 6 ? 9 : OBJECT_BYTES]),
    );
    described.push(await describeFile(server.store, FILE));
  }
  assert.deepEqual([described[1], described[2]], [described[0], described[0]]);
});

test('a file with contents of its own, or with other servers, is not copied', async (t) => {
  const world = await World.make(t);
  for (const shared of [
    { ...SHARED, source: FILE, members: [] },
    { ...SHARED, members: [] },
    { ...SHARED, members: ['b', 'c'] },
  ]) {
    world.shared = shared;
    assert.equal(await world.copiesOf(world.server(0)).copy(FILE), 'not-needed');
    assert.equal(world.server(0).store.record(FILE), null);
  }
});

test('from before the catalog is asked until the copy is there, no message creates a replica', async (t) => {
  const world = await World.make(t);
  const { host, store } = world.server(0);
  const asked = Promise.withResolvers<void>();
  const word = Promise.withResolvers<SharedContents>();
  const locate = (): Promise<SharedContents> => {
    asked.resolve();
    return word.promise;
  };
  const copying = world.copiesOf(world.server(0), { locate }).copy(FILE);
  await asked.promise;
  host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeat(world.cluster.view));
  assert.equal(store.record(FILE), null);
  word.resolve(SHARED);
  assert.equal(await copying, 'copied');
  assert.equal(store.record(FILE)?.seq, 1);
});

test('a replica that has promised or changed anything is no copy', async (t) => {
  const world = await World.make(t);
  const { host, store } = world.server(0);
  host.receive('b' as ServerId, CHANNEL_REPLICA_VIEW, heartbeat(world.cluster.view));
  assert.notEqual(store.record(FILE), null);
  assert.equal(await world.copiesOf(world.server(0)).copy(FILE), 'not-needed');
});

test('a copy that an earlier process has made is synced before it is confirmed', async (t) => {
  const world = await World.make(t);
  const server = world.server(0);
  assert.equal(await world.copiesOf(server).copy(FILE), 'copied');
  let synced = 0;
  t.mock.method(server.store, 'flushIndex', async () => void synced++);
  assert.equal(await world.copiesOf(server).copy(FILE), 'copied');
  assert.equal(synced, 1);
});

test('a copy is not used before the catalog has named the servers', async (t) => {
  const world = await World.make(t);
  for (const server of world.cluster.servers) assert.equal(await world.copiesOf(server).copy(FILE), 'copied');
  const { files, host } = world.server(0);
  await assert.rejects(files.read(FILE, 0, 9), { code: 'not-primary' });
  await assert.rejects(files.write(FILE, requestOf(1), 0, Uint8Array.of(8)), { code: 'not-primary' });
  assert.equal(host.loaded(FILE), null);
  world.replicas = MEMBERS;
  await files.write(FILE, requestOf(1), 0, Uint8Array.of(8));
  const { bytes } = await files.read(FILE, 0, 3);
  assert.deepEqual([...bytes], [8, 1, 1]);
});

test('while a server still copies, requests are sent to the members that have copies', async (t) => {
  const world = await World.make(t);
  const { promise, resolve } = Promise.withResolvers<Uint8Array>();
  const copying = world.copiesOf(world.server(2), { read: () => promise }).copy(FILE);
  for (const place of [0, 1]) await world.copiesOf(world.server(place)).copy(FILE);
  world.replicas = MEMBERS;
  const { files } = world.server(2);
  const elsewhere = (error: unknown) => {
    assert.ok(error instanceof ServiceError && error.code === 'not-primary', String(error));
    return error.details.primary === 'a';
  };
  while (!world.server(2).host.isCopying(FILE)) await turn();
  const inTime = <Value>(work: Promise<Value>) =>
    bounded(patientWorld, work, 10_000, () => new Error('It waits for the copy'));
  await assert.rejects(inTime(files.read(FILE, 0, 9)), elsewhere);
  await assert.rejects(inTime(files.write(FILE, requestOf(1), 0, Uint8Array.of(8))), elsewhere);
  await world.server(0).files.write(FILE, requestOf(1), 0, Uint8Array.of(8));
  resolve(new Uint8Array(0));
  await assert.rejects(copying, { code: 'integrity' });
  assert.equal(world.server(2).host.isCopying(FILE), false);
});
