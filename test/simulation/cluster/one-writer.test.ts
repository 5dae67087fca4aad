/**
 * Goal: the judge of files with one writer knows what may be left after a loss of power of all servers, and after the
 * end of a mount.
 * Method: directed histories with a clock that the test sets.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { type ChangeKind, OneWriterFile } from './judges/one-writer.ts';

const PART: ChangeKind = { isAtomic: true, isPart: true };
let [atNs, lossesNs, violations] = [0, [0], ['']];
let file = new OneWriterFile('f', { nowNs: () => 0, violation: () => undefined, lossesNs });

beforeEach(() => {
  [atNs, lossesNs, violations] = [0, [], []];
  file = new OneWriterFile('f', { nowNs: () => atNs, violation: (text) => violations.push(text), lossesNs });
  change('ab', {});
  file.synced('contents');
});

function change(contents: string | null, kind: ChangeKind, during: () => void = () => undefined): void {
  atNs += 10;
  const begun = file.begin(contents, kind);
  during();
  atNs += 10;
  begun.done();
  atNs += 10;
}

function loss(): void {
  lossesNs.push(++atNs);
  atNs++;
}

/** @returns whether the judge accepts the read */
function reads(contents: string | null): boolean {
  violations.length = 0;
  file.read('r', ++atNs, contents);
  return violations.length === 0;
}

test('a change of a part, after or during a loss of power, may keep an earlier rest until a sync returns', () => {
  change('aB', PART);
  loss();
  change('AB', PART);
  assert.ok(reads('Ab'));
  file.synced('contents');
  assert.ok(!reads('Ab'));
  change('AX', PART);
  change('YX', PART, loss);
  assert.ok(reads('YB'));
});

test('a change of a part keeps the rest if no power was lost, or all was synced', () => {
  change('aB', PART);
  file.synced('contents');
  loss();
  change('AB', PART);
  assert.ok(!reads('Ab'));
  assert.ok(reads('AB'));
});

test('a loss of power after a change may restore an earlier version as a whole', () => {
  change('aB', PART);
  change('AB', PART);
  loss();
  assert.ok(!reads('Ab'));
  assert.ok(reads('ab'));
});

test('contents that were renamed over a name without a sync may be lost, but not the name', () => {
  const writtenNs = atNs;
  loss();
  change('new', { isAtomic: true, writtenNs });
  file.synced('name');
  assert.ok(reads(''));
  assert.ok(!reads(null));
  change('newer', { isAtomic: true, hasSyncedContents: true });
  assert.ok(!reads(''));
});

test('a reader with several calls may see a change of a part between them', () => {
  change('aBc', PART, () => assert.ok(reads('abc')));
  assert.ok(!reads('abc'));
});

test('a reader that opened a file before its unlink reads later writes to it', () => {
  const openedNs = ++atNs;
  change(null, { isAtomic: true, isOpen: true });
  file.read('r', openedNs, 'abc');
  assert.deepEqual(violations, []);
  assert.ok(!reads('abc'));
  assert.ok(reads(null));
});

test('a change without an end that a reader of the same mount saw may be lost with the mount, and otherwise stays', () => {
  let hasEnded = false;
  atNs += 10;
  const begun = file.begin('cd', { isAtomic: true });
  atNs += 10;
  file.read('r', ++atNs, 'cd', 0, () => hasEnded);
  atNs += 10;
  assert.ok(!reads('ab'), 'The mount still exists');
  hasEnded = true;
  assert.ok(reads('ab'));
  assert.ok(reads('cd'), 'A reader on another mount saw it: it was stored');
  atNs += 10;
  assert.ok(!reads('ab'));
  begun.failed();
  assert.ok(!reads('ab'));
});
