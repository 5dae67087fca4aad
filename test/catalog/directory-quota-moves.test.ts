import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Recount } from '../../catalog/recount.ts';
import { everyStep } from './every-step.ts';
import { Pair } from './pair.ts';
import { MEMBERS, registration } from './root.ts';
import { assertSound } from './soundness.ts';
import { Move } from './volume-move.ts';

/** Goal: quotas of directories count what is in them, also while volumes and parts of volumes move. */

const NODE = { mode: 0o644, uid: 0, gid: 0 } as const;
const at = (path: string) => ({ volume: 'main', path });

function root(): Pair {
  const pair = new Pair();
  for (const id of MEMBERS) pair.done(registration(id));
  pair.done({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  return pair;
}
function directory(pair: Pair, path: string, quota?: object): number {
  const { inode } = pair.done({ kind: 'make-directory', place: at(path), ...NODE }).attributes;
  if (quota !== undefined) pair.done({ kind: 'set-quota', inode, quota });
  return inode;
}
function file(pair: Pair, path: string, sizeBytes: number): number {
  const { inode } = pair.done({ kind: 'create-file', place: at(path), ...NODE, exclusive: true }).attributes;
  pair.done({
    kind: 'settle',
    files: [{ inode, sizeBytes, modifiedNs: '7', contents: { epoch: 1, seq: 1 } }],
  });
  return inode;
}
const counts = (pair: Pair) =>
  pair.backup
    .prepare('SELECT directory, named_inodes, named_bytes FROM directory_quotas ORDER BY directory')
    .raw()
    .all();
function wrong(pair: Pair) {
  const recount = new Recount(pair.primary);
  everyStep(() => !recount.step(100));
  const result = recount.wrongCounters();
  recount.end();
  return result;
}

test('the rows of a split part are forgotten without quotas of removed directories elsewhere', () => {
  const pair = root();
  const outer = directory(pair, '/outer', {});
  const trashed = file(pair, '/t', 40);
  directory(pair, '/part');
  directory(pair, '/outer/x', {});
  file(pair, '/part/f', 1);
  pair.done({ kind: 'rename', from: at('/t'), to: at('/outer/x/t'), mode: 'replace' });
  pair.done({ kind: 'unlink', place: at('/outer/x/t') });
  pair.done({ kind: 'remove-directory', place: at('/outer/x') });
  new Move(pair, 'split', '/part').run();
  assert.deepEqual(wrong(pair), []);
  pair.done({ kind: 'trash-empty', volume: 'main', inode: trashed, countMax: 1 });
  assert.deepEqual(counts(pair), [[outer, 1, 0]]);
});

test('the rows of a moved volume are forgotten without quotas of another volume', () => {
  const pair = root();
  const outer = directory(pair, '/outer', {});
  const trashed = file(pair, '/t', 40);
  pair.done({ kind: 'volume-create', name: 'other', replicas: 2, objectBytes: 4096 });
  directory(pair, '/outer/x', {});
  pair.done({ kind: 'make-directory', place: { volume: 'other', path: '/d' }, ...NODE });
  pair.done({ kind: 'rename', from: at('/t'), to: at('/outer/x/t'), mode: 'replace' });
  pair.done({ kind: 'unlink', place: at('/outer/x/t') });
  pair.done({ kind: 'remove-directory', place: at('/outer/x') });
  new Move(pair, 'other').run();
  assert.deepEqual(wrong(pair), []);
  pair.done({ kind: 'trash-empty', volume: 'main', inode: trashed, countMax: 1 });
  assert.deepEqual(counts(pair), [[outer, 1, 0]]);
});

test('quotas of removed directories are forgotten with their volume', () => {
  const pair = root();
  pair.done({ kind: 'volume-create', name: 'other', replicas: 2, objectBytes: 4096 });
  const other = (name: string) =>
    pair.done({ kind: 'make-directory', place: { volume: 'other', path: name }, ...NODE });
  other('/x');
  directory(pair, '/r', {});
  other('/y');
  directory(pair, '/between');
  directory(pair, '/r/s', {});
  file(pair, '/r/s/t', 40);
  pair.done({ kind: 'unlink', place: at('/r/s/t') });
  pair.done({ kind: 'remove-directory', place: at('/r/s') });
  pair.done({ kind: 'remove-directory', place: at('/r') });
  new Move(pair, 'main').run();
  assert.deepEqual(wrong(pair), []);
  assert.deepEqual(counts(pair), []);
});

test('the quota of a directory that was removed in a split part lasts as long as its trash', () => {
  const pair = root();
  const outer = directory(pair, '/outer', {});
  directory(pair, '/outer/part');
  directory(pair, '/outer/part/r', {});
  file(pair, '/outer/part/g', 1);
  const trashed = file(pair, '/outer/part/r/t', 40);
  pair.done({ kind: 'unlink', place: at('/outer/part/r/t') });
  pair.done({ kind: 'remove-directory', place: at('/outer/part/r') });
  new Move(pair, 'split', '/outer/part').run();
  assert.deepEqual(wrong(pair), []);
  pair.done({ kind: 'trash-empty', volume: 'main', inode: trashed, countMax: 1 });
  assert.deepEqual(counts(pair), [[outer, 2, 0]]);
});

test('an aborted split may leave quotas nested deeper than the limit, which then count', () => {
  const pair = root();
  directory(pair, '/q', {});
  for (let depth = 1; depth < 16; depth++) directory(pair, `/q/part${'/d'.repeat(depth - 1)}`, {});
  for (let depth = 1; depth < 16; depth++) directory(pair, '/z'.repeat(depth), {});
  const target = '/z'.repeat(15);
  const move = new Move(pair, 'split', '/q/part');
  move.freeze();
  move.visit(1000);
  pair.done({ kind: 'rename', from: at('/q'), to: at(`${target}/q`), mode: 'replace' });
  pair.done({ kind: 'volume-move-abort', name: 'split' });
  move.visit(1000);
  directory(pair, `${target}/q/part${'/d'.repeat(14)}/new`);
  assert.deepEqual(wrong(pair), []);
  assertSound(pair.backup);
});
