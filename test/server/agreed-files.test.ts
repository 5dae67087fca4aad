/** Reads and syncs of files that nobody leads, as the parts of a server see them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { firstEpoch } from '../../replica/create-with-contents.ts';
import { AGREE_CALL, AGREE_SYNCED_CALL, QuorumReads } from '../../server/file/quorum-reads.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const BYTES = Buffer.from('the whole of it');

async function started(t: { after(work: () => void): void }) {
  const cluster = new SmallCluster(['a', 'b', 'c'], {}, { leaseMs: 2_000 });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const asked: ServerId[] = [];
  const synced: ServerId[] = [];
  /** Before a store has synced. */
  const syncing = new Map<ServerId, Promise<void>>();
  let nowMs = 0;
  const clock = { nowMs: () => nowMs } as never;
  const reads = new Map<ServerId, QuorumReads>();
  for (const { id, store, host } of cluster.servers) {
    const call = async (to: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array> => {
      asked.push(to);
      const there = reads.get(to) ?? assert.fail('There is such a server');
      if (method === AGREE_SYNCED_CALL) return there.serveSynced(id, payload);
      assert.equal(method, AGREE_CALL);
      return there.serve(id, payload);
    };
    const real = store.flush.bind(store);
    store.flush = async (file) => {
      await syncing.get(id);
      await real(file);
      synced.push(id);
    };
    const log = pino({ level: 'silent' });
    reads.set(id, new QuorumReads({ self: id, clock, log, store, host, call, isConnected: () => true }));
  }
  const epoch = firstEpoch(a.id, 1 as Incarnation);
  const operations = [
    { kind: 'write', offset: 0, bytes: BYTES, modifiedNs: 5n },
    { kind: 'settling' },
  ] as const;
  const where = { epoch, view: cluster.view, objectBytes: OBJECT_BYTES };
  const bear = (server: SmallServer) => server.host.createWithContents([{ file: FILE, operations }], where);
  const later = (ms: number): void => {
    nowMs += ms;
  };
  const readAt = (server: SmallServer) => reads.get(server.id)?.read(FILE, async () => true);
  /** At which servers something was done beside a sync. */
  const beside: ServerId[] = [];
  const flushAt = ({ id }: SmallServer) => {
    const besides = async () => void beside.push(id);
    return reads.get(id)?.flush(FILE, besides, () => true);
  };
  return { servers: [a, b, c] as const, epoch, asked, synced, syncing, beside, bear, readAt, flushAt, later };
}

test('where two of three stand at one place, one is asked, and nobody leads', async (t) => {
  const { servers, asked, bear, readAt } = await started(t);
  const [a, b, c] = servers;
  await bear(a);
  assert.equal(await readAt(a), null, 'a alone has it');
  await bear(b);
  assert.equal(await readAt(a), true);
  assert.deepEqual(asked, ['b', 'b']);
  assert.equal(await readAt(c), null, 'c has nothing');
  for (const { host } of servers) assert.equal(host.loaded(FILE), null);
});

test('a server that is no member of the view here is agreed with by nobody', async (t) => {
  const { servers, epoch, bear, readAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  const operations = [
    { kind: 'write', offset: 0, bytes: BYTES, modifiedNs: 5n },
    { kind: 'settling' },
  ] as const;
  const members = ['b', 'c', 'd'] as ServerId[];
  const where = { epoch, view: { number: 1, members }, objectBytes: OBJECT_BYTES };
  assert.deepEqual(await b.host.createWithContents([{ file: FILE, operations }], where), [null]);
  assert.equal(await readAt(a), null, 'b stands at the same place of the other history');
});

test('a file that is led is read at its primary', async (t) => {
  const { servers, asked, bear, readAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const write = () => b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  // Who has borne it is to lead it first; who comes back is served.
  await assert.rejects(write(), { code: 'not-primary', details: { primary: 'a' } });
  await write();
  const before = asked.length;
  assert.equal(await readAt(b), null);
  assert.equal(asked.length, before, 'It knows so by itself');
  assert.equal(await readAt(a), null);
});

test('whoever reads on and on gets a primary', async (t) => {
  const { servers, bear, readAt, later } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const answers: unknown[] = [];
  for (let reads = 0; reads < 5; reads++) answers.push(await readAt(a));
  assert.deepEqual(answers, [true, true, true, true, null]);
  later(1_000);
  assert.equal(await readAt(a), true);
});

test('what nobody leads is synced by a majority that stands at one place, and nobody leads then', async (t) => {
  const { servers, asked, synced, beside, bear, flushAt } = await started(t);
  const [a, b, c] = servers;
  await bear(a);
  assert.equal(await flushAt(a), null, 'a alone has it');
  await bear(b);
  for (const seen of [asked, synced, beside]) seen.length = 0;
  assert.equal(await flushAt(a), true);
  assert.deepEqual(synced.toSorted(), ['a', 'b'], 'Both have synced it');
  assert.deepEqual(asked, ['b']);
  assert.equal(await flushAt(c), null, 'c has nothing');
  assert.deepEqual(beside, ['a'], 'Where something may come of it, the name is flushed, too');
  for (const { host } of servers) assert.equal(host.loaded(FILE), null);
});

test('whoever is asked to sync answers when it has, and not where it stands elsewhere then', async (t) => {
  const { servers, epoch, synced, syncing, bear, flushAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const disk = Promise.withResolvers<void>();
  syncing.set(b.id, disk.promise);
  const flushing = flushAt(a);
  assert.equal(await Promise.race([flushing, new Promise((resolve) => setTimeout(resolve, 20))]), undefined);
  assert.deepEqual(synced, ['a']);
  // Somebody leads meanwhile, and what he orders comes to b alone.
  await b.store.apply(FILE, epoch, 3, { kind: 'settling' }, new Uint8Array(0));
  disk.resolve();
  assert.equal(await flushing, null, 'b stands elsewhere');
});

test('what came to a replica while it was synced may not be on its disk', async (t) => {
  const { servers, epoch, syncing, bear, flushAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const change = ({ store }: SmallServer) =>
    store.apply(FILE, epoch, 3, { kind: 'settling' }, new Uint8Array(0));
  await change(a);
  const disk = Promise.withResolvers<void>();
  syncing.set(b.id, disk.promise);
  const flushing = flushAt(a);
  await change(b);
  disk.resolve();
  assert.equal(await flushing, null, 'Who began to sync before it came has not synced it');
});
