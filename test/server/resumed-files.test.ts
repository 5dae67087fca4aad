/**
 * Files without a primary that are changed all the same: by the server that ordered their last change, as resumed
 * primary.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation } from '../../base/ids.ts';
import { firstEpoch } from '../../replica/create-with-contents.ts';
import { creationOperations } from '../../server/file/creation-operations.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

type Marked = Extract<Command, { kind: 'open-for-write' }>;
type Settled = Extract<Command, { kind: 'settle' }>;

/** @param answer of the catalog to commands */
async function started(t: { after(work: () => void): void }, answer: (one: Command) => unknown = () => ({})) {
  const told: Command[] = [];
  const command = async (one: Command) => {
    told.push(one);
    return answer(one);
  };
  // Nothing here waits for a heartbeat, nor for the end of a lease.
  const cluster = new SmallCluster(
    ['a', 'b', 'c'],
    { command },
    { leaseMs: 2_000, heartbeatMs: 400, agrees: true },
  );
  t.after(() => {
    cluster.close();
    assert.deepEqual(cluster.fatal, []);
  });
  await cluster.ready();
  const servers = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const [a] = servers;
  const place = {
    epoch: firstEpoch(a.id, 1 as Incarnation),
    view: cluster.view,
    objectBytes: OBJECT_BYTES,
  };
  /** At `a`, `b` and, if requested, `c`. */
  const bear = async (count: 2 | 3 = 3): Promise<void> => {
    const operations = creationOperations(Uint8Array.of(1), 1n);
    for (const { host } of servers.slice(0, count))
      assert.deepEqual(await host.createWithContents([{ file: FILE, operations }], place), [null]);
    a.host.directoryEntryCreated(FILE);
  };
  /**
   * While the first is disconnected, the second becomes primary and changes the file.
   * @returns the version that it makes, which the first does not receive
   */
  const overtake = async () => {
    const [first, second, third] = servers;
    for (const other of [second, third]) cluster.network.cut(first.id, other.id);
    await second.files.becomePrimary(FILE);
    const { contents } = await write(second, 2);
    await giveBack(second);
    cluster.network.heal();
    while (!cluster.view.members.every((id) => id === first.id || first.transport.isConnected(id)))
      await delay(5);
    return contents;
  };
  return { cluster, servers, told, bear, overtake };
}

function write({ files }: SmallServer, number: number) {
  return files.write(FILE, requestOf(number), 0, Uint8Array.of(number));
}

const isSentTo =
  ({ id }: SmallServer) =>
  (error: ServiceError): boolean =>
    error.code === 'not-primary' && error.details.primary === id;

/** As a server does with unused files. */
async function giveBack({ host, lease }: SmallServer): Promise<void> {
  const driver = host.loaded(FILE);
  assert.ok(driver);
  const hasLease = lease.view(FILE).own;
  await driver.stop();
  if (hasLease) lease.release(FILE);
  lease.close(FILE);
  while (!driver.idle) await delay(5);
  host.unload(driver);
}

test('the server that created a file with contents changes it in the first epoch, without a lease or a sync', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b, c] = servers;
  await bear(2);
  const { epoch, contents } = await write(a, 1);
  assert.deepEqual([epoch, contents], [1, { epoch: 1, seq: 3 }]);
  assert.deepEqual([a.host.loaded(FILE)?.isPrimary, a.lease.view(FILE).own], [false, false]);
  assert.equal(b.store.record(FILE)?.promised.counter, 1);
  // The replica that had nothing receives all of it.
  while (c.store.record(FILE)?.seq !== 3) await delay(5);
  assert.equal((await a.files.truncate(FILE, requestOf(2), 0)).epoch, 1);
  assert.equal((await a.files.punch(FILE, requestOf(3), { from: 0, to: 9, grows: true })).sizeBytes, 9);
});

test('a primary that has ended in good order resumes its epoch, also after it has forgotten the file', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const { epoch } = await write(a, 1);
  for (const number of [2, 3]) {
    await giveBack(a);
    assert.equal((await write(a, number)).epoch, epoch);
    assert.equal(a.host.loaded(FILE)?.isPrimary, false);
  }
});

