/**
 * Goal: a directory of a volume becomes a volume of its own with all that is in it, while all else continues, and
 * no change is lost, executed twice, or executed in one of them only in part.
 * Method: a root catalog and the new volume's, each at a primary and a backup; commands between all steps.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import { leavingInodes } from '../../catalog/moving-volumes.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Recount } from '../../catalog/recount.ts';
import type { CatalogDatabase } from '../../catalog/schema.ts';
import { Tables } from '../../catalog/tables.ts';
import { commandVersion, requiredVersion, SPLITS_VERSION } from '../../catalog/versions.ts';
import type { Command, CommandOf } from '../../wire/catalog-api.ts';
import { EXPORT_END, EXPORT_START } from '../../wire/volume-moves.ts';
import { isLong } from '../long.ts';
import { everyStep } from './every-step.ts';
import { SERVERS } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import { registration } from './root.ts';
import { assertSound } from './soundness.ts';
import { Move, volumeDump } from './volume-move.ts';

const OWNER = { mode: 0o644, uid: 1, gid: 2 };
const at = (path: string, volume = 'main') => ({ volume, path });

function file(path: string, volume = 'main'): CommandOf<'create-file'> {
  return { kind: 'create-file', place: at(path, volume), ...OWNER, exclusive: true };
}

class Root extends Pair {
  constructor() {
    super();
    for (const id of SERVERS) this.done(registration(id));
    this.done({ kind: 'volume-create', name: 'second', replicas: 2, objectBytes: 4096 });
  }

  inode(path: string): number {
    const query = { kind: 'resolve', ...at(path), follow: false, junction: 'self' } as const;
    return runQuery<'resolve'>(this.backup, query).attributes.inode;
  }

  settle(inode: number, sizeBytes: number): void {
    const contents = { epoch: 1, seq: 1 };
    this.done({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs: '1700000000123456789', contents }] });
  }

  live(): number[] {
    const query = { kind: 'reservations', live: true, after: 0, countMax: 1_000 } as const;
    return runQuery<'reservations'>(this.backup, query).files.map(({ inode }) => inode);
  }

  /** Directories below and beside `/p/d`, with all kinds of rows. */
  fill(): void {
    this.done({ kind: 'volume-set', name: 'main', trashMs: 3_600_000, quotaBytes: 10_000_000, labels: [] });
    for (const path of ['/p', '/p/d', '/p/d/e', '/p/d/e/f', '/p/d/empty', '/q'])
      this.done(makeDirectory(path));
    for (let index = 0; index < 8; index++) {
      this.done(file(`/of-second-${index}`, 'second'));
      this.done(file(`/p/d/${index}`));
      this.done(file(`/p/d/e/f/${index}`));
      this.done(file(`/q/${index}`));
      this.settle(this.inode(`/p/d/${index}`), 100 * index);
      this.settle(this.inode(`/q/${index}`), 7 * index);
    }
    this.done({ kind: 'link', inode: this.inode('/p/d/1'), place: at('/p/d/e/twice') });
    this.done({ kind: 'link', inode: this.inode('/p/d/1'), place: at('/p/d/e/f/thrice') });
    this.done({ kind: 'link', inode: this.inode('/p/d/1'), place: at('/p/d/1-beside') });
    this.done({ kind: 'link', inode: this.inode('/q/1'), place: at('/p/outside') });
    this.done({ kind: 'symlink', place: at('/p/d/link'), target: '/q', uid: 1, gid: 2 });
    this.done({ kind: 'symlink', place: at('/q/into'), target: '/p/d', uid: 1, gid: 2 });
    this.done({ kind: 'make-node', place: at('/p/d/pipe'), type: 'fifo', device: 0, ...OWNER });
    const value = Buffer.from('x').toString('base64');
    this.done({ kind: 'set-xattr', inode: this.inode('/p/d/e'), name: 'user.a', value, mode: 'set' });
    this.done({ kind: 'junction-create', place: at('/p/d/j'), catalog: 9, volume: 'other', ...OWNER });
    this.done({
      kind: 'set-placement',
      inode: this.inode('/p/d/e'),
      class: { labels: ['ssd'], zones: [], replicas: 2 },
    });
    const mark = { epoch: 3, turn: 1 };
    this.done({ kind: 'plan-members', inode: this.inode('/p/d/2'), view: 1, mark, members: ['s4'] });
    this.done({ kind: 'unlink', place: at('/p/d/7'), by: 'anna' });
    this.done({ kind: 'unlink', place: at('/p/d/6'), trash: false });
  }
}

