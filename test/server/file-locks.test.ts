import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation } from '../../base/ids.ts';
import { firstEpoch } from '../../replica/create-with-contents.ts';
import { creationOperations } from '../../server/file/creation-operations.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { WireLock } from '../../wire/lock-api.ts';
import { patientWorld } from '../patient-world.ts';
import { ALL, atPrimary, Client, cutOff, locked, refused, started, type Wish } from './lock-client.ts';
import {
  delay,
  FILE,
  LOCK_BOUNDS,
  LOCK_LEASE_MS,
  OBJECT_BYTES,
  requestOf,
  type SmallCluster,
  type SmallServer,
} from './small-cluster.ts';

test('a lock excludes others until it is released, and then a waiting client gets it', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [one, two, three] = [new Client(1), new Client(2), new Client(3)];
  await one.lock(a);
  await assert.rejects(two.lock(a), refused('locked'));
  const waiting = two.lock(a, {}, 10_000);
  const third = three.lock(a, {}, 10_000).then(
    () => 'granted',
    () => 'not granted',
  );
  await one.lock(a, { type: 'unlock' });
  await waiting;
  assert.deepEqual(
    (await a.files.locks(FILE)).locks.map(({ client }) => client),
    [2],
    'The first waiting request',
  );
  await two.lock(a, { type: 'unlock' });
  assert.equal(await third, 'granted');
});

test('a request that is sent again is one request, and has no effect once it has ended', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [one, two] = [new Client(1), new Client(2)];
  const body = one.body({});
  await a.files.lock(FILE, body);
  await a.files.lock(FILE, body);
  assert.equal((await a.files.locks(FILE)).locks.length, 1);
  await one.lock(a, { type: 'unlock' });
  await assert.rejects(a.files.lock(FILE, body), refused('locked'), 'It arrived late');
  await two.lock(a);
  await assert.rejects(
    a.files.lock(FILE, one.body({}, 1)),
    refused('locked'),
    'And one whose wait ended without the lock',
  );
});

test('waiting for itself is refused', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [one, two] = [new Client(1), new Client(2)];
  await one.lock(a, { start: 0, end: 0 });
  await two.lock(a, { start: 1, end: 1 });
  const waiting = one.lock(a, { start: 1, end: 1 }, 10_000);
  await assert.rejects(two.lock(a, { start: 0, end: 0 }, 10_000), refused('deadlock'));
  await two.lock(a, { type: 'unlock' });
  await waiting;
});

test('locks of a silent client end with its lease, and those of one that renews do not', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [dead, living, other] = [new Client(1), new Client(2), new Client(3)];
  const kept: WireLock = { ...ALL, start: 0, end: 9 };
  await dead.lock(a, { start: 10, end: 19 });
  await living.lock(a, kept);
  const beganMs = patientWorld.nowMs();
  let got = false;
  // Each round waits for a quarter of the lease.
  for (let turn = 0; turn < 12 && !got; turn++) {
    assert.deepEqual((await living.renew(a, [kept])).lost, []);
    got = await other.lock(a, { start: 10, end: 19 }, LOCK_LEASE_MS / 4).then(
      () => true,
      (error: unknown) => !refused('locked')(error),
    );
  }
  assert.ok(got, 'No client renews it any more');
  assert.ok(patientWorld.nowMs() - beganMs >= LOCK_LEASE_MS - 50, 'Not before its lease has ended');
  assert.deepEqual((await a.files.locks(FILE)).locks.map(({ client }) => client).sort(), [2, 3]);
});

test('a lock that its client does not know ends, also if the client waits for it', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const client = new Client(1);
  await client.lock(a, { owner: 'lost' });
  const beganMs = patientWorld.nowMs();
  let got = false;
  // The messages of a waiting client renew nothing: a renewal would name the locks.
  while (!got && patientWorld.nowMs() - beganMs < 3 * LOCK_LEASE_MS) {
    got = await client.lock(a, { owner: 'waiting' }, LOCK_LEASE_MS).then(
      () => true,
      (error: unknown) => !refused('locked')(error),
    );
  }
  assert.ok(got, 'The lock stays as long as its client waits for it');
  assert.ok(patientWorld.nowMs() - beganMs >= LOCK_LEASE_MS - 50, 'Not before its lease has ended');
  assert.deepEqual(
    (await a.files.locks(FILE)).locks.map(({ owner }) => owner),
    ['waiting'],
  );
});

