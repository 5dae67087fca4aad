/**
 * Goal: bytes that were sent under locks, and arrive after their client has lost them, replace nothing that others have
 * written under these locks since.
 * Method: the servers of a file in one process; a change names the locks under which it was made, and is executed late.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ALL, atPrimary, type Client, cutOff, locked, refused } from './lock-client.ts';
import { delay, FILE, LOCK_LEASE_MS, requestOf, type SmallServer } from './small-cluster.ts';

let number = 10;

/** @param stamp the client's when it got its locks */
function write(server: SmallServer, { id }: Client, stamp: number, byte: number) {
  const request = { ...requestOf(++number), under: { client: id, stamp } };
  return atPrimary(() => server.files.write(FILE, request, 0, Uint8Array.of(byte)));
}

const byteAt = async (server: SmallServer): Promise<number | undefined> =>
  (await atPrimary(() => server.files.read(FILE, 0, 1))).bytes[0];

test('a change under locks that its client has lost is refused, also once it has new ones', async (t) => {
  const { a, holder, other } = await locked(t);
  const { stamp } = holder;
  await write(a, holder, stamp, 2);
  // Its client is silent, and its lease ends.
  await delay(1.1 * LOCK_LEASE_MS);
  await other.lock(a);
  await write(a, other, other.stamp, 3);
  await assert.rejects(write(a, holder, stamp, 4), refused('lease-lost'));
  await assert.rejects(
    a.files.truncate(FILE, { ...requestOf(++number), under: { client: holder.id, stamp } }, 0),
    refused('lease-lost'),
  );
  await other.lock(a, { type: 'unlock' });
  await holder.lock(a);
  await assert.rejects(write(a, holder, stamp, 5), refused('lease-lost'));
  assert.equal(await byteAt(a), 3);
  await write(a, holder, holder.stamp, 6);
  assert.equal(await byteAt(a), 6);
});

test('the next primary accepts changes under reclaimed locks, and refuses those under others', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  const { stamp } = holder;
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  const waiting = write(b, holder, stamp, 2);
  assert.deepEqual((await holder.renew(b)).lost, []);
  await waiting;
  const { graceMs } = await b.files.locks(FILE);
  const over = new AbortController();
  const keeping = holder.keep(() => [b], over.signal);
  await delay(graceMs + 1);
  await write(b, holder, stamp, 3);
  over.abort();
  await keeping;
  await assert.rejects(write(b, other, other.stamp, 4), refused('lease-lost'));
  assert.equal(await byteAt(b), 3);
});

test('a change that arrives after its client has released its locks is refused, also if it has others', async (t) => {
  const { a, holder, other } = await locked(t);
  const { stamp } = holder;
  await holder.lock(a, { type: 'unlock' });
  await assert.rejects(write(a, holder, stamp, 2), refused('lease-lost'));
  await other.lock(a);
  await write(a, other, other.stamp, 3);
  await other.lock(a, { type: 'unlock' });
  await holder.lock(a);
  await assert.rejects(write(a, holder, stamp, 4), refused('lease-lost'));
  assert.equal(await byteAt(a), 3);
  await write(a, holder, holder.stamp, 5);
  assert.equal(await byteAt(a), 5);
});

test('the next primary refuses a change under locks that were released before, whatever its client reclaims', async (t) => {
  const { cluster, a, b, holder } = await locked(t);
  const { stamp } = holder;
  await holder.lock(a, { type: 'unlock' });
  await holder.lock(a);
  const since = holder.stamp;
  await write(a, holder, since, 2);
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  const late = { ...requestOf(++number), under: { client: holder.id, stamp } };
  // Nothing is reclaimed, and nothing is known of the epoch before.
  await assert.rejects(b.files.write(FILE, late, 0, Uint8Array.of(3)), refused('busy'));
  assert.deepEqual((await holder.renew(b, undefined, since)).lost, []);
  await assert.rejects(b.files.write(FILE, late, 0, Uint8Array.of(3)), refused('lease-lost'));
  assert.equal(await byteAt(b), 2);
  await write(b, holder, since, 4);
  assert.equal(await byteAt(b), 4);
});

test('a failed change is refused once its lock is released, also if its client has another lock all the time', async (t) => {
  const { cluster, a, b, holder, other } = await locked(t);
  const { stamp } = holder;
  const rest = { ...ALL, start: 10 };
  const since = stamp + 1;
  holder.body({});
  await holder.unlock(a, { start: 0, end: 9 }, since);
  await other.lock(a, { start: 0, end: 9 });
  await write(a, other, other.stamp, 3);
  await assert.rejects(write(a, holder, stamp, 4), refused('lease-lost'));
  await write(a, holder, since, 5);
  // An older message than the newest, such as one that is sent again, takes nothing of that back.
  await holder.renew(a, [rest], stamp);
  await assert.rejects(write(a, holder, stamp, 6), refused('lease-lost'));
  cutOff(cluster, a);
  await atPrimary(() => b.files.becomePrimary(FILE));
  // The next primary learns it from the first message, whichever that is.
  await holder.unlock(b, { start: 0, end: 9 }, since);
  assert.deepEqual((await holder.renew(b, [rest])).lost, []);
  await assert.rejects(write(b, holder, stamp, 7), refused('lease-lost'));
  await write(b, holder, since, 8);
  assert.equal(await byteAt(b), 8);
});

test('a waiting request ends when other locks of its client end with their lease: a newer message gets the lock', async (t) => {
  const { a, holder, other } = await locked(t);
  const part = { start: 0, end: 9 };
  await holder.lock(a, { ...part, type: 'unlock' });
  await other.lock(a, part);
  await delay(0.5 * LOCK_LEASE_MS);
  await other.renew(a, [{ ...ALL, ...part }]);
  await delay(0.45 * LOCK_LEASE_MS);
  const waiting = holder.lock(a, { ...part, owner: 'waits' }, LOCK_LEASE_MS).then(
    () => 'granted',
    (error: unknown) => refused('locked')(error) && 'over',
  );
  // Of a change under the ended locks, sent after the request.
  holder.body({});
  const { stamp } = holder;
  while ((await a.files.locks(FILE)).locks.some(({ client }) => client === holder.id)) await delay(1);
  await other.lock(a, { ...part, type: 'unlock' });
  assert.equal(await waiting, 'over');
  await holder.lock(a, { ...part, owner: 'waits' });
  await assert.rejects(write(a, holder, stamp, 2), refused('lease-lost'));
});
