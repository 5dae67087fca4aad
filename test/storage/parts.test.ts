import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { bytesWithout } from '../../server/storage/contents.ts';
import { SharedFlush } from '../../server/storage/shared-flush.ts';
import { SlotMap } from '../../server/storage/slot-map.ts';

test('the remains of an object share no memory with it, not even of a Buffer', () => {
  const bytes = Buffer.from('abcdefgh');
  for (const removed of [
    { from: 0, to: 4 },
    { from: 4, to: 8 },
  ]) {
    bytesWithout(bytes, removed).fill(1);
    assert.equal(bytes.toString(), 'abcdefgh');
  }
});

describe('slot map', () => {
  test('lays a file out as it is read, and fills gaps', () => {
    const slots = new SlotMap();
    assert.equal(slots.takeRun(4, -1), 0);
    assert.equal(slots.takeRun(2, 4), 4);
    slots.free(1);
    slots.free(2);
    assert.equal(slots.takeRun(3, 1), 6, 'no three are free before the end');
    assert.equal(slots.takeRun(2, -1), 1);
    assert.equal(slots.end, 9);
  });

  test('never allocates a slot twice, and ends after the last', () => {
    const step = fc.oneof(
      fc.record({ take: fc.integer({ min: 1, max: 9 }), near: fc.integer({ min: -1, max: 400 }) }),
      fc.record({ free: fc.nat(1000) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const slots = new SlotMap();
        const used = new Set<number>();
        for (const next of steps) {
          if ('take' in next) {
            const first = slots.takeRun(next.take, next.near);
            for (let slot = first; slot < first + next.take; slot++) {
              assert.ok(!used.has(slot));
              used.add(slot);
            }
          } else if (used.size > 0) {
            const slot = [...used][next.free % used.size] as number;
            slots.free(slot);
            used.delete(slot);
          }
          assert.equal(slots.end, Math.max(-1, ...used) + 1);
          for (const slot of used) assert.ok(slots.has(slot));
        }
      }),
    );
  });
});

describe('shared flush', () => {
  test('a caller during a flush shares the next one', async () => {
    const ends: (() => void)[] = [];
    const flush = new SharedFlush(() => new Promise((resolve) => ends.push(resolve)));
    const first = flush.request();
    const second = flush.request();
    const third = flush.request();
    assert.equal(ends.length, 1);
    assert.equal(second, third);
    ends[0]?.();
    await first;
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(ends.length, 2, 'the second begins after the requests of those that share it');
    ends[1]?.();
    await second;
  });

  test('a caller in the moment between two shares the second', async () => {
    const ends: (() => void)[] = [];
    const flush = new SharedFlush(() => new Promise((resolve) => ends.push(resolve)));
    const first = flush.request();
    const between = first.then(() => flush.request());
    const second = flush.request();
    ends[0]?.();
    await first;
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(ends.length, 2, 'one flush serves both');
    ends[1]?.();
    await Promise.all([second, between]);
  });

  test('a failure is permanent', async () => {
    let count = 0;
    const flush = new SharedFlush(async () => {
      count++;
      throw new Error('EIO');
    });
    const first = flush.request();
    const second = flush.request();
    await assert.rejects(first);
    await assert.rejects(second);
    await assert.rejects(flush.request());
    assert.equal(count, 1);
  });
});
