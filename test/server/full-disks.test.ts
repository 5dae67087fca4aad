import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { FullDisks } from '../../server/process/full-disks.ts';
import { DiskReserve } from '../../server/storage/reserve.ts';
import { systemWorld } from '../../world/system-world.ts';

const MIB = 2 ** 20;
const [OWN, OTHER] = ['s1', 's2'] as ServerId[] as [ServerId, ServerId];

/** Two servers, of which the first has a disk that the test fills. */
function pair() {
  const disk = { totalBytes: 1_024 * MIB, freeBytes: 512 * MIB };
  const reserve = new DiskReserve(() => disk, systemWorld.nowMs);
  const silent = pino({ enabled: false });
  const calls: Promise<Uint8Array>[] = [];
  const other = new FullDisks({
    world: systemWorld,
    ...{ log: silent, reserve: new DiskReserve(() => ({ totalBytes: 1, freeBytes: 1 }), systemWorld.nowMs) },
    ...{ peers: () => [], isConnected: () => true },
    call: () => Promise.reject(new Error('It has nothing to say')),
  });
  const own = new FullDisks({
    world: systemWorld,
    ...{ log: silent, reserve, peers: () => [OTHER], isConnected: () => true },
    call: (_to, _method, payload) => {
      const answer = Promise.resolve(other.serve(OWN, payload));
      calls.push(answer);
      return answer;
    },
  });
  return { disk, own, other, calls };
}

test('a disk that other programs fill is noticed although nothing is stored, and so is its freed space', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { disk, own, other, calls } = pair();
  own.start();
  t.mock.timers.tick(3_000);
  assert.deepEqual([other.isFull(OWN), calls.length], [false, 0], 'Free space is not reported');
  disk.freeBytes = 1 * MIB;
  t.mock.timers.tick(1_000);
  assert.ok(other.isFull(OWN), 'The other server knows');
  t.mock.timers.tick(2_000);
  assert.equal(calls.length, 3, 'Reported again, for servers that were disconnected');
  disk.freeBytes = 512 * MIB;
  t.mock.timers.tick(1_000);
  assert.deepEqual([other.isFull(OWN), own.isAnyFull], [false, false]);
  own.close();
  disk.freeBytes = 0;
  t.mock.timers.tick(5_000);
  assert.equal(calls.length, 4);
});

test('a disk that is full at the start is reported at once', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { disk, own, other } = pair();
  disk.freeBytes = 0;
  own.start();
  assert.ok(other.isFull(OWN));
  own.close();
});
