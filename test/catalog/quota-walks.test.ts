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
import { asVersion14 } from './earlier-schema.ts';
import { everyStep } from './every-step.ts';
import { Catalog, main } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import {
  assertNamesCounted,
  countedByTree,
  execute,
  file,
  type Limits,
  linked,
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
import { Move } from './volume-move.ts';

/**
 * Goal: a quota begins and ends at directories with entries, in slices, while they change: at the end it counts exactly
 * what is in the directory, or all is as before.
 */
function set(inode: number, quota: Limits | null): Command {
  return { kind: 'set-quota', inode, quota, walks: true };
}

function step(catalog: Catalog, countMax = 1): boolean {
  return catalog.run({ kind: 'walk-quotas', countMax }).more;
}

function finish(catalog: Catalog, countMax = 100): void {
  everyStep(() => step(catalog, countMax));
}

function state(catalog: Catalog, inode: number): string {
  const walk = catalog.query({ kind: 'quota-walk', inode });
  return walk.state === 'refused' ? `refused: ${walk.why}` : walk.state;
}

/** `/a` with `f1` to `f3`, `s/g`, `s/t/h`, of 10, 20, 30, 40 and 50 bytes. */
function tree(catalog: Catalog): number {
  const { inode } = catalog.directory('/a');
  for (const index of [1, 2, 3]) file(catalog, `/a/f${index}`, index * 10);
  catalog.directory('/a/s');
  file(catalog, '/a/s/g', 40);
  catalog.directory('/a/s/t');
  file(catalog, '/a/s/t/h', 50);
  return inode;
}

test('the first quota of a directory with entries counts them in slices, and its limits begin at the end', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  file(catalog, '/outside', 7);
  catalog.run(set(inode, { quotaBytes: 160, quotaInodes: 9 }));
  assert.equal(state(catalog, inode), 'counting');
  let slices = 0;
  const seen: number[] = [];
  for (; step(catalog); slices++) seen.push(quotas(catalog)[0]?.namedInodes ?? 0);
  assert.ok(slices >= 8, `${slices} slices`);
  assert.deepEqual(seen.slice(0, 3), [2, 3, 4], 'One entry each');
  assert.equal(state(catalog, inode), 'none');
  assert.deepEqual(used(catalog), { '/a': [8, 150] });
  const [row] = quotas(catalog);
  assert.deepEqual([row?.quotaBytes, row?.quotaInodes, row?.counting], [160, 9, undefined]);
  file(catalog, '/a/s/t/more');
  catalog.refuse('quota-exceeded', { kind: 'make-directory', place: main('/a/s/d'), ...NODE });
});

test('a quota that is being counted limits nothing yet, shows its limits, and may be set again', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  catalog.run(set(inode, { quotaBytes: 10 }));
  step(catalog, 2);
  const [row] = quotas(catalog);
  assert.deepEqual(
    [row?.quotaBytes, row?.namedInodes, row?.counting],
    [0, 3, { quotaBytes: 10, quotaInodes: 0 }],
  );
  const large = file(catalog, '/a/large', 0);
  catalog.run({ kind: 'open-for-write', inode: large, growTo: 500 });
  settle(catalog, large, 500, 2);
  catalog.run(set(inode, { quotaInodes: 30 }));
  catalog.run(set(inode, { quotaBytes: 20 }));
  finish(catalog);
  const [counted] = quotas(catalog);
  assert.deepEqual([counted?.quotaBytes, counted?.quotaInodes, counted?.namedBytes], [20, 30, 650]);
  catalog.refuse('quota-exceeded', { kind: 'open-for-write', inode: large, growTo: 501 });
  catalog.run({ kind: 'unlink', place: main('/a/f1') });
});

