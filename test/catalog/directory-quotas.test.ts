import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import { NESTED_QUOTAS_MAX } from '../../catalog/directory-quota-tables.ts';
import { Recount } from '../../catalog/recount.ts';
import { ensureSchema, SCHEMA_VERSION } from '../../catalog/schema.ts';
import { commandVersion } from '../../catalog/versions.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { asVersion13 } from './earlier-schema.ts';
import { everyStep } from './every-step.ts';
import { Catalog, main } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import {
  ANYTHING,
  execute,
  file,
  type Limits,
  NODE,
  pathIn,
  quotas,
  renamed,
  type Step,
  settle,
  treeSteps,
  used,
} from './quota-fixture.ts';
import { MEMBERS, registration } from './root.ts';
import { assertSound } from './soundness.ts';
import { Move, volumeDump } from './volume-move.ts';

const MIB = 1024 * 1024;

/** A directory with a quota. */
function limited(catalog: Catalog, path: string, quota: Limits): number {
  const { inode } = catalog.directory(path);
  catalog.run({ kind: 'set-quota', inode, quota });
  return inode;
}

test('a file that replaces one with other names counts as one more', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaInodes: 2 });
  const inode = file(catalog, '/a/f');
  catalog.run({ kind: 'link', inode, place: main('/a/g') });
  const orphan = catalog.run({ kind: 'create-orphan', volume: 'main', ...NODE }).attributes.inode;
  catalog.refuse('quota-exceeded', { kind: 'replace', place: main('/a/f'), inode: orphan, expect: ANYTHING });
});

function moved(catalog: Catalog, from: string, to: string): void {
  catalog.run({ kind: 'rename', from: main(from), to: main(to), mode: 'replace' });
}

function message(catalog: Catalog, command: Command): string {
  let text = '';
  assert.throws(
    () => catalog.run(command),
    (error: Error) => {
      text = error.message;
      return true;
    },
  );
  return text;
}

test('what is in a directory counts against its quota, the directory itself included, at any depth', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaInodes: 5 });
  catalog.directory('/a/b');
  file(catalog, '/a/b/f', 100);
  catalog.symlink('/a/b/l', 'f');
  file(catalog, '/outside', 7);
  assert.deepEqual(used(catalog), { '/a': [4, 100] });
  catalog.run({ kind: 'make-node', place: main('/a/p'), type: 'fifo', device: 0, ...NODE });
  assert.match(
    message(catalog, { kind: 'create-file', place: main('/a/b/g'), ...NODE, exclusive: true }),
    /^Directory "main:\/a" has 5 files and directories, and its quota is 5$/,
  );
  file(catalog, '/more');
  catalog.run({ kind: 'unlink', place: main('/a/b/f') });
  file(catalog, '/a/b/g', 3);
  assert.deepEqual(used(catalog), { '/a': [5, 3] });
});

test('a nested quota counts in each that it is in, and the least that is left decides', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaBytes: 1_000 });
  limited(catalog, '/a/b', { quotaBytes: 600 });
  const inner = file(catalog, '/a/b/f', 500);
  const outer = file(catalog, '/a/g', 300);
  assert.deepEqual(used(catalog), { '/a': [4, 800], '/a/b': [2, 500] });
  catalog.refuse('quota-exceeded', { kind: 'open-for-write', inode: inner, growTo: 601 });
  catalog.refuse('quota-exceeded', { kind: 'open-for-write', inode: outer, growTo: 501 });
  assert.match(
    message(catalog, { kind: 'open-for-write', inode: inner, growTo: 601 }),
    /^Directory "main:\/a\/b" would have 601 bytes, and its quota is 600$/,
  );
  settle(catalog, outer, 450, 2);
  assert.match(
    message(catalog, { kind: 'open-for-write', inode: inner, growTo: 590 }),
    /^Directory "main:\/a" would have 1040 bytes/,
  );
  assert.deepEqual(
    catalog.query({ kind: 'quotas-of', inode: inner }).quotas.map(({ path }) => path),
    ['/a/b', '/a'],
  );
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 960 });
  assert.match(
    message(catalog, { kind: 'open-for-write', inode: inner, growTo: 520 }),
    /^Volume "main" would have 970/,
  );
});

