/** Reads and syncs of files without a primary, at the level of a server's parts. */
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
  /** Awaited before a store has synced. */
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
  /** Servers at which the flush did its other work besides the sync. */
  const beside: ServerId[] = [];
  const flushAt = ({ id }: SmallServer) => {
    const besides = async () => void beside.push(id);
    return reads.get(id)?.flush(FILE, besides, () => true);
  };
  return { servers: [a, b, c] as const, epoch, asked, synced, syncing, beside, bear, readAt, flushAt, later };
}

test('if two of three have one position, a read asks one, and the file has no primary', async (t) => {
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

test('a server that is no member of the view here never agrees', async (t) => {
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
  assert.equal(await readAt(a), null, 'b has the same position in the other history');
});

test('a file with a primary is read at its primary', async (t) => {
  const { servers, asked, bear, readAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const write = () => b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  // The creating server is to become the first primary; a client that returns here is served.
  await assert.rejects(write(), { code: 'not-primary', details: { primary: 'a' } });
  await write();
  const before = asked.length;
  assert.equal(await readAt(b), null);
  assert.equal(asked.length, before, 'It knows so by itself');
  assert.equal(await readAt(a), null);
});

test('a file that is read often gets a primary', async (t) => {
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

test('a file without a primary is synced by a majority with one position, and gets no primary by that', async (t) => {
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
  assert.deepEqual(beside, ['a'], 'If the flush may succeed, the name is flushed, too');
  for (const { host } of servers) assert.equal(host.loaded(FILE), null);
});

test('a server that is asked to sync answers after its sync, and not if its position has changed', async (t) => {
  const { servers, epoch, synced, syncing, bear, flushAt } = await started(t);
  const [a, b] = servers;
  await bear(a);
  await bear(b);
  const disk = Promise.withResolvers<void>();
  syncing.set(b.id, disk.promise);
  const flushing = flushAt(a);
  assert.equal(await Promise.race([flushing, new Promise((resolve) => setTimeout(resolve, 20))]), undefined);
  assert.deepEqual(synced, ['a']);
  // A primary orders a write meanwhile, which only b receives.
  await b.store.apply(FILE, epoch, 3, { kind: 'settling' }, new Uint8Array(0));
  disk.resolve();
  assert.equal(await flushing, null, 'b has another position');
});

test('an operation that a replica received during its sync may not be on its disk', async (t) => {
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
  assert.equal(await flushing, null, 'A sync that began before the operation arrived does not cover it');
});