test('what is created, renamed and exchanged while a directory is counted counts where it then is', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  catalog.directory('/o');
  file(catalog, '/o/x', 1_000);
  catalog.directory('/o/d');
  file(catalog, '/o/d/y', 2_000);
  catalog.directory('/a/v');
  file(catalog, '/a/v/w', 6);
  catalog.run(set(inode, {}));
  // Visited: f1 and f2.
  step(catalog, 2);
  file(catalog, '/a/a-new', 1);
  file(catalog, '/a/s/new', 2);
  catalog.run(renamed('/a/f3', '/a/a-first'));
  catalog.run(renamed('/a/f1', '/a/s/t/last'));
  catalog.run(renamed('/o/x', '/a/a-from-outside'));
  catalog.run(renamed('/a/f2', '/outside'));
  // Directories with entries: from a part that is not visited to one that is, and into one that is not.
  catalog.run(renamed('/a/s/t', '/a/a-t'));
  catalog.directory('/a/u');
  catalog.run(renamed('/a/a-t', '/a/u/t'));
  catalog.refuse('cross-volume', renamed('/o/d', '/a/a-d'));
  catalog.refuse('cross-volume', renamed('/a/u', '/o/u'));
  file(catalog, '/a/a-other', 3);
  catalog.run(renamed('/a/a-other', '/a/v', 'exchange'));
  finish(catalog, 1);
  // a, a-new, a-first, a-from-outside, a-other with w, s with g and new, v, u with t, h, last
  assert.deepEqual(used(catalog), { '/a': [14, 1 + 30 + 1_000 + 6 + 40 + 2 + 3 + 50 + 10] });
});

test('a directory with entries moves from a visited part into one that is not visited yet', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  catalog.directory('/a/b');
  file(catalog, '/a/b/k', 5);
  catalog.run(set(inode, {}));
  // Visited: b.
  step(catalog, 1);
  catalog.run(renamed('/a/b', '/a/s/t/b'));
  catalog.refuse('cross-volume', renamed('/a/s', '/s'));
  finish(catalog, 1);
  assert.deepEqual(used(catalog), { '/a': [10, 155] });
});

test('hard links within a directory are counted once, also if they come, go and move meanwhile', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  const first = catalog.at('/a/f1').inode;
  for (const name of ['/a/s/l1', '/a/s/t/l2', '/a/z']) catalog.run(linked(first, name));
  const second = catalog.at('/a/s/g').inode;
  catalog.run(linked(second, '/a/z2'));
  catalog.run(set(inode, {}));
  // Visited: f1.
  step(catalog, 1);
  catalog.run({ kind: 'unlink', place: main('/a/f1') });
  catalog.run(renamed('/a/z', '/a/a-first'));
  catalog.run(renamed('/a/s/t/l2', '/a/a-second'));
  catalog.run(renamed('/a/z2', '/a/a-third'));
  finish(catalog, 1);
  assert.equal(state(catalog, inode), 'none');
  assert.deepEqual(used(catalog), { '/a': [8, 150] });
});

test('a hard link to what is not visited yet waits, and others are made or refused at once', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  const outside = file(catalog, '/outside', 7);
  catalog.run(set(inode, {}));
  step(catalog, 1);
  catalog.run(linked(catalog.at('/a/f1').inode, '/a/s/l'));
  catalog.refuse('cross-volume', linked(catalog.at('/a/f1').inode, '/l'));
  catalog.refuse('busy', linked(outside, '/a/l'));
  catalog.refuse('busy', linked(catalog.at('/a/s/t/h').inode, '/a/l'));
  catalog.run(linked(outside, '/second'));
  const counting = catalog.db.prepare("SELECT 1 FROM quota_walks WHERE phase = 'counting'");
  everyStep(() => step(catalog, 1) && counting.get() !== undefined);
  catalog.refuse('cross-volume', linked(outside, '/a/l'));
  finish(catalog);
  catalog.run(linked(catalog.at('/a/s/t/h').inode, '/a/l'));
  assert.deepEqual(used(catalog), { '/a': [8, 150] });
});