test('a renewal without a request under way names all locks of its client', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [client, other] = [new Client(1), new Client(2)];
  const known: WireLock = { ...ALL, start: 0, end: 9 };
  await client.lock(a, known);
  await client.lock(a, { owner: 'lost', start: 10, end: 19 });
  assert.deepEqual((await client.renew(a, [known])).lost, []);
  await other.lock(a, { start: 10, end: 19 });
  await assert.rejects(other.lock(a, { start: 0, end: 9 }), refused('locked'));
});

test('a wait lasts a small part of the lock lease, which counts from before it', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [holder, other] = [new Client(1), new Client(2)];
  await holder.lock(a);
  // The holder sends nothing more: its lock would be free if these waits took as long as its lease.
  for (let question = 0; question < 3; question++) {
    await assert.rejects(other.lock(a, {}, 10 * LOCK_LEASE_MS), refused('locked'));
  }
  await other.lock(a, { type: 'unlock' });
});

test('a running client keeps its lock when the primary is disconnected, and no other gets it', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  cutOff(cluster, a);
  const over = new AbortController();
  const keeping = holder.keep(() => [b], over.signal);
  await atPrimary(() => b.files.becomePrimary(FILE));
  assert.ok((await b.files.locks(FILE)).graceMs > 0);
  await assert.rejects(
    atPrimary(() => other.lock(b)),
    refused('locked'),
  );
  assert.equal(
    (await b.files.locks(FILE)).graceMs,
    0,
    'It was refused because the lock is held, and not because the outcome is unknown',
  );
  assert.equal((await b.files.locks(FILE)).locks[0]?.client, 1);
  over.abort();
  assert.equal(await keeping, false, 'Nothing was lost');
});

test('a new primary grants nothing before the time to reclaim has passed', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  let granted = false;
  const waiting = atPrimary(() => other.lock(b)).then(() => {
    granted = true;
  });
  const { graceMs } = await b.files.locks(FILE);
  await delay(graceMs / 2);
  assert.equal(granted, false);
  // A wait that ends meanwhile ends without the lock, as any other, so that the client asks again and again.
  await assert.rejects(other.lock(b, {}, 10), refused('locked'));
  assert.deepEqual((await holder.renew(b)).lost, [], 'The holder arrives late, and in time');
  await assert.rejects(waiting, refused('locked'));
  assert.equal(granted, false);
});

test('a file created with contents, without a primary since, has no locks to reclaim', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b, c] = servers;
  const where = { epoch: firstEpoch(c.id, 3 as Incarnation), view: cluster.view, objectBytes: OBJECT_BYTES };
  const operations = creationOperations(Uint8Array.of(1), 1n);
  for (const { host } of servers) await host.createWithContents([{ file: FILE, operations }], where);
  const [holder, other] = [new Client(1), new Client(2)];
  await atPrimary(() => a.files.becomePrimary(FILE));
  await holder.lock(a);
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(2));
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  await assert.rejects(other.lock(b, {}, 10), refused('locked'), 'From then on there may be some');
  assert.deepEqual((await holder.renew(b)).lost, []);
});

/** At all servers, by the first. */
async function bear({ servers, view }: SmallCluster, { id, host }: SmallServer): Promise<void> {
  const where = { epoch: firstEpoch(id, 1 as Incarnation), view, objectBytes: OBJECT_BYTES };
  const operations = creationOperations(Uint8Array.of(1), 1n);
  for (const server of servers) await server.host.createWithContents([{ file: FILE, operations }], where);
  host.directoryEntryCreated(FILE);
}

