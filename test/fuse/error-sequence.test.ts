/**
 * Goal: a descriptor returns each error of its file, directory or volume once, as Linux does with `errseq_t`:
 * Documentation/core-api/errseq.rst, "Handling errors during writeback" of Documentation/filesystems/vfs.rst, fsync(2)
 * and syncfs(2).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ErrorCursor, ErrorSequence } from '../../fuse/pending/error-sequence.ts';

const FILE = 7;
const OTHER = 8;
const DIRECTORY = 2;
const LOST = new Error('lost');
const AGAIN = new Error('lost again');

const failed = (inode = FILE) => ({ kind: 'file', inode }) as const;
const failedIn = (inode: number) => ({ kind: 'directory', inode }) as const;

test('fsync of each descriptor that was open returns an error once', () => {
  const errors = new ErrorSequence();
  const descriptors = [new ErrorCursor(errors, FILE), new ErrorCursor(errors, FILE)];
  errors.set(failed(), LOST);
  for (const descriptor of descriptors) {
    assert.equal(descriptor.checkAndAdvance(), LOST);
    assert.equal(descriptor.checkAndAdvance(), undefined);
  }
  errors.set(failed(), AGAIN);
  for (const descriptor of descriptors) assert.equal(descriptor.checkAndAdvance(), AGAIN);
});

test('of several errors since the last fsync the latest is returned', () => {
  const errors = new ErrorSequence();
  const descriptor = new ErrorCursor(errors, FILE);
  errors.set(failed(), LOST);
  errors.set(failed(), AGAIN);
  assert.equal(descriptor.checkAndAdvance(), AGAIN);
  assert.equal(descriptor.checkAndAdvance(), undefined);
});

test('a descriptor returns an earlier error only if no other descriptor has returned it', () => {
  const errors = new ErrorSequence();
  errors.set(failed(), LOST);
  assert.equal(new ErrorCursor(errors, FILE).checkAndAdvance(), LOST);
  assert.equal(new ErrorCursor(errors, FILE).checkAndAdvance(), undefined);
});

test('write and close return an error until fsync has, and none from before the descriptor was opened', () => {
  const errors = new ErrorSequence();
  const descriptor = new ErrorCursor(errors, FILE);
  errors.set(failed(), LOST);
  const later = new ErrorCursor(errors, FILE);
  assert.equal(later.check(), undefined);
  for (let call = 0; call < 2; call++) assert.equal(descriptor.check(), LOST);
  assert.equal(
    new ErrorCursor(errors, FILE).checkAndAdvance(),
    undefined,
    'Another descriptor has returned it',
  );
  assert.equal(descriptor.checkAndAdvance(), LOST);
  assert.equal(descriptor.check(), undefined);
});

test('a peek does not count as returning the error', () => {
  const errors = new ErrorSequence();
  const descriptor = new ErrorCursor(errors, FILE);
  errors.set(failed(), LOST);
  assert.equal(descriptor.peek(), LOST);
  assert.equal(new ErrorCursor(errors, FILE).checkAndAdvance(), LOST);
});

test('an error of one inode is returned by fsync of the volume, and by that of no other inode', () => {
  const errors = new ErrorSequence();
  const volume = new ErrorCursor(errors, 'volume');
  const others = [new ErrorCursor(errors, OTHER), new ErrorCursor(errors, DIRECTORY)];
  errors.set(failed(), LOST);
  for (const other of others) assert.equal(other.checkAndAdvance(), undefined);
  assert.equal(volume.checkAndAdvance(), LOST);
  assert.equal(volume.checkAndAdvance(), undefined);
});

test('an error of the volume is returned by fsync of each file and directory, but by no write or close', () => {
  const errors = new ErrorSequence();
  errors.set(failedIn(DIRECTORY), LOST);
  const scopes = [FILE, 3, 'volume'] as const;
  const descriptors = scopes.map((scope) => new ErrorCursor(errors, scope));
  errors.set('volume', AGAIN);
  for (const descriptor of descriptors) {
    assert.equal(descriptor.check(), undefined);
    assert.equal(descriptor.checkAndAdvance(), AGAIN);
    assert.equal(descriptor.checkAndAdvance(), undefined);
  }
  assert.equal(new ErrorCursor(errors, FILE).checkAndAdvance(), undefined);
});

test('after errors in several directories fsync of the volume returns the latest, and fsync of a directory its own', () => {
  const errors = new ErrorSequence();
  const volume = new ErrorCursor(errors, 'volume');
  const second = new ErrorCursor(errors, 2);
  for (const inode of [1, 2, 3]) errors.set(failedIn(inode), new Error(`in ${inode}`));
  assert.match(String(second.checkAndAdvance()), /in 2/);
  assert.equal(new ErrorCursor(errors, 2).checkAndAdvance(), undefined);
  assert.match(String(volume.checkAndAdvance()), /in 3/);
  for (const scope of ['volume', 1, 3] as const)
    assert.equal(new ErrorCursor(errors, scope).checkAndAdvance(), undefined);
});

test('with too many directories their errors count for each directory, and those of files for the volume only', () => {
  const errors = new ErrorSequence();
  const volume = new ErrorCursor(errors, 'volume');
  errors.set(failed(), LOST);
  for (let inode = 1_000; inode < 2_000; inode++) errors.set(failedIn(inode), AGAIN);
  assert.equal(new ErrorCursor(errors, FILE).checkAndAdvance(), undefined);
  assert.equal(errors.sample('volume'), 0);
  errors.set(failedIn(2_000), AGAIN);
  assert.equal(new ErrorCursor(errors, DIRECTORY).checkAndAdvance(), AGAIN);
  assert.equal(new ErrorCursor(errors, DIRECTORY).checkAndAdvance(), undefined);
  assert.equal(volume.checkAndAdvance(), AGAIN);
  assert.equal(volume.checkAndAdvance(), undefined);
});