/** Rows of a volume, and those of the directories that have names in it, without what differs between catalogs. */
function rowsOf(db: CatalogDatabase, name: string): string[] {
  return volumeDump(db, name).map((row) => row.replace(/ parent=\d+/, row.startsWith('inodes') ? '' : '$&'));
}

/** Each path with its kind, names and size, through the junction of `new`, which is in another catalog. */
function tree(main: Pair, part: Pair | null): string[] {
  const lines: string[] = [];
  const visit = (pair: Pair, inode: number, path: string): void => {
    const { entries } = runQuery<'list'>(pair.backup, { kind: 'list', inode, after: '', countMax: 1_000 });
    for (const { name, attributes } of entries) {
      const { kind, links, sizeBytes } = attributes;
      const isPart = attributes.junction?.volume === 'new' && part !== null;
      const [below, root] = isPart ? [part, rootOf(part, 'new')] : [pair, attributes.inode];
      lines.push(`${path}/${name} ${kind} ${isPart ? linksOf(part, root) : links} ${sizeBytes}`);
      if (kind === 'directory') visit(below, root, `${path}/${name}`);
    }
  };
  visit(main, rootOf(main, 'main'), '');
  return lines;
}

function rootOf(pair: Pair, name: string): number {
  return runQuery<'volume'>(pair.backup, { kind: 'volume', name }).volume.root;
}

function linksOf(pair: Pair, inode: number): number {
  return runQuery<'attributes'>(pair.backup, { kind: 'attributes', inode }).attributes.links;
}

test('a directory becomes a volume with all its rows; the volume that had it is as before, with a junction', () => {
  const root = new Root();
  root.fill();
  const before = tree(root, null);
  const [directory, above] = [root.inode('/p/d'), root.inode('/p')];
  const inodes = root.backup.prepare('SELECT id FROM inodes').all().length;
  const recount = new Recount(root.primary);
  const move = new Move(root, 'new', '/p/d');
  assert.deepEqual(root.done({ kind: 'volume-split', name: 'new', ...at('/p/d') }).catalog, move.row);
  move.freeze();
  assert.equal(move.row?.moving, 'splitting');
  assert.ok(move.visit(2) > 8, 'In slices');
  recount.step(10);
  assert.equal(move.row?.moving, 'frozen');
  const expected = rowsOf(root.primary, 'new');
  move.record(3);
  move.copy();
  move.begin();
  move.report();
  const attached = root.inode('/p/d');
  assert.deepEqual([move.row?.state, move.row?.attached, move.row?.moving], ['ready', attached, undefined]);
  assert.deepEqual(rowsOf(move.own.backup, 'new'), expected);
  assert.equal(rootOf(move.own, 'new'), directory, 'It has its number');
  assert.ok(attached > directory);
  move.forget(5);
  everyStep(() => !recount.step(10));
  assert.deepEqual(recount.wrongCounters(), []);
  for (const { backup } of [root, move.own]) assertSound(backup);
  assert.deepEqual(tree(root, move.own), before);
  const { attributes } = runQuery<'attributes'>(root.backup, { kind: 'attributes', inode: above });
  assert.equal(attributes.links, 3);
  const left = root.backup.prepare('SELECT id FROM inodes').all().length;
  const moved = move.own.backup.prepare('SELECT id FROM inodes').all().length;
  assert.equal(left + moved, inodes + 1, 'The junction is new');
  assert.equal(root.backup.prepare('SELECT * FROM split_inodes').all().length, 0);
  assert.throws(() => runQuery(root.backup, { kind: 'resolve', ...at('/p/d/e'), follow: true }), {
    code: 'junction',
    details: { junction: { volume: 'new', catalog: move.number, inode: attached, path: '/e' } },
  });
  assert.throws(() => runQuery(root.backup, { kind: 'attributes', inode: directory }), {
    details: { elsewhere: true, movedTo: move.number },
  });
  // What was unlinked in the directory is in the trash of the volume that had it.
  assert.deepEqual(
    trashOf(root).map((removed) => removed.path),
    ['/p/d/7'],
  );
});