test('a file created with contents, and changed without a primary since, has no locks to reclaim', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b] = servers;
  await bear(cluster, a);
  assert.equal((await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(2))).epoch, 1);
  const [holder, other] = [new Client(1), new Client(2)];
  // A wait is much shorter than the time to reclaim.
  await atPrimary(() => holder.lock(b, {}, 10_000));
  cutOff(cluster, b);
  await atPrimary(() => a.files.becomePrimary(FILE));
  await assert.rejects(other.lock(a, {}, 10), refused('locked'), 'From then on there may be some');
});

test('a file created with contents that had a primary, and was changed without one since, has locks to reclaim', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b] = servers;
  await bear(cluster, a);
  const [holder, other] = [new Client(1), new Client(2)];
  await holder.lock(a);
  await giveBack(a);
  a.host.unload(a.host.loaded(FILE) ?? assert.fail('It is in use'));
  assert.equal((await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(2))).epoch, 2);
  await assert.rejects(
    atPrimary(() => other.lock(b, {}, 10)),
    refused('locked'),
  );
});

test('a file created in the ordinary way has locks to reclaim, also if its operations are those of a creation with contents', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b] = servers;
  const made = { inode: FILE, kind: 'file', live: true, view: 1, replicas: cluster.view.members };
  a.files.created({ ...made, objectBytes: OBJECT_BYTES } as unknown as Attributes);
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const [holder, other] = [new Client(1), new Client(2)];
  await holder.lock(a);
  await a.files.settle(FILE);
  const { installed, seq } = a.store.record(FILE) ?? assert.fail('It is there');
  assert.deepEqual([installed.counter, seq], [1, 2]);
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  await assert.rejects(other.lock(b, {}, 10), refused('locked'));
  assert.deepEqual((await holder.renew(b)).lost, []);
});

/** Releases the file as a server does with an unused one. */
async function giveBack({ host, lease }: SmallServer): Promise<void> {
  await host.loaded(FILE)?.stop();
  lease.release(FILE);
  lease.close(FILE);
}

