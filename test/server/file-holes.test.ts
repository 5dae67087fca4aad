import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import type { CopyPiece } from '../../server/routing/service-interfaces.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

async function started(
  ids: readonly string[],
  close: (cluster: SmallCluster) => void,
): Promise<SmallCluster> {
  const cluster = new SmallCluster(ids, {}, STEADY);
  close(cluster);
  await cluster.ready();
  return cluster;
}

/** A backup answers once it has a read lease, which it requests when it is asked. */
async function atBackup<Value>(look: () => Promise<Value>): Promise<Value> {
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'not-primary') throw error;
      await delay(1);
    }
  }
}

test('a punch is one operation, however often it is requested', async (t) => {
  const cluster = await started(['a', 'b', 'c'], (made) => t.after(() => made.close()));
  const [a, b] = cluster.servers as [SmallServer, SmallServer];
  await a.files.write(FILE, requestOf(1), 0, new Uint8Array(100).fill(7));
  const hole = { from: 20, to: 50, grows: false };
  const punched = await a.files.punch(FILE, requestOf(2), hole);
  assert.deepEqual([punched.sizeBytes, punched.offset], [100, 50]);
  await a.files.write(FILE, requestOf(3), 30, Uint8Array.of(9));
  const again = await a.files.punch(FILE, requestOf(2), hole);
  assert.deepEqual([again.seq, again.modifiedNs], [punched.seq, punched.modifiedNs]);
  const wanted = Buffer.alloc(100, 7).fill(0, 20, 50).fill(9, 30, 31);
  assert.deepEqual(Buffer.from((await a.files.read(FILE, 0, 200)).bytes), wanted);
  // A backup with a read lease shows nothing from before the punch.
  const shown = await atBackup(() => b.files.read(FILE, 0, 200));
  assert.equal(shown.served, 'local');
  assert.deepEqual(Buffer.from(shown.bytes), wanted);
  assert.deepEqual(cluster.fatal, []);
});

test('an append after a punch that extends the file goes behind it, and a retry of the punch does not cut it', async (t) => {
  const cluster = await started(['a'], (made) => t.after(() => made.close()));
  const [{ files }] = cluster.servers as [SmallServer];
  const grow = { from: 5000, to: 5000, grows: true };
  await files.punch(FILE, requestOf(1), grow);
  const appended = await files.write(FILE, requestOf(2), 'append', Uint8Array.of(1));
  assert.deepEqual([appended.offset, appended.sizeBytes], [5000, 5001]);
  assert.equal((await files.punch(FILE, requestOf(3), grow)).sizeBytes, 5001);
  await assert.rejects(files.punch(FILE, requestOf(4), { from: 7, to: 6, grows: false }), {
    code: 'bad-request',
  });
});

test("a repeated copy is answered, and does not copy the source's later contents", async (t) => {
  const cluster = await started(['a', 'b', 'c'], (made) => t.after(() => made.close()));
  const [a] = cluster.servers as [SmallServer];
  const pieces: CopyPiece[] = [
    { kind: 'data', bytes: new Uint8Array(10).fill(1) },
    { kind: 'hole', length: 1000 },
    { kind: 'end' },
  ];
  let asked = 0;
  const read = async (): Promise<CopyPiece> => pieces[asked++] as CopyPiece;
  const copied = await a.files.copy(FILE, requestOf(1), 0, read);
  assert.deepEqual([copied.offset, copied.sizeBytes], [10, 10]);
  const again = await a.files.copy(FILE, requestOf(1), 0, read);
  assert.deepEqual([again.offset, again.seq, asked], [10, copied.seq, 1]);
  const hole = await a.files.copy(FILE, requestOf(2), 10, read);
  assert.deepEqual([hole.offset, hole.sizeBytes], [1010, 1010]);
  assert.deepEqual((await a.files.copy(FILE, requestOf(2), 10, read)).offset, 1010);
  const end = await a.files.copy(FILE, requestOf(3), 1010, read);
  assert.deepEqual([end.offset, end.sizeBytes, asked], [1010, 1010, 3]);
  await assert.rejects(
    a.files.copy(FILE, requestOf(4), 0, () => Promise.reject(new ServiceError('not-found', 'No source'))),
    { code: 'not-found' },
  );
  assert.equal((await a.files.read(FILE, 0, 10)).bytes[0], 1);
});

/**
 * Goal: data is never reported as a hole, and data and holes are where the search says.
 * Method: random writes, truncates and punches beside a model of which objects have what; then every search is compared
 * with the contents themselves, at the primary and at a backup.
 */
test('searches for data and holes agree with the contents', { timeout: 60_000 }, async (t) => {
  const cluster = await started(['a', 'b', 'c'], (made) => t.after(() => made.close()));
  const [a, b] = cluster.servers as [SmallServer, SmallServer];
  let number = 0;
  const place = fc.integer({ min: 0, max: 6 * OBJECT_BYTES });
  const step = fc.oneof(
    fc.record({
      kind: fc.constant('write' as const),
      at: place,
      length: fc.integer({ min: 1, max: OBJECT_BYTES }),
    }),
    fc.record({
      kind: fc.constant('punch' as const),
      at: place,
      length: fc.integer({ min: 1, max: 3 * OBJECT_BYTES }),
    }),
    fc.record({ kind: fc.constant('truncate' as const), at: place, length: fc.constant(0) }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 8 }),
      fc.array(place, { maxLength: 6 }),
      async (steps, looks) => {
        await a.files.truncate(FILE, requestOf(++number), 0);
        let model = Buffer.alloc(0);
        for (const { kind, at, length } of steps) {
          const request = requestOf(++number);
          const size =
            kind === 'write' ? Math.max(model.length, at + length) : kind === 'truncate' ? at : model.length;
          const next = Buffer.alloc(size);
          model.copy(next);
          model = next;
          if (kind === 'write') {
            model.fill(1, at, at + length);
            await a.files.write(FILE, request, at, new Uint8Array(length).fill(1));
          } else if (kind === 'truncate') await a.files.truncate(FILE, request, at);
          else {
            model.fill(0, Math.min(at, size), Math.min(at + length, size));
            await a.files.punch(FILE, request, { from: at, to: at + length, grows: false });
          }
        }
        for (const { files } of [a, b]) {
          assert.ok(model.equals((await atBackup(() => files.read(FILE, 0, 8 * OBJECT_BYTES))).bytes));
          for (const at of looks) {
            const data = (await atBackup(() => files.extent(FILE, at, 'data'))).found;
            const hole = (await atBackup(() => files.extent(FILE, at, 'hole'))).found;
            if (at >= model.length) {
              assert.deepEqual([data, hole], [null, null]);
              continue;
            }
            const next = model.indexOf(1, at);
            assert.ok(
              next === -1 || (data !== null && data <= next),
              `Data at ${next}, and found at ${data}`,
            );
            if (data !== null) assert.ok(data >= at && data < model.length);
            assert.ok(hole !== null && hole >= at && hole <= model.length);
            // A reported hole ends at the next reported data.
            const after =
              hole < model.length ? (await atBackup(() => files.extent(FILE, hole, 'data'))).found : null;
            const behind = model.subarray(hole, after ?? model.length);
            assert.ok(!behind.includes(1), `Data in the hole from ${hole} to ${after}`);
            assert.ok(data === at || hole === at, 'Every position is data or hole');
          }
        }
      },
    ),
    { numRuns: 25 },
  );
  assert.deepEqual(cluster.fatal, []);
});
