/** The server that answered last for a file is the first to be asked after the next open. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LastPrimaries } from '../../client/cluster/last-primaries.ts';

test('all opens of a file ask the server that answered last first, also later ones', () => {
  const known = new LastPrimaries();
  const [one, other] = [known.subject(7, 's1'), known.subject(7, 's2')];
  assert.deepEqual([one.primary, other.primary], ['s1', 's2'], 'Nothing is known yet');
  one.primary = 's3';
  assert.deepEqual([one.primary, other.primary, known.subject(7, null).primary], ['s3', 's3', 's3']);
  assert.equal(known.subject(8, 's1').primary, 's1', 'It says nothing about other files');
});

test('the server that created a file is asked first', () => {
  const known = new LastPrimaries();
  known.note(7, 's2');
  assert.equal(known.subject(7, 's1').primary, 's2');
});

test('an entry that equals the default choice is dropped', () => {
  const known = new LastPrimaries();
  const subject = known.subject(7, 's1');
  for (const primary of ['s2', 's1', null]) subject.primary = primary;
  assert.deepEqual([subject.primary, known.subject(7, 's3').primary], ['s1', 's3']);
});