test('the next primary after one that ended in good order, without locks, grants some at once', async (t) => {
  const { servers } = await started(t);
  const [a, b] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const [one, other] = [new Client(1), new Client(2)];
  await one.lock(a);
  await one.lock(a, { type: 'unlock' });
  await giveBack(a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  // A wait is much shorter than the time to reclaim.
  await other.lock(b, {}, 10_000);
  assert.deepEqual((await other.renew(b)).lost, []);
});

test('locks that a primary left when it ended in good order can be reclaimed from the next', async (t) => {
  const { a, b, holder, other } = await locked(t);
  await giveBack(a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  await assert.rejects(other.lock(b, {}, 10_000), refused('locked'));
  assert.deepEqual((await holder.renew(b)).lost, []);
});

test('an unlock that has ended releases no newer lock, also if its primary ended and is primary again', async (t) => {
  const { a, holder, other } = await locked(t);
  const late = holder.body({ type: 'unlock' });
  await holder.lock(a);
  await giveBack(a);
  await atPrimary(() => a.files.becomePrimary(FILE));
  await assert.rejects(a.files.lock(FILE, late), refused('locked'));
  await assert.rejects(other.lock(a), refused('locked'));
  assert.deepEqual((await holder.renew(a)).lost, []);
});

test('a request sent before its client was forgotten, or by a client that knows no primary, sets no lock', async (t) => {
  const { a, b, holder, other } = await locked(t);
  const { epoch, lapses } = await holder.lock(a);
  const late = { ...holder.body({}), heard: { epoch, lapses: lapses ?? 0 } };
  await delay(1.2 * LOCK_LEASE_MS);
  const told = await a.files.lock(FILE, late);
  assert.equal(told.outdated, true);
  await other.lock(a);
  await other.lock(a, { type: 'unlock' });
  await giveBack(a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  for (const heard of [told, { epoch: 0 }]) {
    const answer = await b.files.lock(FILE, { ...holder.body({}), heard });
    assert.equal(answer.outdated, true);
    assert.notEqual(answer.epoch, told.epoch);
  }
  const { outdated, ...moment } = await b.files.lock(FILE, { ...holder.body({}), heard: { epoch: 0 } });
  assert.equal(outdated, true);
  assert.equal((await b.files.lock(FILE, { ...holder.body({}), heard: moment })).outdated, undefined);
  await assert.rejects(other.lock(b), refused('locked'));
});

test('a report that a primary left no locks is void once another one has been primary', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await giveBack(a);
  const [holder, other] = [new Client(1), new Client(2)];
  await atPrimary(() => holder.lock(b));
  cutOff(cluster, b);
  await atPrimary(() => c.files.becomePrimary(FILE));
  await assert.rejects(other.lock(c, {}, 10_000), refused('locked'));
  assert.deepEqual((await holder.renew(c)).lost, []);
});

test('a primary that ends while locks are reclaimed does not know that there are none', async (t) => {
  const { cluster, a, b, c, holder, other } = await locked(t);
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  await giveBack(b);
  await atPrimary(() => c.files.becomePrimary(FILE));
  await assert.rejects(other.lock(c, {}, 10_000), refused('locked'));
  assert.deepEqual((await holder.renew(c)).lost, []);
});

test('a primary ends its wait for reclaims when notified that there are none, for the epoch before and no other', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const { counter } = a.host.loaded(FILE)?.epoch ?? assert.fail('It has a primary');
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  assert.ok((await atPrimary(() => b.files.locks(FILE))).graceMs > 0);
  b.files.epochEndedUnlocked({ file: FILE, counter: counter - 1 });
  assert.ok((await b.files.locks(FILE)).graceMs > 0);
  const waiting = new Client(1).lock(b, {}, 10_000);
  b.files.epochEndedUnlocked({ file: FILE, counter });
  await waiting;
});

test('a client that arrives after the time to reclaim has lost its locks', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  cutOff(cluster, a);
  await atPrimary(() => other.lock(b));
  assert.deepEqual((await holder.renew(b)).lost, [0]);
  await other.lock(b, { type: 'unlock' });
  assert.deepEqual((await holder.renew(b)).lost, [0], 'Also if no other client has them');
});

test('a disconnected primary grants nothing once its lease has ended, not even to requests that waited there', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  cutOff(cluster, a);
  const outcome = other.lock(a, {}, 10_000).then(
    () => 'granted',
    (error: ServiceError) => error.code,
  );
  await atPrimary(() => b.files.becomePrimary(FILE));
  // The holder has died, and its lease there has ended, too.
  assert.notEqual(await outcome, 'granted');
  await delay(LOCK_LEASE_MS);
  for (const client of [holder, other]) {
    await assert.rejects(client.lock(a), (error: ServiceError) => error.code !== 'locked');
    await assert.rejects(client.renew(a), ServiceError);
  }
  await assert.rejects(a.files.locks(FILE), ServiceError);
});

test('a request that waits when the primary changes is redirected', async (t) => {
  const { cluster, servers } = await started(t);
  const [a] = servers;
  const [holder, other] = [new Client(1), new Client(2)];
  await holder.lock(a);
  const waiting = other.lock(a, {}, 10_000);
  const refusedThere = assert.rejects(waiting, refused('not-primary'));
  while ((await a.files.locks(FILE)).waiting === 0) await delay(1);
  const driver = a.host.loaded(FILE);
  await driver?.stop();
  a.lease.release(FILE);
  await refusedThere;
  // It ended in good order, and is the next primary: what it knew, it knows.
  const list = await atPrimary(() => a.files.locks(FILE));
  assert.deepEqual([list.graceMs, list.locks.map(({ client }) => client)], [0, [1]]);
  assert.ok(cluster.servers.length > 0);
});

