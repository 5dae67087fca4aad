/**
 * Goal: a flush does not say that changes survive which a loss of power of all servers has taken since they were acknowledged.
 * Method: answers of servers as they are before and after such a loss.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type UnsyncedChanges, UnsyncedFiles } from '../../client/unsynced-changes.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { FileState, WriteResult } from '../../wire/http-api.ts';

const FILE = 7;
const version = (epoch: number, seq: number): ContentVersion => ({ epoch, seq });

function state(contents: ContentVersion): FileState {
  const { epoch, seq } = contents;
  return { file: FILE, sizeBytes: 1, modifiedNs: '0', contents, seq, primary: 's1', epoch };
}

function change(
  changes: UnsyncedChanges,
  before: ContentVersion | undefined,
  contents: ContentVersion,
): void {
  const result: WriteResult = { ...state(contents), offset: 0, ...(before === undefined ? {} : { before }) };
  changes.acknowledged(result, changes.newest);
}

function flush(changes: UnsyncedChanges, contents: ContentVersion): void {
  changes.flushed(state(contents), changes.newest);
}

const LOST = { name: 'ServiceError', code: 'storage' };

test('a flush that answers an earlier version than a change reports the loss once', () => {
  const changes = new UnsyncedFiles().of(FILE);
  change(changes, version(1, 1), version(1, 2));
  assert.throws(() => flush(changes, version(1, 1)), LOST);
  flush(changes, version(1, 1));
});

test('a change that follows an earlier version reports the loss with the next flush', () => {
  const changes = new UnsyncedFiles().of(FILE);
  change(changes, version(1, 1), version(1, 2));
  change(changes, version(1, 1), version(2, 2));
  assert.throws(() => flush(changes, version(2, 2)), LOST);
});

test('a change that is answered once more, or follows one of another client, tells of a loss by what its epoch began with', () => {
  for (const isAgain of [true, false]) {
    const changes = new UnsyncedFiles().of(FILE);
    const answer = (inherited: ContentVersion, contents: ContentVersion) => {
      const before = isAgain ? {} : { before: version(contents.epoch, contents.seq - 1) };
      changes.acknowledged({ ...state(contents), offset: 0, ...before, inherited }, changes.newest);
    };
    change(changes, version(1, 1), version(1, 2));
    answer(version(1, 2), version(2, 2));
    // Of the same epoch: it began before the change that was sent last.
    answer(version(1, 2), version(2, 3));
    flush(changes, version(2, 3));
    change(changes, version(2, 3), version(2, 4));
    answer(version(2, 3), version(3, 4));
    assert.throws(() => flush(changes, version(3, 4)), LOST);
  }
});

test('changes of others, answers that are given once more and flushes in between report nothing', () => {
  const changes = new UnsyncedFiles().of(FILE);
  change(changes, version(1, 1), version(1, 2));
  change(changes, version(1, 5), version(1, 6));
  change(changes, undefined, version(1, 7));
  flush(changes, version(1, 9));
  // What was flushed survives; a version that this client has not made is not expected of anyone.
  flush(changes, version(1, 8));
});

test('of changes that are under way together each follows what was answered before it was sent', () => {
  const changes = new UnsyncedFiles().of(FILE);
  const sent = changes.newest;
  changes.acknowledged({ ...state(version(1, 3)), offset: 0, before: version(1, 2) }, sent);
  changes.acknowledged({ ...state(version(1, 2)), offset: 0, before: version(1, 1) }, sent);
  flush(changes, version(1, 3));
});

test('a loss of what a closed handle, or a creation, was acknowledged is reported by the next handle', () => {
  const files = new UnsyncedFiles();
  change(files.of(FILE), version(1, 1), version(1, 2));
  assert.throws(() => flush(files.of(FILE), version(1, 1)), LOST);
  flush(files.of(FILE), version(1, 1));
  const closed = files.of(FILE);
  change(closed, version(1, 1), version(1, 2));
  change(closed, version(1, 1), version(2, 2));
  assert.throws(() => flush(files.of(FILE), version(2, 2)), LOST);
  files.created(FILE, version(1, 1));
  assert.throws(() => flush(files.of(FILE), version(0, 0)), LOST);
});

test('each handle that was there reports a loss once, and a later one does not', () => {
  const files = new UnsyncedFiles();
  const [writer, other] = [files.of(FILE), files.of(FILE)];
  change(writer, version(1, 1), version(1, 2));
  assert.throws(() => flush(other, version(1, 1)), LOST);
  flush(files.of(FILE), version(1, 1));
  assert.throws(() => flush(writer, version(1, 1)), LOST);
  for (const handle of [writer, other]) flush(handle, version(1, 1));
});

test('an open handle remembers its changes, however many other files are changed', () => {
  const files = new UnsyncedFiles();
  const changes = files.of(FILE);
  change(changes, version(1, 1), version(1, 2));
  for (let file = FILE + 1; file < FILE + 30_000; file++) files.created(file, version(1, 1));
  assert.throws(() => flush(changes, version(1, 1)), LOST);
});