test('a file with names inside and outside refuses the quota by its path, and all is as before', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  catalog.run({ kind: 'set-quota', inode: catalog.directory('/a/s/q').inode, quota: {} });
  file(catalog, '/a/s/q/i', 3);
  catalog.run(linked(catalog.at('/a/s/g').inode, '/out'));
  const before = catalog.state();
  catalog.run(set(inode, { quotaBytes: 1_000 }));
  finish(catalog, 2);
  assert.equal(
    state(catalog, inode),
    'refused: "main:/a/s/g" has names inside and outside of it (hard links): remove one of them',
  );
  const isOfWalk = (line: string) => line.startsWith('quota_walks ');
  assert.deepEqual(
    catalog.state().filter((line) => !isOfWalk(line)),
    before,
  );
  catalog.run({ kind: 'unlink', place: main('/out') });
  catalog.run(set(inode, { quotaBytes: 1_000 }));
  finish(catalog, 2);
  assert.deepEqual(used(catalog), { '/a': [10, 153], '/a/s/q': [2, 3] });
});

test('a file that loses its names outside, or all inside, while a directory is counted, refuses nothing', () => {
  const catalog = new Catalog();
  const inode = tree(catalog);
  catalog.run(linked(catalog.at('/a/f1').inode, '/out1'));
  catalog.run(linked(catalog.at('/a/f2').inode, '/out2'));
  catalog.run(linked(catalog.at('/a/f2').inode, '/out3'));
  catalog.run(set(inode, {}));
  step(catalog, 3);
  catalog.run(renamed('/out2', '/moved'));
  catalog.refuse('cross-volume', renamed('/a/f1', '/gone'));
  catalog.run({ kind: 'unlink', place: main('/out1') });
  catalog.run({ kind: 'unlink', place: main('/a/f2') });
  finish(catalog, 1);
  assert.equal(state(catalog, inode), 'none');
  assert.deepEqual(used(catalog), { '/a': [7, 130] });
});

test('clear ends the quota of a directory with entries in slices, and a count that is under way', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  const outer = catalog.directory('/o').inode;
  catalog.run(set(outer, {}));
  const { inode } = catalog.directory('/o/a');
  for (let index = 0; index < 5; index++) file(catalog, `/o/a/f${index}`, 10);
  catalog.run({ kind: 'set-quota', inode: catalog.directory('/o/a/q').inode, quota: {} });
  const trashed = file(catalog, '/o/a/t', 100);
  const before = catalog.state();
  catalog.run(set(inode, { quotaBytes: 5 }));
  step(catalog, 4);
  catalog.run(set(inode, null));
  assert.equal(state(catalog, inode), 'ending');
  assert.equal(quotas(catalog).find(({ path }) => path === '/o/a')?.ending, true);
  finish(catalog, 2);
  assert.deepEqual(catalog.state(), before, 'As if it had never begun');

  catalog.run(set(inode, { quotaInodes: 3 }));
  finish(catalog);
  catalog.run({ kind: 'unlink', place: main('/o/a/t') });
  assert.deepEqual(used(catalog), { '/o': [9, 150], '/o/a': [8, 150], '/o/a/q': [1, 0] });
  catalog.run(set(inode, null));
  step(catalog, 2);
  file(catalog, '/o/a/new', 1);
  catalog.run(renamed('/o/a/f3', '/o/f3'));
  catalog.run(renamed('/o/a/f4', '/f4'));
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: trashed, to: '/o/a/back' });
  catalog.run(linked(catalog.at('/o/a/f0').inode, '/o/link'));
  catalog.run(renamed('/o/a/f1', '/o/f3', 'exchange'));
  catalog.refuse('busy', set(inode, {}));
  catalog.run(set(inode, null));
  finish(catalog, 1);
  assert.deepEqual(used(catalog), { '/o': [9, 141], '/o/a/q': [1, 0] });
  catalog.refuse('not-found', set(inode, null));
});

