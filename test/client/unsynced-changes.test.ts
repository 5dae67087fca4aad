/**
 * Goal: a flush does not say that changes survive which a loss of power of all servers has taken since they were acknowledged.
 * Method: answers of servers as they are before and after such a loss.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnsyncedChanges } from '../../client/unsynced-changes.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { FileState, WriteResult } from '../../wire/http-api.ts';

const version = (epoch: number, seq: number): ContentVersion => ({ epoch, seq });

function state(contents: ContentVersion): FileState {
  const { epoch, seq } = contents;
  return { file: 7, sizeBytes: 1, modifiedNs: '0', contents, seq, primary: 's1', epoch };
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
  const changes = new UnsyncedChanges();
  change(changes, version(1, 1), version(1, 2));
  assert.throws(() => flush(changes, version(1, 1)), LOST);
  flush(changes, version(1, 1));
});

test('a change that follows an earlier version reports the loss with the next flush', () => {
  const changes = new UnsyncedChanges();
  change(changes, version(1, 1), version(1, 2));
  change(changes, version(1, 1), version(2, 2));
  assert.throws(() => flush(changes, version(2, 2)), LOST);
});

test('changes of others, answers that are given once more and flushes in between report nothing', () => {
  const changes = new UnsyncedChanges();
  change(changes, version(1, 1), version(1, 2));
  change(changes, version(1, 5), version(1, 6));
  change(changes, undefined, version(1, 7));
  flush(changes, version(1, 9));
  // What was flushed survives; a version that this client has not made is not expected of anyone.
  flush(changes, version(1, 8));
});

test('of changes that are under way together each follows what was answered before it was sent', () => {
  const changes = new UnsyncedChanges();
  const sent = changes.newest;
  changes.acknowledged({ ...state(version(1, 3)), offset: 0, before: version(1, 2) }, sent);
  changes.acknowledged({ ...state(version(1, 2)), offset: 0, before: version(1, 1) }, sent);
  flush(changes, version(1, 3));
});