test('growth that is allowed ahead counts at once, in each quota, and within the smallest', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaBytes: 100 * MIB });
  limited(catalog, '/a/b', { quotaBytes: 16 * 1_000 });
  const { inode, allowedBytes } = catalog.file('/a/b/f');
  assert.equal(allowedBytes, 1_000, 'A share of what is left');
  assert.deepEqual(used(catalog), { '/a': [3, 1_000], '/a/b': [2, 1_000] });
  assert.equal(
    catalog.run({ kind: 'open-for-write', inode, growTo: 16_000 }).attributes.allowedBytes,
    16_000,
  );
  settle(catalog, inode, 5);
  assert.deepEqual(used(catalog), { '/a': [3, 5], '/a/b': [2, 5] });
  const [free] = catalog.query({ kind: 'placed', inodes: [inode], settings: true }).files;
  assert.equal(free?.settings?.limited, true, 'Its primary asks before it grows');
  assert.equal(catalog.file('/free').allowedBytes, undefined);
});

test('an upload, and contents in place of a file, count once they have a name', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaBytes: 1_000, quotaInodes: 3 });
  const upload = (sizeBytes: number): number => {
    const { inode } = catalog.run({ kind: 'create-orphan', volume: 'main', ...NODE }).attributes;
    settle(catalog, inode, sizeBytes);
    return inode;
  };
  const named = (inode: number, path: string): Command => ({
    ...{ kind: 'replace', place: main(path), inode, expect: ANYTHING },
  });
  const [first, second] = [upload(800), upload(900)];
  assert.deepEqual(used(catalog), { '/a': [1, 0] });
  catalog.run({ kind: 'replace', place: main('/a/f'), inode: first, expect: ANYTHING });
  catalog.refuse('quota-exceeded', named(second, '/a/g'));
  catalog.run({ kind: 'replace', place: main('/a/f'), inode: second, expect: ANYTHING });
  assert.deepEqual(used(catalog), { '/a': [2, 900] });
  catalog.refuse('quota-exceeded', named(upload(1_001), '/a/f'));
});

test('files created with their contents count one by one', () => {
  const catalog = new Catalog();
  const inode = limited(catalog, '/a', { quotaBytes: 250, quotaInodes: 9 });
  const members = ['s1', 's2', 's3'];
  const { first } = catalog.run({ kind: 'reserve-inodes', owner: 4, count: 4, members: [members] });
  const files = [0, 1, 2, 3].map((index) => ({
    ...{ inode: first + index, parent: index === 3 ? catalog.root : inode, name: `f${index}`, ...NODE },
    ...{ sizeBytes: 100, contents: { epoch: 1, seq: 1 } },
  }));
  const result = catalog.run({ kind: 'bear', owner: 4, replicas: members, objectBytes: 131_072, files });
  const codes = files.map((one) => {
    const answer = result.files[one.inode];
    return answer !== null && answer !== undefined && 'code' in answer ? answer.code : null;
  });
  assert.deepEqual(codes, [null, null, 'quota-exceeded', null]);
  assert.equal(result.limited, true);
  assert.deepEqual(used(catalog), { '/a': [3, 200] });
  assert.equal(catalog.inode(first).allowedBytes, 100);
  assert.equal(catalog.inode(first + 3).allowedBytes, undefined);
});

