/**
 * Goal: a flush does not report changes as durable that a loss of power of all servers has taken since their
 * acknowledgement.
 * Method: answers of servers as they are before and after such a loss.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type UnsyncedChanges, UnsyncedFiles } from '../../client/cluster/unsynced-changes.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { AcknowledgedRequest, FileState, WriteResult } from '../../wire/http-api.ts';

const FILE = 7;
const version = (epoch: number, seq: number): ContentVersion => ({ epoch, seq });

function state(contents: ContentVersion): FileState {
  const { epoch, seq } = contents;
  return { file: FILE, sizeBytes: 1, modifiedNs: '0', contents, seq, primary: 's1', epoch };
}

let number = 0;
const SESSION = 5;
const next = (): AcknowledgedRequest => ({ session: SESSION, number: ++number, since: 0 });

function change(
  changes: UnsyncedChanges,
  before: ContentVersion | undefined,
  contents: ContentVersion,
): void {
  const result: WriteResult = { ...state(contents), offset: 0, ...(before === undefined ? {} : { before }) };
  changes.acknowledged(result, next(), changes.changes);
}

function flush(changes: UnsyncedChanges, contents: ContentVersion, lost = false): void {
  changes.flushed({ ...state(contents), ...(lost ? { lost } : {}) }, changes.changes);
  changes.report();
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

test('a flush names the last change of each epoch, and reports the loss that its answer names', () => {
  const changes = new UnsyncedFiles().of(FILE);
  const first = number + 1;
  for (const seq of [2, 3]) change(changes, undefined, version(1, seq));
  change(changes, undefined, version(2, 3));
  change(changes, undefined, version(2, 4));
  const numbers = changes.changes.map(({ request }) => request?.number);
  assert.deepEqual(numbers, [first + 1, first + 3]);
  assert.equal(changes.lowestOf(SESSION), first + 1);
  assert.throws(() => flush(changes, version(3, 9), true), LOST);
  assert.equal(changes.lowestOf(SESSION), Infinity);
  flush(changes, version(3, 9));
});

test('a flush is due before a server forgets the outcome of a change, and before there are too many', () => {
  const changes = new UnsyncedFiles().of(FILE);
  change(changes, undefined, version(1, 2));
  assert.deepEqual(
    [63, 64].map((more) => changes.isFull(SESSION, number + more)),
    [false, true],
  );
  assert.equal(changes.isFull(SESSION + 1, number + 64), false);
  for (let epoch = 2; epoch <= 16; epoch++) {
    change(changes, undefined, version(epoch, epoch));
    // A flush names 16 at most: half of them are left for changes that are acknowledged meanwhile.
    assert.equal(changes.isFull(SESSION + 1, 1), epoch >= 8);
  }
});

test('changes of other clients, repeated answers and flushes in between report nothing', () => {
  const changes = new UnsyncedFiles().of(FILE);
  change(changes, version(1, 1), version(1, 2));
  change(changes, version(1, 5), version(1, 6));
  change(changes, undefined, version(1, 7));
  flush(changes, version(1, 9));
  // Flushed changes survive; a version that this client did not write is not expected.
  flush(changes, version(1, 8));
});

test('concurrent changes follow what was answered before each was sent', () => {
  const changes = new UnsyncedFiles().of(FILE);
  const sent = changes.changes;
  changes.acknowledged({ ...state(version(1, 3)), offset: 0, before: version(1, 2) }, next(), sent);
  changes.acknowledged({ ...state(version(1, 2)), offset: 0, before: version(1, 1) }, next(), sent);
  flush(changes, version(1, 3));
});

test('a loss of acknowledged changes of a closed handle, or of a creation, is reported by the next handle', () => {
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

test('each open handle reports a loss once, and a later handle does not', () => {
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
