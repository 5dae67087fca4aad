import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RefusedOpens } from '../../fuse/refused-opens.ts';

const [THREAD, OTHER] = [100, 200];

test('whoever was refused opens what it has looked up since, and only that', () => {
  for (const [found, opened, isMeant] of [
    [7, 7, true],
    [8, 8, true],
    [8, 7, false],
  ] as const) {
    const refused = new RefusedOpens();
    refused.refuse(THREAD, 7);
    // On the way there are directories.
    for (const inode of [2, found]) {
      assert.equal(refused.looks(THREAD), true);
      refused.found(THREAD, inode);
    }
    assert.equal(refused.comesBack(THREAD, opened), isMeant);
    assert.equal(refused.comesBack(THREAD, opened), false, 'Once');
  }
});

test('what has no name is opened when it comes back without a look-up; what has one is not, where that was not answered', () => {
  const refused = new RefusedOpens();
  refused.refuse(THREAD, 7);
  assert.equal(refused.comesBack(THREAD, 7), true);
  refused.refuse(THREAD, 7);
  assert.equal(refused.comesBack(THREAD, 8), false);
  refused.refuse(THREAD, 7);
  refused.looks(THREAD);
  assert.equal(refused.comesBack(THREAD, 7), false);
});

test('a look-up in vain ends it, and another thread has no part in it', () => {
  const refused = new RefusedOpens();
  refused.refuse(THREAD, 7);
  assert.deepEqual([refused.looks(OTHER), refused.comesBack(OTHER, 7)], [false, false]);
  assert.equal(refused.looks(THREAD), true);
  refused.found(THREAD, null);
  assert.deepEqual([refused.looks(THREAD), refused.comesBack(THREAD, 7)], [false, false]);
});