test('a file with one name moves with what it counts, unless the quota there is too small', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaBytes: 1_000 });
  limited(catalog, '/a/b', {});
  limited(catalog, '/c', { quotaBytes: 100, quotaInodes: 2 });
  file(catalog, '/a/f', 300);
  moved(catalog, '/a/f', '/a/b/f');
  assert.deepEqual(used(catalog), { '/a': [3, 300], '/a/b': [2, 300], '/c': [1, 0] });
  catalog.refuse('quota-exceeded', renamed('/a/b/f', '/c/f'));
  moved(catalog, '/a/b/f', '/f');
  assert.deepEqual(used(catalog), { '/a': [2, 0], '/a/b': [1, 0], '/c': [1, 0] });
  file(catalog, '/small', 60);
  file(catalog, '/c/old', 80);
  catalog.refuse('quota-exceeded', renamed('/small', '/c/new'));
  moved(catalog, '/small', '/c/old');
  assert.deepEqual(used(catalog)['/c'], [2, 60], 'What it replaces makes room for it');
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  file(catalog, '/tiny', 10);
  catalog.refuse('quota-exceeded', renamed('/tiny', '/c/old'));
});

test('a move at the limit of a quota that both directories are in counts nothing there', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', { quotaBytes: 300, quotaInodes: 4 });
  limited(catalog, '/a/b', { quotaBytes: 300 });
  limited(catalog, '/a/c', { quotaBytes: 300 });
  file(catalog, '/a/b/f', 300);
  moved(catalog, '/a/b/f', '/a/c/f');
  assert.deepEqual(used(catalog), { '/a': [4, 300], '/a/b': [1, 0], '/a/c': [2, 300] });
});

test('what cannot count against another quota in one step stays, as across file systems', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', {});
  const { inode } = catalog.file('/f');
  catalog.run({ kind: 'link', inode, place: main('/second') });
  catalog.refuse('cross-volume', { kind: 'link', inode, place: main('/a/third') });
  catalog.refuse('cross-volume', renamed('/f', '/a/f'));
  catalog.directory('/d');
  moved(catalog, '/d', '/a/d');
  assert.deepEqual(used(catalog), { '/a': [2, 0] }, 'An empty directory moves');
  catalog.file('/a/d/x');
  catalog.refuse('cross-volume', renamed('/a/d', '/d'));
  catalog.file('/a/g');
  catalog.refuse('cross-volume', renamed('/f', '/a/g', 'exchange'));
  moved(catalog, '/a/g', '/a/d/g');
  moved(catalog, '/a/d', '/a/e');
  catalog.run({ kind: 'unlink', place: main('/second') });
  moved(catalog, '/f', '/a/f');
  catalog.run({ kind: 'link', inode, place: main('/a/third') });
  catalog.refuse('cross-volume', renamed('/a/f', '/f'));
  assert.deepEqual(used(catalog), { '/a': [5, 0] });
});

test('a directory with a quota moves as a whole, with all that it counts', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', {});
  limited(catalog, '/b', { quotaBytes: 500, quotaInodes: 5 });
  limited(catalog, '/a/q', {});
  limited(catalog, '/a/q/r', {});
  file(catalog, '/a/q/r/f', 400);
  moved(catalog, '/a/q', '/b/q');
  assert.deepEqual(used(catalog), { '/a': [1, 0], '/b': [4, 400], '/b/q': [3, 400], '/b/q/r': [2, 400] });
  moved(catalog, '/b/q', '/q');
  file(catalog, '/b/g', 101);
  catalog.refuse('quota-exceeded', renamed('/q', '/b/q'));
  assert.deepEqual(used(catalog), { '/a': [1, 0], '/b': [2, 101], '/q': [3, 400], '/q/r': [2, 400] });
});

test('quotas are nested to a bounded depth, also by moves', () => {
  const catalog = new Catalog();
  let path = '';
  for (let depth = 0; depth < NESTED_QUOTAS_MAX; depth++) {
    path += '/q';
    limited(catalog, path, {});
  }
  const { inode } = catalog.directory(`${path}/q`);
  catalog.refuse('too-large', { kind: 'set-quota', inode, quota: {} });
  limited(catalog, '/other', {});
  catalog.refuse('too-large', renamed('/other', `${path}/other`));
  catalog.refuse('too-large', renamed('/q', '/other/q'));
  moved(catalog, '/other', '/q/other');
});