test('an unlock of a part frees that part, and no more', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [one, two] = [new Client(1), new Client(2)];
  await one.lock(a, { start: 0, end: 99 });
  await one.lock(a, { type: 'unlock', start: 50, end: 59 });
  await two.lock(a, { start: 50, end: 59 });
  await assert.rejects(two.lock(a, { start: 49, end: 49 }), refused('locked'));
  await assert.rejects(two.lock(a, { start: 60, end: 60 }), refused('locked'));
});

test('positions beyond 2^53 are distinct bytes, and the end of the file is beyond them all', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const [one, two] = [new Client(1), new Client(2)];
  const at = (start: bigint, end = start) => ({ start: `${start}`, end: `${end}` });
  const [far, last] = [2n ** 53n, 2n ** 63n - 1n];
  await one.lock(a, at(far));
  await two.lock(a, at(far + 1n));
  await one.lock(a, at(last));
  await two.lock(a, at(last - 1n));
  // The number for the end of a file is also what earlier releases knew as the last byte: that byte is sent as digits.
  await two.lock(a, at(far - 1n));
  for (const start of [far, far - 1n, last]) {
    const wish = { ...at(start), owner: 'p' };
    await assert.rejects(one.lock(a, wish), refused('locked'), `${start}`);
    await assert.rejects(two.lock(a, wish), refused('locked'), `${start}`);
  }
  await assert.rejects(
    new Client(3).lock(a),
    refused('locked'),
    'A lock to the end covers more than they do',
  );
  await assert.rejects(one.lock(a, at(last + 1n)), refused('bad-request'));
  await assert.rejects(one.lock(a, at(last, far)), refused('bad-request'));
  const { locks } = await a.files.locks(FILE);
  assert.deepEqual(
    locks.filter(({ client }) => client === 2).map(({ start, end }) => [start, end]),
    [
      [Number.MAX_SAFE_INTEGER, `${far - 1n}`],
      [`${far + 1n}`, `${far + 1n}`],
      [`${last - 1n}`, `${last - 1n}`],
    ],
  );
  assert.deepEqual(
    (
      await one.renew(a, [
        { ...ALL, ...at(far) },
        { ...ALL, ...at(far + 1n) },
      ])
    ).lost,
    [1],
  );
  // A lock up to the end is reported as before, so that clients of before understand it.
  await one.lock(a, { start: `${last}`, end: Number.MAX_SAFE_INTEGER });
  const own = (await a.files.locks(FILE)).locks.filter(({ client }) => client === 1);
  assert.deepEqual(own.at(-1)?.end, Number.MAX_SAFE_INTEGER);
});

test('one token has a limited number of locks, all servers’ clients together, too, and released ones no longer count', async (t) => {
  const { servers } = await started(t);
  const [a] = servers;
  const place = (at: number) => ({ start: 2 * at, end: 2 * at });
  const [one, two, other] = [new Client(1), new Client(2), new Client(3)];
  const lock = (client: Client, at: number, holder: string | null, type: Wish['type'] = 'exclusive') =>
    a.files.lock(FILE, client.body({ ...place(at), type }), holder);
  for (let at = 0; at < LOCK_BOUNDS.holder; at++) await lock(at % 2 === 0 ? one : two, at, 'greedy');
  await assert.rejects(lock(one, 100, 'greedy'), refused('lock-limit'));
  await assert.rejects(lock(two, 100, 'greedy'), refused('lock-limit'));
  await lock(other, 200, 'modest');
  await lock(one, 0, 'greedy', 'unlock');
  await lock(two, 100, 'greedy');
  // Without authentication, each client has a share.
  const left = LOCK_BOUNDS.server - LOCK_BOUNDS.holder - 1;
  const nameless = new Client(4);
  for (let at = 0; at < left; at++) await lock(nameless, 300 + at, null);
  await assert.rejects(lock(new Client(5), 400, null), refused('lock-limit'));
  // A client that is silent for too long has none any more.
  while ((await a.files.locks(FILE)).locks.length > 0) await delay(LOCK_LEASE_MS / 10);
  for (let at = 0; at < LOCK_BOUNDS.holder; at++) await lock(one, at, 'greedy');
});