test('quotas in the tree and around it count what they did; too many in each other refuse one more', () => {
  const catalog = new Catalog();
  const outer = catalog.directory('/o').inode;
  catalog.run(set(outer, {}));
  const { inode } = catalog.directory('/o/a');
  catalog.directory('/o/a/s');
  const inner = catalog.directory('/o/a/s/q').inode;
  catalog.run(set(inner, {}));
  file(catalog, '/o/a/s/q/f', 9);
  catalog.run(set(inode, {}));
  step(catalog, 1);
  catalog.run(renamed('/o/a/s/q', '/o/a/q'));
  finish(catalog, 1);
  assert.deepEqual(used(catalog), { '/o': [5, 9], '/o/a': [4, 9], '/o/a/q': [2, 9] });

  let path = '/n';
  const top = catalog.directory(path).inode;
  for (let depth = 0; depth < NESTED_QUOTAS_MAX; depth++) {
    path += '/q';
    catalog.run(set(catalog.directory(path).inode, {}));
  }
  catalog.run(set(top, {}));
  finish(catalog, 1);
  assert.match(state(catalog, top), /^refused: at most 16 .* "main:\/n\/q" already$/);
  assertSound(catalog.db);
});

test('a directory that is counted may be removed, and stays in its outer quota', () => {
  const catalog = new Catalog();
  const outer = catalog.directory('/o').inode;
  catalog.run(set(outer, {}));
  const { inode } = catalog.directory('/o/a');
  for (const name of ['f', 'g', 'h']) file(catalog, `/o/a/${name}`, 4);
  catalog.run(linked(catalog.at('/o/a/f').inode, '/o/out'));
  catalog.run(set(inode, {}));
  step(catalog, 2);
  catalog.refuse('busy', renamed('/o/a', '/a'));
  catalog.run(renamed('/o/a', '/o/b'));
  for (const name of ['f', 'g', 'h']) catalog.run({ kind: 'unlink', place: main(`/o/b/${name}`) });
  catalog.run({ kind: 'remove-directory', place: main('/o/b') });
  finish(catalog, 1);
  assert.equal(catalog.db.prepare('SELECT COUNT(*) AS n FROM quota_walk_files').pluck().get(), 0);
  catalog.run({ kind: 'unlink', place: main('/o/out') });
  assert.equal(used(catalog)['/o']?.[0], 1);
});

test('what a removed directory has left counts in its outer quota, whatever phase its walk was in', () => {
  const ends: readonly ((catalog: Catalog, file: number) => void)[] = [
    (catalog) => catalog.run(renamed('/o/b', '/o/c')),
    (catalog, inode) => catalog.run(linked(inode, '/o/c')),
    () => undefined,
  ];
  for (const end of ends) {
    const catalog = new Catalog();
    const { inode: directory } = catalog.directory('/a');
    catalog.directory('/o');
    const inode = file(catalog, '/a/f');
    catalog.run(linked(inode, '/o/b'));
    catalog.run(set(directory, {}));
    step(catalog);
    catalog.run({ kind: 'unlink', place: main('/a/f'), trash: false });
    catalog.run({ kind: 'remove-directory', place: main('/a') });
    end(catalog, inode);
    finish(catalog);
    assert.deepEqual(used(catalog), {});
    catalog.run(linked(inode, '/o/d'));
  }
  const catalog = new Catalog();
  const { inode: directory } = catalog.directory('/a');
  for (const path of ['/a/s', '/t']) catalog.directory(path);
  file(catalog, '/a/s/x');
  catalog.run(set(directory, {}));
  finish(catalog);
  catalog.run(set(directory, null));
  catalog.run(renamed('/a/s', '/s'));
  catalog.run({ kind: 'remove-directory', place: main('/a') });
  finish(catalog);
  assert.deepEqual(used(catalog), {});
  catalog.run(renamed('/s', '/t/s'));
});