test('a change of the file elsewhere is redirected there, and served after a redirect from there', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b] = servers;
  await bear();
  await write(a, 1);
  await assert.rejects(write(b, 2), isSentTo(a));
  assert.equal((await write(b, 2)).epoch, 2);
  await giveBack(b);
  // From then on b is the resumed primary.
  while (a.lease.view(FILE).holder !== null) await delay(5);
  await assert.rejects(write(a, 3), isSentTo(b));
  assert.equal((await write(b, 3)).epoch, 2);
});

test('a resumed primary orders nothing once another server was primary, although it was not notified', async (t) => {
  const { servers, bear, overtake } = await started(t);
  const [a] = servers;
  await bear();
  await write(a, 1);
  const contents = await overtake();
  await assert.rejects(write(a, 3), (error: ServiceError) => error.code === 'unknown');
  while (a.store.record(FILE)?.promised.counter === 1) {
    await write(a, 3).catch((error: ServiceError) =>
      assert.ok(['unknown', 'not-primary'].includes(error.code)),
    );
    await delay(5);
  }
  const { before, epoch } = await write(a, 4);
  assert.ok(epoch > 2);
  assert.ok(before !== undefined && before.epoch >= contents.epoch);
});

test('a resumed primary asks the others before it answers with the state, or refuses by it', async (t) => {
  const { servers, told, bear, overtake } = await started(t);
  const [a] = servers;
  await bear();
  await write(a, 1);
  await a.files.settle(FILE);
  const contents = await overtake();
  const before = told.length;
  await assert.rejects(a.files.settle(FILE), (error: ServiceError) => error.code === 'unknown');
  assert.ok(!told.slice(before).some(({ kind }) => kind === 'settle'));
  const guarded = () => a.files.write(FILE, requestOf(3), 0, Uint8Array.of(3), { contents });
  for (;;) {
    try {
      assert.deepEqual((await guarded()).before, contents);
      break;
    } catch (error) {
      assert.ok(error instanceof ServiceError && error.code !== 'precondition-failed', String(error));
      await delay(5);
    }
  }
});

test('a server that refuses by a state that others have changed since decides again as the primary', async (t) => {
  const { servers, bear, overtake } = await started(t);
  const [a] = servers;
  await bear();
  const contents = await overtake();
  const { epoch, before } = await a.files.write(FILE, requestOf(3), 0, Uint8Array.of(3), { contents });
  assert.deepEqual([epoch > 2, before], [true, contents]);
});

test('a mark of a failed change ends with the next settling, also if its primary has forgotten it', async (t) => {
  const { servers, told, bear } = await started(t);
  const [a] = servers;
  await bear();
  await write(a, 1);
  await a.files.settle(FILE);
  const refused = a.files.write(FILE, requestOf(2), 0, Uint8Array.of(2), { sizeBytes: 99 });
  await assert.rejects(refused, (error: ServiceError) => error.code === 'precondition-failed');
  await giveBack(a);
  await a.files.settle(FILE);
  const turns = told.map((one) => ((one as Marked).mark ?? (one as Settled).files[0]?.mark)?.turn ?? 0);
  assert.ok((turns.at(-1) ?? 0) >= Math.max(...turns), turns.join());
});

test('changes without a lease are marked in the catalog, and settled, by numbers that are never used twice', async (t) => {
  const { servers, told, bear } = await started(t);
  const [a] = servers;
  await bear();
  for (const number of [1, 2]) {
    await write(a, number);
    await a.files.settle(FILE);
    await giveBack(a);
  }
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ['open-for-write', 'settle', 'open-for-write', 'settle'],
  );
  const marks = told.map((one) => (one as Marked).mark ?? (one as Settled).files[0]?.mark);
  assert.deepEqual(marks[0], marks[1]);
  assert.deepEqual(marks[2], marks[3]);
  assert.ok((marks[2]?.turn ?? 0) > (marks[0]?.turn ?? 0));
  assert.equal(a.lease.view(FILE).own, false);
});