test('files in the new volume have the placement class that the directory had', () => {
  const root = new Root();
  for (const path of ['/p', '/p/d']) root.done(makeDirectory(path));
  root.done({ kind: 'server-label', id: 's5', labels: ['ssd'] });
  root.done({
    kind: 'set-placement',
    inode: root.inode('/p'),
    class: { labels: ['ssd'], zones: ['z'], replicas: 2 },
  });
  root.done({ kind: 'inherit-placement', inode: root.inode('/p'), after: '', countMax: 10 });
  const move = new Move(root, 'new', '/p/d');
  move.run();
  const { volume } = runQuery<'volume'>(move.own.backup, { kind: 'volume', name: 'new' });
  assert.deepEqual([volume.replicas, volume.labels, volume.zones], [2, ['ssd'], ['z']]);
  assert.deepEqual([volume.quotaBytes, volume.quotaInodes], [0, 0]);
});

const WAITS: readonly ((root: Root) => Command)[] = [
  () => file('/p/d/new'),
  () => file('/q/into/new'),
  (root) => ({ ...file(''), place: { parent: root.inode('/p/d'), name: 'new' } }),
  () => ({ kind: 'unlink', place: at('/p/d/0') }),
  () => ({ kind: 'rename', from: at('/q/2'), to: at('/p/d/new'), mode: 'replace' }),
  () => ({ kind: 'rename', from: at('/p/d/0'), to: at('/q/new'), mode: 'replace' }),
  () => ({ kind: 'rename', from: at('/p/d'), to: at('/q/d'), mode: 'replace' }),
  () => ({ kind: 'rename', from: at('/q'), to: at('/p/d'), mode: 'exchange' }),
  (root) => ({
    kind: 'rename',
    from: { parent: root.inode('/p'), name: 'd' },
    to: at('/x'),
    mode: 'replace',
  }),
  () => ({ kind: 'remove-directory', place: at('/p/d') }),
  (root) => ({ kind: 'link', inode: root.inode('/q/2'), place: at('/p/d/new') }),
  (root) => ({ kind: 'set-attributes', inode: root.inode('/p/d'), mode: 0o700 }),
  (root) => ({ kind: 'trash-restore', volume: 'main', inode: trashed(root) }),
  () => ({ kind: 'snapshot-create', volume: 'main', name: 'one' }),
  () => file('/new', 'new'),
  () => ({ kind: 'volume-set', name: 'new', replicas: 1 }),
];

function trashOf(root: Root) {
  const query = { kind: 'trash', ...at('/'), after: null, countMax: 10 } as const;
  return runQuery<'trash'>(root.backup, query).files;
}

function trashed(root: Root): number {
  return trashOf(root)[0]?.inode ?? 0;
}

