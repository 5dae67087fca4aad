import assert from 'node:assert/strict';
import { test } from 'node:test';
import { earlierNs, isLater, laterNs } from '../../base/times.ts';

test('moments are in the order of their numbers, before 1970 and of fewer digits, too', () => {
  const inOrder = [
    '-1000',
    '-999',
    '-998',
    '-10',
    '-9',
    '-8',
    '0',
    '9',
    '10',
    '999',
    '1000',
    '1795550240887000000',
  ];
  for (const [place, a] of inOrder.entries()) {
    for (const [other, b] of inOrder.entries()) {
      assert.equal(isLater(a, b), place > other, `${a}, ${b}`);
      assert.equal(laterNs(a, b), inOrder[Math.max(place, other)]);
      assert.equal(earlierNs(a, b), inOrder[Math.min(place, other)]);
    }
  }
});