test('a server that is draining, or about to end, orders nothing without a lease either', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b] = servers;
  await bear();
  await write(a, 1);
  a.yieldsTo = b.id;
  await assert.rejects(write(a, 2), isSentTo(b));
  a.yieldsTo = null;
  await write(a, 2);
  a.lease.stopCompeting();
  await assert.rejects(write(a, 3), (error: ServiceError) => error.code === 'not-primary');
  assert.equal(a.store.record(FILE)?.seq, 4);
});

test('a server that releases a file settles its changes without a lease', async (t) => {
  const { servers, told, bear } = await started(t);
  const [a] = servers;
  await bear();
  await write(a, 1);
  const driver = a.host.loaded(FILE);
  assert.ok(driver);
  for (let round = 0; round < 2; round++) await a.files.settling.settleBeforeRelease(driver);
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ['open-for-write', 'settle'],
  );
});

test('a server that could not store its own operation orders nothing else with that number', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b] = servers;
  await bear();
  const { store } = a;
  const real = store.apply.bind(store);
  store.apply = () => Promise.reject(new Error('The disk refuses'));
  await assert.rejects(write(a, 1), (error: ServiceError) => error.code === 'unknown');
  store.apply = real;
  // Others have it, and may have acknowledged it.
  while (b.store.record(FILE)?.seq !== 3) await delay(5);
  while (a.host.loaded(FILE) !== null) await delay(5);
  assert.deepEqual([a.store.record(FILE)?.seq, (await write(a, 2)).epoch], [2, 2]);
});

test('only operations that are known to be committed are reported to the catalog', async (t) => {
  const { cluster, servers, told, bear } = await started(t);
  const [a, b, c] = servers;
  await bear();
  await write(a, 1);
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  // The second finds that the first operation, which no other has, uses its number.
  const settled = await Promise.allSettled([a.files.settle(FILE), a.files.settle(FILE)]);
  assert.deepEqual(
    settled.map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ['open-for-write'],
  );
});

test('only a primary preserves what snapshots are to show', async (t) => {
  // Of contents that were written in an epoch that this server does not know.
  const wish = { preserve: { inode: 99, contents: { epoch: 9, seq: 9 } } };
  const { servers, told, bear } = await started(t, (one) => ('preserved' in one ? {} : wish));
  const [a] = servers;
  await bear();
  await assert.rejects(write(a, 1), (error: ServiceError) => error.code === 'not-primary');
  assert.ok(!told.some((one) => 'preserved' in one), 'Others may have them');
  const { epoch } = await write(a, 1);
  assert.deepEqual([epoch, told.some((one) => 'preserved' in one)], [2, true]);
});

test('queries about such a file are answered without becoming its primary, also while it is being changed', async (t) => {
  const { cluster, servers, bear } = await started(t);
  const [a, b, c] = servers;
  await bear();
  // Until a heartbeat an operation is under way.
  cluster.network.cut(a.id, c.id);
  await write(a, 1);
  assert.equal(a.host.loaded(FILE)?.role, 'resumed');
  for (const server of [a, b]) {
    const { sizeBytes, seq } = await server.files.state(FILE);
    assert.deepEqual([sizeBytes, seq], [1, 3]);
    assert.deepEqual((await server.files.read(FILE, 0, 1)).bytes, Uint8Array.of(1));
    await server.files.flush(FILE);
  }
  const counters = [a, b].map(({ store }) => store.record(FILE)?.promised.counter);
  assert.deepEqual(counters, [1, 1], 'No server was asked for a promise');
});

test('a request that needs more than an ordered operation makes the server primary in its own epoch', async (t) => {
  const { servers, bear } = await started(t);
  const [a] = servers;
  await bear();
  await write(a, 1);
  assert.equal((await a.files.becomePrimary(FILE)).epoch, 2);
  assert.equal((await write(a, 2)).epoch, 2);
});

test('a server that changes a file often becomes its primary in the end, and no change waits for that', async (t) => {
  const { servers, bear } = await started(t);
  const [a] = servers;
  await bear();
  const epochs: number[] = [];
  for (let number = 1; epochs.at(-1) !== 2; number++) epochs.push((await write(a, number)).epoch);
  assert.ok(epochs.length > 16, 'It takes more than a few');
  assert.equal(a.host.loaded(FILE)?.isPrimary, true);
});