test('files in the trash count as in the volume, where they were removed from, also after their directory', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  limited(catalog, '/a', { quotaBytes: 1_000 });
  const nested = limited(catalog, '/a/b', { quotaBytes: 300 });
  const first = file(catalog, '/a/b/f', 200);
  file(catalog, '/a/b/g', 50);
  for (const name of ['f', 'g']) catalog.run({ kind: 'unlink', place: main(`/a/b/${name}`) });
  assert.deepEqual(used(catalog), { '/a': [4, 250], '/a/b': [3, 250] });
  assert.match(
    message(catalog, { kind: 'open-for-write', inode: file(catalog, '/a/b/h'), growTo: 100 }),
    /quota is 300\. Files that were removed from it count as long as the trash has them$/,
  );
  catalog.run({ kind: 'unlink', place: main('/a/b/h'), trash: false });
  catalog.refuse('precondition-failed', { kind: 'set-quota', inode: nested, quota: null });
  catalog.run({ kind: 'remove-directory', place: main('/a/b') });
  assert.deepEqual(used(catalog), { '/a': [3, 250], removed: [2, 250] });
  // Its directory is created again, without a quota.
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: first });
  assert.deepEqual(used(catalog), { '/a': [4, 250], removed: [1, 50] });
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 9 });
  assert.deepEqual(used(catalog), { '/a': [3, 200] });
});

test('a file is restored from the trash to where its quota allows it', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  limited(catalog, '/a', { quotaBytes: 100 });
  limited(catalog, '/b', {});
  const inode = file(catalog, '/b/f', 150);
  catalog.run({ kind: 'unlink', place: main('/b/f') });
  catalog.refuse('quota-exceeded', { kind: 'trash-restore', volume: 'main', inode, to: '/a/f' });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode, to: '/f' });
  assert.deepEqual(used(catalog), { '/a': [1, 0], '/b': [1, 0] });
});

test('only a directory without entries gets a quota, and only an empty one loses it; limits change at any time', () => {
  const catalog = new Catalog();
  const { inode } = catalog.directory('/a');
  const fileId = file(catalog, '/a/f', 400);
  const set = (id: number, quota: Limits | null): Command => ({ kind: 'set-quota', inode: id, quota });
  assert.match(
    message(catalog, set(inode, { quotaBytes: 1 })),
    /^"main:\/a" has entries.*create an empty directory/,
  );
  catalog.refuse('precondition-failed', set(inode, { quotaBytes: 1 }));
  catalog.refuse('not-directory', set(fileId, {}));
  catalog.refuse('bad-request', set(catalog.root, {}));
  catalog.refuse('not-found', set(inode, null));
  const other = limited(catalog, '/b', { quotaBytes: 500, quotaInodes: 10 });
  moved(catalog, '/a/f', '/b/f');
  catalog.run({ kind: 'set-quota', inode: other, quota: { quotaBytes: 100 } });
  const [row] = quotas(catalog);
  assert.deepEqual(row, {
    directory: other,
    volume: 'main',
    path: '/b',
    ...{ quotaBytes: 100, quotaInodes: 10 },
    namedInodes: 2,
    namedBytes: 400,
  });
  catalog.refuse('quota-exceeded', { kind: 'open-for-write', inode: fileId, growTo: 401 });
  settle(catalog, fileId, 300, 2);
  catalog.run({ kind: 'set-quota', inode: other, quota: { quotaBytes: 0, quotaInodes: 0 } });
  catalog.run({ kind: 'open-for-write', inode: fileId, growTo: 900 });
  catalog.refuse('precondition-failed', set(other, null));
  catalog.run({ kind: 'unlink', place: main('/b/f') });
  catalog.run({ kind: 'set-quota', inode: other, quota: null });
  assert.deepEqual(quotas(catalog), []);
  moved(catalog, '/a', '/b/a');
  catalog.file('/b/g');
  assert.equal(catalog.at('/b/g').quota, undefined);
});

