/**
 * Goal: of a file with a million objects, as one of 100 GiB has, the differences are found at a cost that follows them,
 * on a real disk, and without delaying other work.
 * Method: two data folders, the second a copy of the first; the test counts the traffic between them, and the rows that
 * one tick of the event loop reads.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import type { FileStore } from '../../server/storage/store.ts';
import { isLong } from '../long.ts';
import { DiskFixture, temporaryFolder } from '../storage/stores.ts';
import { CountedWire, epochOf, FILE, LoneReplica } from './transfer-pair.ts';

/** The bounds below are those of a million. */
const OBJECTS = isLong ? 1_000_000 : 200_000;
const OBJECT_BYTES = 16;
/** Objects whose entries one tick of the event loop may read: some milliseconds. */
const ROWS_PER_TURN_MAX = 3_000;

let first: DiskFixture;
let second: DiskFixture;

before(async () => {
  first = await DiskFixture.make();
  const replica = new LoneReplica(first.store);
  first.store.create(FILE, { number: 1, members: [] }, OBJECT_BYTES);
  await replica.begin(epochOf(1));
  const written = new Uint8Array(10_000 * OBJECT_BYTES).fill(7);
  for (let at = 0; at < OBJECTS; at += 10_000) await replica.write(at * OBJECT_BYTES, written);
  await first.close();
  const copy = temporaryFolder();
  fs.cpSync(first.path, copy, { recursive: true });
  await first.open();
  second = await DiskFixture.make({}, copy);
});

after(async () => {
  await first.dispose();
  await second.dispose();
});

/** The store, with the most rows that any tick has read until now. */
function watched(store: FileStore): { readonly store: FileStore; readonly rowsPerTurn: () => number } {
  let inTurn = 0;
  let most = 0;
  const entries: FileStore['entries'] = (...asked) => {
    const found = store.entries(...asked);
    if (inTurn === 0) {
      setImmediate(() => {
        inTurn = 0;
      });
    }
    inTurn += Math.max(1, found.length);
    most = Math.max(most, inTurn);
    return found;
  };
  const proxy = new Proxy(store, {
    get: (target, name) => {
      if (name === 'entries') return entries;
      const member = Reflect.get(target, name) as unknown;
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
  return { store: proxy, rowsPerTurn: () => most };
}

interface Measured {
  readonly messages: number;
  readonly bytes: number;
}

/** Brings the second folder's replica to the state of the first one's, and counts. */
async function bring(): Promise<Measured> {
  const [theirs, mine] = [watched(first.store), watched(second.store)];
  const source = new LoneReplica(theirs.store);
  const target = new LoneReplica(mine.store);
  const wire = new CountedWire({ source });
  await wire.bring(target, 'source');
  const [digests, expected] = [await second.store.digests(FILE), await first.store.digests(FILE)];
  assert.deepEqual(digests.total, expected.total);
  assert.deepEqual(second.store.attributes(FILE), first.store.attributes(FILE));
  assert.equal(target.seq, source.seq);
  for (const rows of [theirs.rowsPerTurn(), mine.rowsPerTurn()]) {
    assert.ok(rows <= ROWS_PER_TURN_MAX, `${rows} rows in one tick`);
  }
  return { messages: wire.messages, bytes: wire.bytes };
}

test('of many objects, one that was written while the laggard was disconnected costs one small message', async () => {
  const source = new LoneReplica(first.store);
  await source.write(123_456 * OBJECT_BYTES, new Uint8Array(OBJECT_BYTES).fill(1));
  const { messages, bytes } = await bring();
  assert.equal(messages, 1);
  assert.ok(bytes < 500, `${bytes} bytes`);
});

test('of many objects, none that differs costs one small message', async () => {
  const { messages, bytes } = await bring();
  assert.equal(messages, 1);
  assert.ok(bytes < 300, `${bytes} bytes`);
});

test('of many objects, one that only the laggard changed is found in a few kilobytes', async () => {
  const target = new LoneReplica(second.store);
  await target.begin(epochOf(2));
  await target.write(177_777 * OBJECT_BYTES, new Uint8Array(OBJECT_BYTES).fill(2));
  await new LoneReplica(first.store).begin(epochOf(3));
  const { messages, bytes } = await bring();
  assert.ok(messages <= 8, `${messages} messages`);
  assert.ok(bytes < 3_000, `${bytes} bytes`);
});

test('of many objects, a thousand that were written meanwhile are listed one by one', async () => {
  const source = new LoneReplica(first.store);
  for (let at = 0; at < 1_000; at++) {
    await source.write(((at * 7_919) % OBJECTS) * OBJECT_BYTES, new Uint8Array(OBJECT_BYTES).fill(at));
  }
  const { messages, bytes } = await bring();
  assert.ok(messages <= 15, `${messages} messages`);
  assert.ok(bytes < 100_000, `${bytes} bytes`);
});

test('of many objects, a thousand that only the laggard changed cost a few hundred bytes each', async () => {
  const target = new LoneReplica(second.store);
  await target.begin(epochOf(4));
  for (let at = 0; at < 1_000; at++) {
    await target.write(((at * 7_919) % OBJECTS) * OBJECT_BYTES, new Uint8Array(OBJECT_BYTES).fill(at + 1));
  }
  await new LoneReplica(first.store).begin(epochOf(5));
  const { messages, bytes } = await bring();
  assert.ok(messages <= 40, `${messages} messages`);
  assert.ok(bytes < 600_000, `${bytes} bytes`);
});

test('a truncate and an extend of a million objects leave a hole that costs a few kilobytes', async () => {
  const source = new LoneReplica(first.store);
  await source.truncate(990_000 * OBJECT_BYTES + 1);
  await source.truncate(OBJECTS * OBJECT_BYTES);
  const { messages, bytes } = await bring();
  assert.ok(messages <= 8, `${messages} messages`);
  assert.ok(bytes < 5_000, `${bytes} bytes`);
});