test('what is in the directory waits from the first step on, what is beside it does not, nor what is not visited', () => {
  const root = new Root();
  root.fill();
  const move = new Move(root, 'new', '/p/d');
  root.done(file('/p/d/e/in-time'));
  move.freeze();
  // Neither `/p/d/e` nor what is in it is visited yet.
  root.done({ kind: 'rename', from: at('/p/d/e/f'), to: at('/q/f'), mode: 'replace' });
  root.done({ kind: 'rename', from: at('/q/f'), to: at('/p/d/e/f'), mode: 'replace' });
  root.done(file('/p/d/e/f/late'));
  const steps = [
    () => root.done({ kind: 'volume-part', number: move.number, countMax: 1, resumes: true }),
    () => move.visit(1),
    () => move.record(),
    () => move.copy(),
    () => move.begin(),
  ];
  for (const step of steps) {
    step();
    for (const command of WAITS) {
      const outcome = root.outcome(command(root));
      const shown = JSON.stringify([command(root), outcome]);
      assert.ok(outcome.kind === 'refused' && outcome.code === 'moving', shown);
    }
    for (const path of ['/q/beside', '/p/beside']) {
      root.done(file(path));
      root.done({ kind: 'unlink', place: at(path), trash: false });
    }
    root.done({ kind: 'rename', from: at('/p'), to: at('/r'), mode: 'replace' });
    root.done({ kind: 'rename', from: at('/r'), to: at('/p'), mode: 'replace' });
    assert.equal(root.outcome({ kind: 'volume-split', name: 'other', ...at('/q') }).kind, 'refused');
    assert.equal(root.outcome({ kind: 'volume-move', name: 'main' }).kind, 'refused');
  }
  const inner = root.outcome({ kind: 'set-attributes', inode: root.inode('/p/d/e/f/late'), mode: 0o600 });
  assert.ok(inner.kind === 'refused' && inner.code === 'moving');
  move.report();
  move.forget();
  assert.ok(tree(root, move.own).some((line) => line.startsWith('/p/d/e/f/late ')));
  const restored = root.outcome({ kind: 'trash-restore', volume: 'main', inode: trashed(root) });
  assert.ok(restored.kind === 'refused' && restored.code === 'cross-volume', JSON.stringify(restored));
  root.done({ kind: 'trash-restore', volume: 'main', inode: trashed(root), to: '/restored' });
});

test('until the volume has moved, paths, renames and the trash are as if nothing were split', () => {
  const root = new Root();
  for (const name of ['/p', '/p/d', '/p/d/e', '/p/d/e/f', '/p/precious']) root.done(makeDirectory(name));
  for (const name of ['/p/same', '/p/d/same', '/p/d/e/f/doc']) root.done(file(name));
  root.done({ kind: 'symlink', place: at('/p/d/up'), target: '../same', uid: 1, gid: 2 });
  root.done({ kind: 'volume-set', name: 'main', trashMs: 3_600_000 });
  const move = new Move(root, 'new', '/p/d');
  move.freeze();
  root.done({ kind: 'volume-part', number: move.number, countMax: 1, resumes: true });
  const below = root.outcome({ kind: 'rename', from: at('/p'), to: at('/p/d/e/f/x'), mode: 'replace' });
  assert.ok(below.kind === 'refused' && below.code === 'bad-request', JSON.stringify(below));
  root.done({ kind: 'unlink', place: at('/p/d/e/f/doc'), by: 'anna' });
  assert.deepEqual(
    trashOf(root).map((removed) => removed.path),
    ['/p/d/e/f/doc'],
  );
  const up = { kind: 'resolve', ...at('/p/d/up'), follow: true } as const;
  assert.equal(runQuery<'resolve'>(root.backup, up).attributes.inode, root.inode('/p/same'));
  move.visit();
  move.complete();
  move.forget();
  assertSound(move.own.backup);
  const top = rootOf(move.own, 'new');
  assert.deepEqual(move.own.backup.prepare('SELECT parent FROM inodes WHERE id = ?').get(top), {
    parent: top,
  });
  assert.deepEqual(root.done({ kind: 'remove-directory', place: at('/p/precious') }), {});
});

