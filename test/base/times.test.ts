import assert from 'node:assert/strict';
import { test } from 'node:test';
import { earlierNs, isLater, laterNs } from '../../base/times.ts';

test('timestamps sort by their value, also before 1970 and with fewer digits', () => {
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