test('a directory with a quota in another that ends its own counts against the outer one', () => {
  const catalog = new Catalog();
  limited(catalog, '/a', {});
  const inner = limited(catalog, '/a/b', {});
  catalog.run({ kind: 'set-quota', inode: inner, quota: null });
  file(catalog, '/a/b/f', 9);
  assert.deepEqual(used(catalog), { '/a': [3, 9] });
  catalog.run({ kind: 'unlink', place: main('/a/b/f') });
  catalog.run({ kind: 'remove-directory', place: main('/a/b') });
  catalog.run({ kind: 'remove-directory', place: main('/a') });
  assert.deepEqual(used(catalog), {});
});

test('quotas are listed by page', () => {
  const catalog = new Catalog();
  for (let index = 0; index < 5; index++) limited(catalog, `/q${index}`, { quotaInodes: index });
  const [listed] = catalog.query({ kind: 'volumes' }).volumes;
  assert.equal(listed?.fullDirectories, 1, 'Its only inode is more than nine tenths of one');
  const list = (after: number) =>
    catalog.query({ kind: 'directory-quotas', volume: 'main', after, countMax: 2 });
  const [one, two] = [list(0), list(list(0).next ?? 0)];
  assert.deepEqual(
    [...one.quotas, ...two.quotas].map(({ path }) => path),
    ['/q0', '/q1', '/q2', '/q3'],
  );
  assert.equal(list(two.next ?? 0).next, null);
});

test('a recount finds wrong counts of directories, and counts what changes meanwhile', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  const outer = limited(catalog, '/a', {});
  const inner = limited(catalog, '/a/b', {});
  for (let index = 0; index < 6; index++) file(catalog, `/a/b/f${index}`, 10);
  const recount = new Recount(catalog.db);
  recount.step(5);
  moved(catalog, '/a/b/f0', '/f0');
  moved(catalog, '/a/b/f5', '/a/f5');
  catalog.run({ kind: 'unlink', place: main('/a/b/f1') });
  const inTrash = { kind: 'trash', volume: 'main', path: '/', after: null, countMax: 9 } as const;
  const trashed = catalog.query(inTrash).files[0]?.inode ?? 0;
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: trashed, to: '/a/back' });
  catalog.run({ kind: 'unlink', place: main('/a/b/f2') });
  catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 9 });
  catalog.run({ kind: 'unlink', place: main('/a/b/f3') });
  everyStep(() => !recount.step(2));
  assert.deepEqual(recount.wrongCounters(), []);
  catalog.db.exec(`UPDATE directory_quotas SET named_bytes = named_bytes + 1 WHERE directory = ${outer}`);
  catalog.db.exec(`UPDATE directory_quotas SET named_inodes = 1 WHERE directory = ${inner}`);
  assert.deepEqual(recount.wrongCounters(), [
    { what: `named_inodes of directory ${inner}`, counter: 1, counted: 3 },
    { what: `named_bytes of directory ${outer}`, counter: 41, counted: 40 },
  ]);
});

test('a catalog of an earlier release is upgraded, and from its first quota on its batches need members that know them', () => {
  const catalog = new Catalog();
  file(catalog, '/f', 5);
  asVersion13(catalog.db);
  const db = new Database(catalog.db.serialize());
  ensureSchema(db);
  assert.equal(db.pragma('user_version', { simple: true }), SCHEMA_VERSION);
  assertSound(db);
  assert.equal(commandVersion({ kind: 'set-quota', inode: 1, quota: null }), 15);
  const pair = new Pair();
  pair.done(makeDirectory('/a'));
  assert.ok((pair.versions.at(-1) ?? 99) < 15, 'Members of earlier releases execute it');
  pair.done({ kind: 'set-quota', inode: 2, quota: {} });
  pair.done(makeDirectory('/a/b'));
  assert.deepEqual(pair.versions.slice(-2), [15, 15]);
  const imported = { kind: 'catalog-import', number: 1, after: '', next: 'x' } as const;
  const tables = [{ table: 'directory_quotas' as const, rows: [] }];
  assert.deepEqual(
    [commandVersion({ ...imported, tables }), commandVersion({ ...imported, tables: [] })],
    [15, 13],
  );
});