test('a directory is visited to its end, whatever older directories it has', () => {
  for (const countMax of [1, 2, 3]) {
    const root = new Root();
    for (const name of ['/low', '/low/a', '/low/z', '/p', '/p/a', '/p/n', '/p/z'])
      root.done(makeDirectory(name));
    root.done({ kind: 'rename', from: at('/low'), to: at('/p/low'), mode: 'replace' });
    const before = tree(root, null).filter((line) => line.startsWith('/p/'));
    const move = new Move(root, 'new', '/p');
    move.freeze();
    move.visit(countMax);
    move.complete();
    move.forget();
    assertSound(move.own.backup);
    assert.deepEqual(
      tree(root, move.own).filter((line) => line.startsWith('/p/')),
      before,
      `slices of ${countMax}`,
    );
  }
});

test('the volume of the directory is not removed meanwhile, and no name means two directories', () => {
  const root = new Root();
  for (const name of ['/d', '/q']) root.done(makeDirectory(name));
  new Move(root, 'new', '/d');
  root.done({ kind: 'remove-directory', place: at('/d') });
  const another = root.outcome({ kind: 'volume-split', name: 'new', ...at('/q') });
  assert.ok(another.kind === 'refused' && another.code === 'exists', JSON.stringify(another));
  root.done({ kind: 'remove-directory', place: at('/q') });
  const removed = root.outcome({ kind: 'volume-remove', name: 'main' });
  assert.ok(removed.kind === 'refused' && removed.code === 'busy', JSON.stringify(removed));
});

test('a placement class that is set outside goes with no file; it is inherited by none that moves', () => {
  const root = new Root();
  for (const name of ['/p', '/p/d', '/q', '/q/x']) root.done(makeDirectory(name));
  const classOf = (path: string, replicas: number): void => {
    const inode = root.inode(path);
    root.done({ kind: 'set-placement', inode, class: { labels: [], zones: [], replicas } });
    root.done({ kind: 'inherit-placement', inode, after: '', countMax: 10 });
  };
  classOf('/q', 2);
  root.done({ kind: 'rename', from: at('/q/x'), to: at('/p/d/x'), mode: 'replace' });
  const foreign = new Move(root, 'new', '/p/d');
  foreign.freeze();
  root.done({ kind: 'volume-part', number: foreign.number, countMax: 100, resumes: true });
  assert.match(
    foreign.row?.refused?.why ?? '',
    /has the placement class of directory \d+, which is not in it/,
  );
  foreign.visit();
  classOf('/p/d/x', 2);
  const move = new Move(root, 'new', '/p/d');
  move.freeze();
  move.visit();
  const inherited = { kind: 'inherit-placement', inode: root.inode('/p'), after: '', countMax: 10 } as const;
  const waits = root.outcome(inherited);
  assert.ok(waits.kind === 'refused' && waits.code === 'moving', JSON.stringify(waits));
  move.complete();
  root.done(inherited);
});

test('a split begins once all servers know how its steps continue', () => {
  const split: Command = { kind: 'volume-split', name: 'new', volume: 'main', path: '/p' };
  assert.equal(commandVersion(split), SPLITS_VERSION);
  const part: Command = { kind: 'volume-part', number: 2, countMax: 1, resumes: true };
  assert.equal(requiredVersion(split), commandVersion(part));
});

test('servers of releases that do not know splits are not let in any more', () => {
  const root = new Root();
  for (const name of ['/d', '/q']) root.done(makeDirectory(name));
  const earlier = { ...registration('s9'), commandsVersion: SPLITS_VERSION - 1 };
  new Move(root, 'new', '/d').run();
  const outcome = root.outcome(earlier);
  assert.ok(outcome.kind === 'refused' && outcome.code === 'bad-request', JSON.stringify(outcome));
  root.done({ ...earlier, commandsVersion: SPLITS_VERSION });
});

test('nothing of either volume is cached until it is known what is in the directory, then of the new one', () => {
  const root = new Root();
  root.fill();
  const isLeaving = (path: string) => leavingInodes(Tables.of(root.backup))?.(root.inode(path)) ?? false;
  const both = () => [isLeaving('/q/1'), isLeaving('/p/d/e/f/1')];
  assert.deepEqual(both(), [false, false]);
  const move = new Move(root, 'new', '/p/d');
  assert.deepEqual(both(), [true, true]);
  move.freeze();
  assert.deepEqual(both(), [true, true]);
  move.visit();
  assert.deepEqual(both(), [false, true]);
  root.done({ kind: 'volume-move-abort', name: 'new' });
  assert.deepEqual(both(), [false, true]);
  move.visit();
  assert.deepEqual(both(), [false, false]);
});

