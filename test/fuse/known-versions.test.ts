/**
 * Goal: a mount knows the version of a file's contents at the cluster, or none: never that of before its own writes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attributes } from '../../fuse/backend.ts';
import { KnownVersions } from '../../fuse/pending/known-versions.ts';

const FILE = { inode: 7, kind: 'file', live: false, contents: { epoch: 1, seq: 1 } } as Attributes;
const NEWER = { epoch: 1, seq: 2 };

test('after a write of the mount the version is unknown, until the catalog has the new one', () => {
  const seen = new KnownVersions();
  seen.learn(FILE, seen.request());
  assert.deepEqual(seen.of(7), FILE.contents);
  const before = seen.request();
  seen.written(7);
  const writtenAt = seen.request();
  seen.learn(FILE, before);
  assert.equal(seen.of(7), undefined, 'The request began before the write');
  seen.written(7);
  seen.settled(7, NEWER, writtenAt);
  assert.equal(seen.of(7), undefined, 'The file was written again meanwhile');
  seen.settled(7, NEWER, seen.request());
  assert.deepEqual(seen.of(7), NEWER);
});

test('the version of a live file, and of an inode that is no file, is unknown', () => {
  const seen = new KnownVersions();
  seen.learn({ ...FILE, live: true }, seen.request());
  seen.learn({ ...FILE, kind: 'symlink' }, seen.request());
  assert.equal(seen.of(7), undefined);
});
