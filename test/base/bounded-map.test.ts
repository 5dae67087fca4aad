import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BoundedMap, LruMap } from '../../base/bounded-map.ts';
import { RecentMap } from '../../base/recent-map.ts';

test('a full map drops the entry that was set least recently', () => {
  const dropped: [string, number][] = [];
  const map = new BoundedMap<string, number>(2, (key, value) => dropped.push([key, value]));
  map.set('a', 1).set('b', 2).set('a', 3).set('c', 4);
  assert.deepEqual(map.entries(), [
    ['a', 3],
    ['c', 4],
  ]);
  assert.deepEqual([map.delete('a'), map.delete('a'), map.delete('b')], [true, false, false]);
  assert.deepEqual([map.has('a'), map.get('a'), map.size], [false, undefined, 1]);
  map.set('d', 5).set('a', 6);
  assert.deepEqual(dropped, [
    ['b', 2],
    ['c', 4],
  ]);
  map.clear();
  assert.deepEqual([map.size, map.entries(), map.has('d')], [0, [], false]);
  map.set('f', 7);
  assert.deepEqual(map.entries(), [['f', 7]]);
});

test('a full map drops the entry that was read or set least recently; peeking is not reading', () => {
  const map = new LruMap<string, number>(2);
  map.set('a', 1).set('b', 2);
  assert.equal(map.get('a'), 1);
  assert.equal(map.peek('b'), 2);
  map.set('c', 3);
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => map.get(key)),
    [1, undefined, 3],
  );
});

test('a bounded map equals a Map with the same changes', () => {
  const random = (count: number): number => Math.floor(Math.random() * count);
  const map = new RecentMap<number, number>();
  const model = new Map<number, number>();
  for (let change = 0; change < 20_000; change++) {
    const key = random(300);
    const kind = random(10);
    if (kind < 5) assert.equal(map.delete(key), model.delete(key));
    else {
      model.delete(key);
      model.set(key, change);
      map.set(key, change);
    }
    assert.deepEqual([map.get(key), map.has(key), map.size], [model.get(key), model.has(key), model.size]);
    if (kind === 9 && change % 7 === 0) {
      const [oldest] = model;
      assert.deepEqual(map.takeOldest(), oldest);
      if (oldest !== undefined) model.delete(oldest[0]);
    }
    if (change % 1_000 === 0) assert.deepEqual(map.entries(), [...model]);
  }
});

test('the oldest entries are removed up to the first that has not expired', () => {
  const map = new RecentMap<string, number>();
  map.set('a', 1).set('b', 2).set('c', 9).set('d', 3);
  const isPast = (value: number): boolean => value < 5;
  assert.deepEqual(map.takeWhile(isPast), [
    ['a', 1],
    ['b', 2],
  ]);
  assert.deepEqual([map.takeWhile(isPast), map.size], [[], 2]);
  assert.deepEqual(
    map.takeWhile(() => true).map(([key]) => key),
    ['c', 'd'],
  );
});

for (const { what, change } of [
  {
    what: 'one that drops an entry',
    change: (map: BoundedMap<number, number>, turn: number) => map.set(-turn, turn),
  },
  {
    what: 'one that is set over and over',
    change: (map: BoundedMap<number, number>, turn: number) => map.set(1, turn),
  },
  {
    what: 'one that is deleted and set over and over',
    change: (map: BoundedMap<number, number>, turn: number) => map.delete(1) && map.set(1, turn),
  },
])
  test(`${what} costs as much in a large map as in a small one`, () => {
    const cpuOf = (countMax: number): number => {
      const map = new BoundedMap<number, number>(countMax);
      for (let key = 0; key < countMax; key++) map.set(key, key);
      map.set(1, 1);
      const before = process.cpuUsage();
      for (let turn = 0; turn < 100_000; turn++) change(map, turn);
      const { user, system } = process.cpuUsage(before);
      return user + system;
    };
    cpuOf(1_000);
    const ratio = cpuOf(50_000) / cpuOf(100);
    assert.ok(ratio < 20, `${ratio.toFixed(1)} times as much`);
  });
