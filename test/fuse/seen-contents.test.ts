/** Goal: a mount says of a file the contents that it has at the cluster, or none: not those of before its own writes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attributes } from '../../fuse/backend.ts';
import { KnownVersions } from '../../fuse/pending/seen-contents.ts';

const FILE = { inode: 7, kind: 'file', live: false, contents: { epoch: 1, seq: 1 } } as Attributes;
const NEWER = { epoch: 1, seq: 2 };

test('after a write of the mount the contents are unknown, until the catalog knows the new ones', () => {
  const seen = new KnownVersions();
  seen.learn(FILE, seen.request());
  assert.deepEqual(seen.of(7), FILE.contents);
  const before = seen.request();
  seen.written(7);
  const writtenAt = seen.request();
  seen.learn(FILE, before);
  assert.equal(seen.of(7), undefined, 'It was asked for before the write');
  seen.written(7);
  seen.settled(7, NEWER, writtenAt);
  assert.equal(seen.of(7), undefined, 'It was written again meanwhile');
  seen.settled(7, NEWER, seen.request());
  assert.deepEqual(seen.of(7), NEWER);
});

test('of a live file and of what is no file nothing is known', () => {
  const seen = new KnownVersions();
  seen.learn({ ...FILE, live: true }, seen.request());
  seen.learn({ ...FILE, kind: 'symlink' }, seen.request());
  assert.equal(seen.of(7), undefined);
});
