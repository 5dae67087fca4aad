/** Who answered for a file last is asked first, by whoever opens it again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LastPrimaries } from '../../client/cluster/last-primaries.ts';

test('who answered last is asked first by all who have the file open, and by those who open it later', () => {
  const known = new LastPrimaries();
  const [one, other] = [known.subject(7, 's1'), known.subject(7, 's2')];
  assert.deepEqual([one.primary, other.primary], ['s1', 's2'], 'Nothing is known yet');
  one.primary = 's3';
  assert.deepEqual([one.primary, other.primary, known.subject(7, null).primary], ['s3', 's3', 's3']);
  assert.equal(known.subject(8, 's1').primary, 's1', 'Of other files that says nothing');
});

test('who has made a file is asked first', () => {
  const known = new LastPrimaries();
  known.note(7, 's2');
  assert.equal(known.subject(7, 's1').primary, 's2');
});

test('what is known is forgotten where it is what would be asked anyway', () => {
  const known = new LastPrimaries();
  const subject = known.subject(7, 's1');
  for (const primary of ['s2', 's1', null]) subject.primary = primary;
  assert.deepEqual([subject.primary, known.subject(7, 's3').primary], ['s1', 's3']);
});