/** A root catalog with directories of `main` that have a quota. */
class Root extends Pair {
  constructor() {
    super();
    for (const id of MEMBERS) this.done(registration(id));
    this.done({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  }

  directory(path: string, quota?: Limits): number {
    const place = { volume: 'main', path };
    const { inode } = this.done({ kind: 'make-directory', place, ...NODE }).attributes;
    if (quota !== undefined) this.done({ kind: 'set-quota', inode, quota });
    return inode;
  }

  file(path: string, sizeBytes: number): number {
    const place = { volume: 'main', path };
    const { inode } = this.done({ kind: 'create-file', place, ...NODE, exclusive: true }).attributes;
    const one = { inode, sizeBytes, modifiedNs: '7', contents: { epoch: 1, seq: 1 } };
    this.done({ kind: 'settle', files: [one] });
    return inode;
  }

  /** Inodes and bytes that count against each quota. */
  counts(pair: Pair = this): readonly unknown[] {
    return pair.backup
      .prepare('SELECT directory, named_inodes, named_bytes FROM directory_quotas ORDER BY directory')
      .raw()
      .all();
  }
}

test('a directory that becomes a volume takes the quotas in it along, and counts no longer where it was', () => {
  const root = new Root();
  const outer = root.directory('/outer', { quotaInodes: 100 });
  root.file('/outer/beside', 1);
  const part = root.directory('/outer/part');
  root.file('/outer/part/f', 10);
  const inner = root.directory('/outer/part/inner', { quotaBytes: 500 });
  root.file('/outer/part/inner/g', 20);
  root.file('/outer/part/inner/trashed', 40);
  root.done({ kind: 'unlink', place: { volume: 'main', path: '/outer/part/inner/trashed' } });
  const before = volumeDump(root.backup, 'main');
  assert.deepEqual(root.counts(), [
    [outer, 7, 71],
    [inner, 3, 60],
  ]);

  const ended = new Move(root, 'ended', '/outer/part');
  ended.freeze();
  root.done({ kind: 'volume-part', number: ended.number, countMax: 2, resumes: true });
  assert.deepEqual(root.counts()[0], [outer, 2, 1]);
  root.done({ kind: 'volume-move-abort', name: 'ended' });
  ended.visit(1);
  assertSound(root.backup);
  assert.deepEqual(volumeDump(root.backup, 'main'), before, 'As if it had never begun');

  const move = new Move(root, 'split', '/outer/part');
  const recount = new Recount(root.primary);
  move.freeze();
  recount.step(3);
  move.visit(1);
  move.complete();
  assert.deepEqual(root.counts()[0], [outer, 3, 1], 'The junction counts in its place');
  move.forget(2);
  everyStep(() => !recount.step(5));
  assert.deepEqual(recount.wrongCounters(), []);
  assert.deepEqual(root.counts(), [[outer, 3, 1]]);
  assert.deepEqual(root.counts(move.own), [[inner, 2, 20]]);
  assertSound(root.backup);
  assertSound(move.own.backup);
  assert.notEqual(part, 0);
});

test('a directory with a quota that becomes a volume keeps it at the root of the volume', () => {
  const root = new Root();
  root.directory('/outer', {});
  const part = root.directory('/outer/part', { quotaBytes: 100 });
  root.file('/outer/part/f', 90);
  const move = new Move(root, 'split', '/outer/part');
  move.run();
  assert.deepEqual(root.counts(move.own), [[part, 2, 90]]);
  assertSound(move.own.backup);
  assert.equal(move.own.outcome({ kind: 'set-quota', inode: part, quota: { quotaBytes: 95 } }).kind, 'done');
  const place = { volume: 'split', path: '/g' };
  const contents = move.own.outcome({ kind: 'create-file', place, ...NODE, exclusive: true });
  assert.equal(contents.kind, 'done');
});

test('a volume that moves takes its quotas along; the trash of a removed directory counts in the next outer one', () => {
  const root = new Root();
  const outer = root.directory('/outer', { quotaBytes: 1_000 });
  const inner = root.directory('/outer/inner', {});
  const trashed = root.file('/outer/inner/f', 40);
  root.done({ kind: 'unlink', place: { volume: 'main', path: '/outer/inner/f' } });
  root.done({ kind: 'remove-directory', place: { volume: 'main', path: '/outer/inner' } });
  assert.deepEqual(root.counts(), [
    [outer, 2, 40],
    [inner, 1, 40],
  ]);
  const move = new Move(root);
  move.run();
  assert.deepEqual(root.counts(move.own), [[outer, 2, 40]]);
  assert.deepEqual(root.counts(), []);
  assertSound(move.own.backup);
  move.own.done({ kind: 'trash-empty', volume: 'main', inode: trashed, countMax: 1 });
  assert.deepEqual(root.counts(move.own), [[outer, 1, 0]]);
});

const inode = fc.integer({ min: 5, max: 14 });
const tree = treeSteps(pathIn(['', '/a', '/a/b', '/c', '/d', '/a/d', '/c/d'], ['x', 'y', 'd', 'q']), inode);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: tree.create },
  { weight: 3, arbitrary: tree.directory },
  { weight: 9, arbitrary: tree.write },
  { weight: 9, arbitrary: tree.rename },
  { weight: 2, arbitrary: tree.exchange },
  { weight: 2, arbitrary: tree.link },
  { weight: 2, arbitrary: tree.replace },
  { weight: 1, arbitrary: tree.orphan },
  { weight: 3, arbitrary: tree.unlink },
  { weight: 2, arbitrary: tree.removal },
  { weight: 2, arbitrary: tree.restore },
  { weight: 1, arbitrary: tree.emptying },
  {
    weight: 1,
    arbitrary: fc.record({ inode, ends: fc.boolean() }).map(({ inode, ends }): Step => {
      return { kind: 'set-quota', inode, quota: ends ? null : { quotaBytes: 2_000 } };
    }),
  },
);