test('a directory that cannot become a volume is refused with the reason', () => {
  const root = new Root();
  root.fill();
  const split = (path: string, name = 'new'): string => {
    const outcome = root.outcome({ kind: 'volume-split', name, ...at(path) });
    assert.ok(outcome.kind === 'refused');
    return `${outcome.code}: ${outcome.message}`;
  };
  assert.match(split('/'), /^precondition-failed: "main:\/" cannot become a volume: it is the root/);
  assert.match(split('/q/1'), /^precondition-failed: .*it is no directory/);
  assert.match(split('/p/d/j'), /^precondition-failed: .*a volume is attached there/);
  assert.match(split('/nowhere'), /^not-found/);
  assert.match(split('/q', 'second'), /^exists/);
  for (const inode of root.live()) root.settle(inode, 1);
  root.done({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  assert.match(split('/q'), /has snapshots/);
  root.done({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  assert.match(split('/q'), /try again/);
  everyStep(() => root.done({ kind: 'sweep', countMax: 100 }).more);
  new Move(root, 'new', '/p/d').run();
});

test('a split that is ended, or cannot be completed, leaves the directory as it was', () => {
  const root = new Root();
  root.fill();
  const before = volumeDump(root.backup, 'main');
  const assertAsBefore = (move: Move): void => {
    assert.deepEqual([move.row?.state, move.row?.moving], ['removed', undefined]);
    move.visit(3);
    assert.deepEqual(volumeDump(root.backup, 'main'), before);
    assertSound(root.backup);
    for (const table of ['split_inodes', 'moved_numbers', 'volume_moves'])
      assert.equal(root.backup.prepare(`SELECT * FROM ${table}`).all().length, 0, table);
  };
  for (const phase of ['begun', 'splitting', 'frozen', 'numbered', 'copied']) {
    const move = new Move(root, 'new', '/p/d');
    if (phase !== 'begun') move.freeze();
    if (phase === 'splitting')
      root.done({ kind: 'volume-part', number: move.number, countMax: 4, resumes: true });
    if (phase === 'frozen' || phase === 'numbered' || phase === 'copied') move.visit();
    if (phase === 'numbered' || phase === 'copied') move.record();
    if (phase === 'copied') {
      move.copy();
      move.begin();
    }
    root.done({ kind: 'volume-move-abort', name: 'new' });
    const early = root.outcome({ kind: 'set-attributes', inode: root.inode('/p/d'), mode: 0o755 });
    if (phase !== 'begun') assert.ok(early.kind === 'refused' && early.code === 'moving', phase);
    if (phase === 'begun') before.splice(0, before.length, ...volumeDump(root.backup, 'main'));
    move.report();
    assertAsBefore(move);
  }
  root.done({ kind: 'link', inode: root.inode('/p/d/e/f/3'), place: at('/q/outside') });
  before.splice(0, before.length, ...volumeDump(root.backup, 'main'));
  const shared = new Move(root, 'new', '/p/d');
  shared.freeze();
  assert.equal(
    root.done({ kind: 'volume-part', number: shared.number, countMax: 1_000, resumes: true }).done,
    false,
  );
  assert.match(shared.row?.refused?.why ?? '', /file \d+ has names inside and outside/);
  assertAsBefore(shared);
  const gone = new Move(root, 'new', '/p/d/empty');
  root.done({ kind: 'remove-directory', place: at('/p/d/empty') });
  gone.freeze();
  assert.match(gone.row?.refused?.why ?? '', /it was removed/);
});

/** A link to a path, whose inode depends on what was executed before. */
interface Link {
  readonly kind: 'link-to';
  readonly from: string;
  readonly to: string;
}

const PATHS = ['/a', '/b', '/a/a', '/a/b', '/b/a', '/a/a/a', '/a/a/b', '/a/b/a', '/b/a/b', '/a/a/a/a'];
const path = fc.constantFrom(...PATHS);
const operation: fc.Arbitrary<Command | Link> = fc.oneof(
  { weight: 2, arbitrary: fc.tuple(path, path).map(([from, to]): Link => ({ kind: 'link-to', from, to })) },
  { weight: 3, arbitrary: path.map(makeDirectory) },
  { weight: 4, arbitrary: path.map((name) => file(name)) },
  { weight: 2, arbitrary: path.map((name): Command => ({ kind: 'unlink', place: at(name), trash: false })) },
  { weight: 1, arbitrary: path.map((name): Command => ({ kind: 'remove-directory', place: at(name) })) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(path, path, fc.constantFrom('replace' as const, 'no-replace' as const, 'exchange' as const))
      .map(([from, to, mode]): Command => ({ kind: 'rename', from: at(from), to: at(to), mode })),
  },
);
const step = fc.oneof(
  { weight: 3, arbitrary: operation },
  { weight: 2, arbitrary: fc.constant('step' as const) },
);

/** @returns null if nothing is there, or not in this catalog */
function inodeOrNull(root: Root, name: string): number | null {
  try {
    return root.inode(name);
  } catch (error) {
    if (error instanceof ServiceError) return null;
    throw error;
  }
}

/** The steps of a split, slice by slice. @returns whether the volume has moved */
function* splitting(move: Move, countMax: number): Generator<void, void> {
  move.freeze();
  yield;
  while (move.row?.moving === 'splitting') {
    move.root.done({ kind: 'volume-part', number: move.number, countMax, resumes: true });
    yield;
  }
  if (move.row?.state === 'removed') return;
  move.record();
  yield;
  for (let position: string = EXPORT_START; position !== EXPORT_END; ) {
    position = move.own.done(move.page(position)).position;
    yield;
  }
  move.begin();
  yield;
  move.report();
}

test('whatever is changed meanwhile, all that is executed is there, once', () => {
  const runs = isLong ? 2_000 : 25;
  const all = fc.tuple(
    fc.array(operation, { maxLength: 25 }),
    fc.array(step, { maxLength: 60 }),
    fc.integer({ min: 1, max: 4 }),
  );
  fc.assert(
    fc.property(all, ([first, rest, countMax]) => {
      const [root, reference] = [new Root(), new Root()];
      const both = (wanted: Command | Link): void => {
        const command = (pair: Root): Command | null => {
          if (wanted.kind !== 'link-to') return wanted;
          const inode = inodeOrNull(pair, wanted.from);
          return inode === null ? null : { kind: 'link', inode, place: at(wanted.to) };
        };
        const [here, there] = [command(root), command(reference)];
        if (here === null) return;
        const outcome = root.outcome(here);
        // What waits is repeated later, as if it came then.
        if (outcome.kind === 'refused' && (outcome.code === 'moving' || outcome.code === 'junction')) return;
        assert.ok(there !== null);
        assert.equal(outcome.kind, reference.outcome(there).kind, JSON.stringify([here, outcome]));
      };
      for (const command of [makeDirectory('/a'), ...first]) both(command);
      if (root.outcome({ kind: 'make-directory', place: at('/a/own'), ...OWNER }).kind !== 'done') return;
      reference.done({ kind: 'make-directory', place: at('/a/own'), ...OWNER });
      const move = new Move(root, 'new', '/a');
      const steps = splitting(move, countMax);
      for (const one of rest) {
        if (one === 'step') steps.next();
        else both(one);
      }
      for (const _ of steps);
      if (move.row?.state === 'removed') move.visit();
      else move.forget();
      assert.deepEqual(tree(root, move.own), tree(reference, null));
      assertSound(root.backup);
      if (move.row?.state === 'ready') assertSound(move.own.backup);
    }),
    { numRuns: runs },
  );
});
