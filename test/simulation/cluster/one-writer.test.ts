/**
 * Goal: the judge of files with one writer knows what a loss of power of all servers, and the end of a mount, may leave.
 * Method: directed histories on a clock that the test sets.
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

/** @returns whether the judge allows it */
function reads(contents: string | null): boolean {
  violations.length = 0;
  file.read('r', ++atNs, contents);
  return violations.length === 0;
}

test('a change of a part, after or amid a loss, may keep an earlier rest, until a sync returns', () => {
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

test('a change of a part keeps the rest where nothing was lost, or all was synced', () => {
  change('aB', PART);
  file.synced('contents');
  loss();
  change('AB', PART);
  assert.ok(!reads('Ab'));
  assert.ok(reads('AB'));
});

test('a loss that follows a change leaves an earlier version as a whole', () => {
  change('aB', PART);
  change('AB', PART);
  loss();
  assert.ok(!reads('Ab'));
  assert.ok(reads('ab'));
});

test('contents that were renamed over the name without a sync may be gone, the name not', () => {
  const writtenNs = atNs;
  loss();
  change('new', { isAtomic: true, writtenNs });
  file.synced('name');
  assert.ok(reads(''));
  assert.ok(!reads(null));
  change('newer', { isAtomic: true, hasSyncedContents: true });
  assert.ok(!reads(''));
});

test('a reader that takes several calls sees a change of a part between them', () => {
  change('aBc', PART, () => assert.ok(reads('abc')));
  assert.ok(!reads('abc'));
});

test('a reader that opened a file before it lost its name sees what is written without one', () => {
  const openedNs = ++atNs;
  change(null, { isAtomic: true, isOpen: true });
  file.read('r', openedNs, 'abc');
  assert.deepEqual(violations, []);
  assert.ok(!reads('abc'));
  assert.ok(reads(null));
});

test('what was read of a change that never came to its end may be gone with the mount of both, and else stays', () => {
  let hasEnded = false;
  atNs += 10;
  const begun = file.begin('cd', { isAtomic: true });
  atNs += 10;
  file.read('r', ++atNs, 'cd', 0, () => hasEnded);
  atNs += 10;
  assert.ok(!reads('ab'), 'The mount is there');
  hasEnded = true;
  assert.ok(reads('ab'));
  assert.ok(reads('cd'), 'Another mount reads it: it was stored');
  atNs += 10;
  assert.ok(!reads('ab'));
  begun.failed();
  assert.ok(!reads('ab'));
});
