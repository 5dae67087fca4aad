import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BoundedMap } from '../../base/bounded-map.ts';

test('the entry that was set the longest time ago makes room', () => {
  const map = new BoundedMap<string, number>(2);
  map.set('a', 1).set('b', 2).set('a', 3).set('c', 4);
  assert.deepEqual(
    [...map],
    [
      ['a', 3],
      ['c', 4],
    ],
  );
  map.delete('a');
  map.set('d', 5);
  assert.deepEqual([...map.keys()], ['c', 'd']);
});