test('an unlinked file of a removed directory is not found; one in the trash counts in the outer quota', () => {
  const catalog = new Catalog();
  const { inode: directory } = catalog.directory('/a');
  const inode = file(catalog, '/a/f');
  catalog.run(set(directory, {}));
  step(catalog);
  catalog.run({ kind: 'unlink', place: main('/a/f'), trash: false });
  catalog.run({ kind: 'remove-directory', place: main('/a') });
  catalog.refuse('not-found', linked(inode, '/g'));
  finish(catalog);
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  const { inode: outer } = catalog.directory('/o');
  catalog.run(set(outer, {}));
  const { inode: inner } = catalog.directory('/o/a');
  const { inode: removed } = catalog.file('/o/a/f');
  catalog.run(set(inner, {}));
  step(catalog);
  catalog.run({ kind: 'unlink', place: main('/o/a/f') });
  catalog.run({ kind: 'remove-directory', place: main('/o/a') });
  catalog.run({ kind: 'trash-restore', volume: 'main', inode: removed, to: '/o/z' });
  finish(catalog, 1);
  assert.deepEqual(used(catalog), { '/o': [2, 0] });
});

test('a quota that begins in one that ends leaves no wrong counter', () => {
  const catalog = new Catalog();
  const { inode: directory } = catalog.directory('/a');
  const { inode: inner } = catalog.directory('/a/e');
  catalog.run(set(directory, {}));
  finish(catalog);
  catalog.run(set(directory, null));
  catalog.run(set(inner, { quotaInodes: 5 }));
  const recount = new Recount(catalog.db);
  everyStep(() => !recount.step(100));
  assert.deepEqual(recount.wrongCounters(), []);
  finish(catalog);
  assert.deepEqual(used(catalog), { '/a/e': [1, 0] });
});

test('a volume counts one directory at a time, and does not move or split meanwhile', () => {
  const catalog = new Catalog();
  for (const id of MEMBERS) catalog.run(registration(id));
  const inode = tree(catalog);
  const second = catalog.directory('/b').inode;
  file(catalog, '/b/f');
  const split = { kind: 'volume-split', name: 'new', volume: 'main', path: '/b', members: MEMBERS } as const;
  catalog.run(set(inode, {}));
  catalog.refuse('busy', set(second, {}));
  catalog.refuse('busy', split);
  catalog.refuse('busy', { kind: 'volume-move', name: 'main', members: MEMBERS });
  catalog.run(set(catalog.directory('/empty').inode, {}));
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'meanwhile' });
  finish(catalog, 1);
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'meanwhile' });
  everyStep(() => catalog.run({ kind: 'sweep', countMax: 100 }).more);
  catalog.run(split);
  catalog.refuse('busy', set(second, {}));
  assert.deepEqual(used(catalog), { '/a': [8, 150], '/empty': [1, 0] });
});

test('a directory that was counted becomes a volume with its quota', () => {
  const root = new Pair();
  for (const id of MEMBERS) root.done(registration(id));
  const { inode } = root.done(makeDirectory('/a')).attributes;
  root.done(makeDirectory('/a/b'));
  root.done({ kind: 'set-quota', inode, quota: { quotaInodes: 5 }, walks: true });
  everyStep(() => root.done({ kind: 'walk-quotas', countMax: 1 }).more);
  const move = new Move(root, 'split', '/a');
  move.run();
  assert.deepEqual(
    move.own.backup.prepare('SELECT directory, quota_inodes, named_inodes FROM directory_quotas').raw().all(),
    [[inode, 5, 2]],
  );
});

test('databases of schema version 14 are upgraded; walks need members that know them', () => {
  const catalog = new Catalog();
  tree(catalog);
  asVersion14(catalog.db);
  const db = new Database(catalog.db.serialize());
  ensureSchema(db);
  assert.equal(db.pragma('user_version', { simple: true }), SCHEMA_VERSION);
  assertSound(db);
  assert.deepEqual(
    [commandVersion(set(1, {})), commandVersion({ kind: 'set-quota', inode: 1, quota: null })],
    [16, 15],
  );
  const pair = new Pair();
  const { inode } = pair.done(makeDirectory('/a')).attributes;
  pair.done(makeDirectory('/a/b'));
  const refused = pair.outcome({ kind: 'set-quota', inode, quota: {} });
  assert.equal(refused.kind === 'refused' && refused.code, 'precondition-failed', 'As earlier releases');
  pair.done(set(inode, {}) as Extract<Command, { kind: 'set-quota' }>);
  pair.done(makeDirectory('/a/c'));
  everyStep(() => pair.done({ kind: 'walk-quotas', countMax: 1 }).more);
  assert.deepEqual(new Set(pair.versions.slice(-4)), new Set([16]));
  assertSound(pair.backup);
});