test('whatever is done, quotas of directories count exactly, and no more than they allow', () => {
  let executed = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 60 }), (steps) => {
      const catalog = new Catalog();
      catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
      limited(catalog, '/a', { quotaBytes: 5_000, quotaInodes: 9 });
      limited(catalog, '/a/b', { quotaBytes: 3_000, quotaInodes: 5 });
      limited(catalog, '/c', { quotaBytes: 4_000 });
      const recount = new Recount(catalog.db);
      for (const [index, one] of steps.entries()) {
        try {
          execute(catalog, one, index + 1);
          executed += 1;
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error;
        }
        for (const { path: at, quotaBytes, quotaInodes, namedBytes, namedInodes } of quotas(catalog)) {
          assert.ok(quotaBytes === 0 || namedBytes <= quotaBytes, `${namedBytes} bytes in ${at}`);
          assert.ok(quotaInodes === 0 || namedInodes <= quotaInodes, `${namedInodes} inodes in ${at}`);
        }
        recount.step(1);
      }
      assertSound(catalog.db);
      everyStep(() => !recount.step(3));
      assert.deepEqual(recount.wrongCounters(), []);
    }),
    { numRuns: isLong ? 1_000 : 40 },
  );
  assert.ok(executed > 200, `${executed} commands`);
});