const path = pathIn(['', '/a', '/a/b', '/a/b/d', '/c', '/c/d', '/a/d'], ['x', 'y', 'd', 'b', 'q']);
const changes = treeSteps(path, fc.integer({ min: 2, max: 22 }));
const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: changes.create },
  { weight: 4, arbitrary: changes.directory },
  { weight: 5, arbitrary: changes.write },
  { weight: 10, arbitrary: changes.rename },
  { weight: 4, arbitrary: changes.exchange },
  // More often of files with several names.
  { weight: 6, arbitrary: treeSteps(path, fc.integer({ min: 7, max: 12 })).link },
  { weight: 2, arbitrary: changes.replace },
  { weight: 1, arbitrary: changes.orphan },
  { weight: 3, arbitrary: changes.unlink },
  { weight: 1, arbitrary: changes.removal },
  { weight: 2, arbitrary: changes.restore },
  { weight: 1, arbitrary: changes.emptying },
  {
    weight: 5,
    arbitrary: fc.tuple(fc.integer({ min: 2, max: 8 }), fc.nat({ max: 4 })).map(([inode, kind]): Step => {
      return set(inode, kind === 0 ? null : { quotaBytes: kind === 1 ? 4_000 : 0 });
    }),
  },
  {
    weight: 9,
    arbitrary: fc.integer({ min: 1, max: 3 }).map((countMax): Step => ({ kind: 'walk-quotas', countMax })),
  },
);

test('whatever is done while directories are counted, quotas count what is in them at the end', () => {
  const reached = new Map<string, number>();
  const note = (what: string) => reached.set(what, (reached.get(what) ?? 0) + 1);
  fc.assert(
    fc.property(fc.array(anyStep, { minLength: 30, maxLength: 90 }), fc.boolean(), (steps, isShared) => {
      const catalog = new Catalog();
      catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
      for (const at of ['/a', '/a/b', '/c', '/a/b/d', '/c/d']) catalog.directory(at);
      for (const at of ['/a/x', '/a/b/x', '/c/x', '/a/b/d/x']) file(catalog, at, 100);
      catalog.run(linked(catalog.at('/a/x').inode, isShared ? '/c/l' : '/a/b/l'));
      const recount = new Recount(catalog.db);
      for (const [index, one] of steps.entries()) {
        const before = catalog.db.prepare('SELECT phase FROM quota_walks').pluck().all();
        try {
          execute(catalog, one, index + 2);
          if (before.includes('counting')) note(`${one.kind} while counting`);
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error;
          if (before.length > 0) note(error.code);
        }
        for (const phase of catalog.db.prepare('SELECT phase FROM quota_walks').pluck().all())
          note(String(phase));
        assertNamesCounted(catalog);
        recount.step(1);
      }
      finish(catalog, 2);
      assertSound(catalog.db);
      everyStep(() => !recount.step(3));
      assert.deepEqual(recount.wrongCounters(), []);
      catalog.run({ kind: 'trash-empty', volume: 'main', countMax: 100 });
      const counted = catalog.db
        .prepare(
          'SELECT directory, named_inodes AS inodes, named_bytes AS bytes FROM directory_quotas ORDER BY directory',
        )
        .all();
      assert.deepEqual(counted, countedByTree(catalog));
    }),
    { numRuns: isLong ? 1_500 : 50 },
  );
  // A quota that is refused is rare: another test has it.
  for (const what of ['counting', 'ending', 'rename while counting', 'link while counting', 'busy'])
    assert.ok((reached.get(what) ?? 0) > 0, `${what}: ${JSON.stringify([...reached])}`);
});
