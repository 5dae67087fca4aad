/**
 * Goal: a clone is a deep copy of a snapshot's tree, whatever changes in it, in its source and in clones of it, and
 * whenever its directories are filled; its creation costs the same for each snapshot.
 * Method: random commands, in a catalog with clones, and in one in which each clone was copied at once by ordinary
 * commands. What differs between them is only what commands cannot set. The test plays the primaries of files, so it
 * knows which contents a reader finds.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { Prng } from '../../base/prng.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Recount } from '../../catalog/recount.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { CLONES_VERSION, COMMANDS_VERSION, commandVersion } from '../../catalog/versions.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import {
  clonesIn,
  copyTree,
  countRows,
  Disks,
  FilledCatalog,
  linesOf,
  outcomeOf,
  readFile,
  treeOf,
} from './clones-world.ts';
import { asVersion15 } from './earlier-schema.ts';
import { everyStep } from './every-step.ts';
import { SERVERS } from './fixture.ts';
import { assertSound } from './soundness.ts';

const SEEDS = isLong ? 200 : 12;
const NAMES = ['a', 'b', 'c'];
const OWNER = { uid: 1, gid: 2 };

/** A catalog with the volume `main`. */
class Cloned {
  readonly catalog = new FilledCatalog();
  readonly disks = new Disks();
  /** Numbers what is written. */
  seq = 0;

  constructor() {
    this.catalog.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 });
  }

  directory(path: string, volume = 'main'): number {
    const place = { volume, path };
    return this.catalog.run({ kind: 'make-directory', place, mode: 0o755, ...OWNER }).attributes.inode;
  }

  file(path: string, volume = 'main'): number {
    const place = { volume, path };
    const command = { kind: 'create-file', place, mode: 0o644, ...OWNER, exclusive: true } as const;
    const { inode } = this.catalog.run(command).attributes;
    this.disks.put(inode, { epoch: 0, seq: 0 }, '');
    this.#settle(inode);
    return inode;
  }

  /** Gives a file of a clone contents of its own, as servers do before its first change; perhaps not to the end. */
  fillFile(inode: number, isWhole = true): void {
    const { members } = this.catalog.run({ kind: 'clone-open', inode });
    if (members === null || !isWhole) return;
    const { source, contents } = this.catalog.query({ kind: 'shared-contents', inode });
    this.disks.put(inode, { epoch: 1, seq: 1 }, this.disks.read(source, contents));
    this.catalog.run({ kind: 'clone-filled', inode });
  }

  /** As the file's primary writes it, after it has preserved what snapshots show. */
  write(inode: number): void {
    if (this.catalog.query({ kind: 'attributes', inode }).attributes.shared === true) this.fillFile(inode);
    const mark = { epoch: 1, turn: ++this.seq };
    const ask = { kind: 'open-for-write', inode, mark, preserves: true } as const;
    for (let { preserve } = this.catalog.run(ask); preserve !== undefined; ) {
      this.disks.copy(inode, preserve.inode);
      const preserved = { inode: preserve.inode, view: { number: 1, members: ['s1', 's2', 's3'] } };
      ({ preserve } = this.catalog.run({ ...ask, preserved, contents: preserve.contents }));
    }
    this.#settle(inode);
  }

  snapshot(volume: string, name: string): number {
    return this.catalog.run({ kind: 'snapshot-create', volume, name }).snapshot.serial;
  }

  clone(volume: string, snapshot: string, name: string): number {
    return this.catalog.run({ kind: 'clone-create', name, volume, snapshot }).volume.root;
  }

  lines(name: string, sinceNs = 0n): string[] {
    return linesOf(treeOf(this.catalog, this.disks, name), sinceNs);
  }

  /** Removes all entries of a volume. */
  empty(volume: string): void {
    const remove = (parent: number): void => {
      for (const { name, attributes } of this.catalog.entries(parent)) {
        const place = { parent, name };
        if (attributes.kind === 'directory') {
          remove(attributes.inode);
          this.catalog.run({ kind: 'remove-directory', place });
        } else this.catalog.run({ kind: 'unlink', place });
      }
    };
    remove(this.catalog.at(volume, '/').inode);
  }

  collect(): void {
    while (this.catalog.run({ kind: 'sweep', countMax: 3 }).more);
    this.catalog.run({ kind: 'collect', beforeNs: '1800000000000000000', countMax: 1_000 });
  }

  #settle(inode: number): void {
    const contents = { epoch: 1, seq: ++this.seq };
    this.disks.put(inode, contents, `written as ${this.seq}`);
    const file = { inode, sizeBytes: this.seq, holeBytes: this.seq % 3, contents };
    this.catalog.run({ kind: 'settle', files: [{ ...file, modifiedNs: String(1000 + this.seq) }] });
  }
}

/** Rows that a statement inserted, deleted or changed. */
function rowsChanged(db: Database.Database, work: () => void): number {
  const changes = () => db.prepare('SELECT total_changes()').pluck().get() as number;
  const before = changes();
  work();
  return changes() - before;
}

test('a clone, and a snapshot of it, cost the same number of rows for each size', () => {
  // More commands than a session remembers, so that each forgets one.
  const costs = [100, 300].map((count) => {
    const world = new Cloned();
    world.directory('/d');
    for (let index = 0; index < count; index++) world.file(`/d/${index}`);
    world.snapshot('main', 's');
    const { db } = world.catalog;
    return [
      rowsChanged(db, () => world.clone('main', 's', 'copy')),
      rowsChanged(db, () => world.snapshot('copy', 't')),
      rowsChanged(db, () => assert.equal(clonesIn(runQuery(db, { kind: 'volumes' }))[0]?.unfilled, 1)),
    ];
  });
  assert.deepEqual(costs[0], costs[1]);
  assert.ok(
    costs.every(([clone = 0, snapshot = 0]) => clone < 20 && snapshot < 10),
    String(costs),
  );
});

test('attributes, lists, targets, devices and names are those of the snapshot; flags and retentions are not', () => {
  const world = new Cloned();
  const { catalog } = world;
  const directory = world.directory('/d');
  const inode = world.file('/d/f');
  const place = (path: string) => ({ volume: 'main', path });
  catalog.run({ kind: 'symlink', place: place('/d/l'), target: '../x', ...OWNER });
  const special = { mode: 0o620, device: 1_281, ...OWNER };
  catalog.run({ kind: 'make-node', place: place('/d/n'), type: 'character', ...special });
  catalog.run({ kind: 'link', inode, place: place('/d/g') });
  catalog.run({ kind: 'set-xattr', inode, name: 'user.a', value: 'QUJD', mode: 'set' });
  // user::rwx, user:5:r--, group::r-x, mask::rwx, other::---
  const acl = 'AgAAAAEABwD/////AgAEAAUAAAAEAAUA/////xAABwD/////IAAAAP////8=';
  const access = 'system.posix_acl_access';
  catalog.run({ kind: 'set-xattr', inode: directory, name: access, value: acl, mode: 'set' });
  const root = catalog.at('main', '/').inode;
  catalog.run({ kind: 'set-xattr', inode: root, name: 'user.root', value: 'QUJD', mode: 'set' });
  catalog.run({ kind: 'set-attributes', inode, mode: 0o4711, uid: 9, gid: 8, accessedNs: '7' });
  world.snapshot('main', 's');
  catalog.run({ kind: 'set-flags', inode, set: ['immutable'], clear: [] });
  world.snapshot('main', 'flagged');
  const then = world.lines('main@s');
  world.clone('main', 's', 'copy');
  assert.deepEqual(world.lines('copy'), then, 'With all times');
  world.clone('main', 'flagged', 'flagless');
  assert.equal(catalog.at('flagless', '/d/f').flags, undefined);
  const copied = catalog.at('copy', '/d/f');
  assert.equal(copied.shared, true);
  assert.deepEqual([copied.replicas, copied.view, copied.contents], [[], 0, { epoch: 1, seq: 1 }]);
  catalog.assertReplicasEqual();
  assertSound(catalog.db);
});

test('a directory is filled in slices, by any primary, and used once it is full', () => {
  const world = new Cloned();
  const { catalog } = world;
  const names = Array.from({ length: 7 }, (_, index) => `f${index}`);
  for (const name of names) world.file(`/${name}`);
  world.snapshot('main', 's');
  const root = world.clone('main', 's', 'copy');
  catalog.sliceMax = () => 3;
  const seen: number[] = [];
  for (let done = false; !done; ) {
    assertUnfilled(() => runQuery(catalog.db, { kind: 'lookup', parent: root, name: 'f0' }));
    assertUnfilled(() => runQuery(catalog.db, { kind: 'list', inode: root, after: '', countMax: 9 }));
    const place = { volume: 'copy', path: '/new' };
    const make: Command = { kind: 'make-directory', place, mode: 0o755, ...OWNER };
    const { outcome, directory } = catalog.attempt(make, { session: 7, number: 1 });
    assert.deepEqual([outcome.kind, directory], ['refused', root], 'It waits, and has no effect');
    done = catalog.fillNext(root);
    seen.push(countRows(catalog.db, `entries WHERE parent = ${root}`));
  }
  assert.deepEqual(seen, [3, 6, 7]);
  assert.ok(catalog.fillNext(root), 'A late command has no effect');
  assert.deepEqual(
    catalog.entries(root).map(({ name }) => name),
    names,
  );
  assert.equal(world.catalog.query({ kind: 'outcome', session: 7 }).number, 0, 'No outcome was stored');
});

function assertUnfilled(work: () => unknown): void {
  assert.throws(work, { name: 'UnfilledDirectory' });
}

test('a command that needs a directory has no effect, beside others of its batch', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  const files = [world.file('/first'), world.file('/d/second')];
  world.snapshot('main', 's');
  const root = world.clone('main', 's', 'copy');
  const first = catalog.at('copy', '/first').inode;
  const parent = catalog.at('copy', '/d').inode;
  // The first of them can be removed, the second one is not known yet.
  const unlink: Command = {
    kind: 'unlink-files',
    files: [
      { parent: root, name: 'first', inode: first },
      { parent, name: 'second', inode: files[1] ?? 0 },
    ],
  };
  const make: Command = {
    kind: 'make-directory',
    place: { parent: root, name: 'new' },
    mode: 0o755,
    ...OWNER,
  };
  const { outcomes, unfilled } = catalog.batch([
    { session: 7, number: 1, command: unlink },
    { session: 7, number: 2, command: make },
  ]);
  assert.deepEqual([[...unfilled], outcomes[1]?.kind], [[[0, parent]], 'done']);
  catalog.assertReplicasEqual();
  assert.deepEqual(
    catalog.entries(root).map(({ name }) => name),
    ['d', 'first', 'new'],
  );
  catalog.fill(parent);
  const again = catalog.batch([{ session: 7, number: 1, command: unlink }]);
  assert.deepEqual([again.unfilled.size, again.outcomes[0]?.kind], [0, 'done'], 'It is executed now');
  assert.deepEqual(
    catalog.entries(root).map(({ name }) => name),
    ['d', 'new'],
  );
});

test('files created with contents in a directory that is not filled replace no entry', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.snapshot('main', 's');
  const parent = world.clone('main', 's', 'copy');
  const members = ['s1', 's2', 's3'];
  const reserved = { owner: 1, count: 2, members: [members], volume: 'copy' };
  const { first } = catalog.run({ kind: 'reserve-inodes', ...reserved });
  const node = { parent, mode: 0o644, ...OWNER, sizeBytes: 5, contents: { epoch: 1, seq: 1 } };
  const { files } = catalog.run({
    ...{ kind: 'bear', owner: 1, replicas: members, objectBytes: 4096 },
    files: [
      { ...node, name: 'f', inode: first },
      { ...node, name: 'g', inode: first + 1 },
    ],
  });
  const refused = files[first] ?? {};
  assert.equal('code' in refused && refused.code, 'exists');
  assert.deepEqual(
    catalog.entries(parent).map(({ name }) => name),
    ['f', 'g'],
  );
  assertSound(catalog.db);
});

test('what has more entries than a slice ends after exactly that many', () => {
  const world = new Cloned();
  for (const name of ['a', 'b']) world.file(`/${name}`);
  world.snapshot('main', 's');
  const root = world.clone('main', 's', 'copy');
  world.catalog.sliceMax = () => 2;
  world.catalog.fill(root);
  assert.equal(world.catalog.entries(root).length, 2);
});

test('a directory with entries is not empty before it is filled, and an empty one is never unfilled', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/full');
  world.directory('/full/inner');
  world.directory('/none');
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const fills = () => catalog.fills;
  catalog.at('copy', '/full');
  const before = fills();
  const remove = (path: string) =>
    outcomeOf(() => catalog.run({ kind: 'remove-directory', place: { volume: 'copy', path } }));
  assert.equal(remove('/full'), 'not-empty');
  assert.equal(
    outcomeOf(() => catalog.run({ kind: 'volume-remove', name: 'copy' })),
    'not-empty',
  );
  assert.equal(remove('/none'), 'done');
  assert.equal(fills(), before, 'None was filled for that');
  assert.equal(remove('/full/inner'), 'done');
  assert.equal(clonesIn(catalog.query({ kind: 'volumes' })).length, 0, 'It needs its snapshot no longer');
  assert.equal(remove('/full'), 'done');
  catalog.run({ kind: 'volume-remove', name: 'copy' });
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 's' });
});

test('a clone of an unused clone fills nothing, and is filled from both', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  world.directory('/d/e');
  world.file('/d/e/f');
  world.snapshot('main', 's');
  const then = world.lines('main@s');
  world.clone('main', 's', 'copy');
  world.snapshot('copy', 't');
  world.clone('copy', 't', 'second');
  assert.equal(catalog.fills, 0);
  catalog.at('second', '/d');
  assert.equal(catalog.fills, 2, 'The roots of both');
  assert.deepEqual(world.lines('second'), then);
  assert.equal(catalog.at('copy@t', '/d/e/f').shared, undefined, 'Its contents are those of `source`');
  assertSound(catalog.db);
});

test('a clone has the placement of its source, and what is filled in a directory has its class', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  world.directory('/d/e');
  world.file('/d/f');
  catalog.run({ kind: 'symlink', place: { volume: 'main', path: '/d/l' }, target: 'f', ...OWNER });
  world.snapshot('main', 's');
  catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'], zones: ['z'], policy: 'all' });
  world.clone('main', 's', 'copy');
  const { volume } = catalog.query({ kind: 'volume', name: 'copy' });
  assert.deepEqual([volume.labels, volume.zones, volume.policy], [['ssd'], ['z'], 'all']);
  const { inode } = catalog.at('copy', '/d');
  catalog.run({ kind: 'set-placement', inode, class: { labels: [], zones: [], replicas: 2 } });
  const placements = ['e', 'f', 'l'].map((name) => catalog.at('copy', `/d/${name}`).placement);
  assert.deepEqual(placements, [inode, inode, undefined]);
  assertSound(catalog.db);
});

test('a clone of an empty snapshot is a volume like others', () => {
  const world = new Cloned();
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  assert.deepEqual(clonesIn(world.catalog.query({ kind: 'volumes' })), []);
  world.catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 's' });
});

test('names of one file in several directories stay names of one file', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/a');
  world.directory('/b');
  const inode = world.file('/a/one');
  for (const path of ['/b/two', '/three'])
    catalog.run({ kind: 'link', inode, place: { volume: 'main', path } });
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const first = catalog.at('copy', '/b/two');
  assert.equal(first.links, 3, 'As in the snapshot, before the others are found');
  catalog.run({ kind: 'unlink', place: { volume: 'copy', path: '/b/two' } });
  assert.equal(catalog.at('copy', '/three').inode, first.inode);
  assert.equal(catalog.at('copy', '/a/one').inode, first.inode);
  assert.equal(catalog.at('copy', '/a/one').links, 2);
  assert.equal(countRows(catalog.db, 'clone_names'), 0);
  assertSound(catalog.db);
});

test('a snapshot that a clone needs is not removed, nor moves its volume or the clone', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.snapshot('main', 's');
  world.snapshot('main', 'other');
  world.clone('main', 's', 'copy');
  world.clone('main', 's', 'another');
  const remove = (name: string) => () => catalog.run({ kind: 'snapshot-remove', volume: 'main', name });
  assert.throws(remove('s'), {
    code: 'precondition-failed',
    message: 'Snapshot "main@s" has contents of the clones "another", "copy": flatten or remove them before',
  });
  remove('other')();
  const members = ['s1', 's2', 's3'];
  const move = (name: string) => () => catalog.run({ kind: 'volume-move', name, members });
  assert.throws(
    move('copy'),
    /^ServiceError: Volume "copy" cannot move: it is a clone of a snapshot of "main"/,
  );
  assert.throws(move('main'), /cannot move: its snapshots have contents of clones: "another", "copy"/);
  world.directory('/d', 'copy');
  const split: Command = { kind: 'volume-split', name: 'new', volume: 'copy', path: '/d', members };
  assert.throws(() => catalog.run(split), /it is a clone of a snapshot of "main"/);
  world.empty('copy');
  world.collect();
  assert.throws(remove('s'), /has contents of the clone "another": flatten or remove it before/);
  world.empty('another');
  assert.throws(remove('s'), /"another"/, 'Unlinked files may be open');
  world.collect();
  remove('s')();
  assert.equal(countRows(catalog.db, 'unfilled'), 0);
  assert.equal(countRows(catalog.db, 'clones'), 0);
});

test('what cannot be cloned is refused with the reason', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.snapshot('main', 's');
  const clone = (volume: string, snapshot: string, name: string) =>
    outcomeOf(() => catalog.run({ kind: 'clone-create', name, volume, snapshot }));
  assert.equal(clone('main', 'no', 'copy'), 'not-found');
  assert.equal(clone('no', 's', 'copy'), 'not-found');
  assert.equal(clone('main', 's', 'main'), 'exists');
  assert.equal(commandVersion({ kind: 'clone-create', name: 'copy', volume: 'main', snapshot: 's' }), 17);
  for (const id of ['s1', 's2', 's3'])
    catalog.run({ kind: 'server-add', id, url: `http://${id}`, zone: 'z' });
  for (const id of ['s1', 's2', 's3']) register(catalog, id);
  const settings = { replicas: 1, objectBytes: 4096 };
  catalog.run({ kind: 'catalog-create', name: 'own', members: ['s1'], ...settings });
  assert.throws(() => catalog.run({ kind: 'clone-create', name: 'copy', volume: 'own', snapshot: 's' }), {
    code: 'precondition-failed',
    message:
      'Cannot clone a snapshot of volume "own": it has a catalog of its own, which has no other volume',
  });
  catalog.run({ kind: 'volume-move', name: 'main', members: ['s1'] });
  assert.equal(clone('main', 's', 'copy'), 'busy');
});

function register(catalog: FilledCatalog, id: string): void {
  const space = { freeBytes: 1, totalBytes: 2, commandsVersion: COMMANDS_VERSION };
  catalog.run({ kind: 'server-register', id, url: `http://${id}`, zone: 'z', storageId: id, ...space });
}

test('no primary changes a file that has no contents of its own', () => {
  const world = new Cloned();
  const { catalog, disks } = world;
  const inode = world.file('/f');
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const file = catalog.at('copy', '/f');
  const text = readFile(catalog, disks, file);
  world.write(inode);
  assert.equal(readFile(catalog, disks, file), text, 'From the file that preserves them');
  assert.notEqual(catalog.query({ kind: 'shared-contents', inode: file.inode }).source, inode);
  const open: Command = { kind: 'open-for-write', inode: file.inode, preserves: true };
  assert.throws(() => catalog.run(open), /File \d+ of the clone "copy" has no contents of its own yet/);
  const late = { inode: file.inode, sizeBytes: 5, modifiedNs: '9', contents: { epoch: 4, seq: 4 } };
  assert.equal(catalog.run({ kind: 'settle', files: [late] }).settled, 0);
  const view = { number: 2, members: ['s1'] };
  assert.equal(catalog.run({ kind: 'follow-view', inode: file.inode, view }).followed, false);
  const plan = { mark: { epoch: 1, turn: 1 }, view: 1, members: ['s1'] };
  assert.equal(
    outcomeOf(() => catalog.run({ kind: 'plan-members', inode: file.inode, ...plan })),
    'busy',
  );
  assert.deepEqual(catalog.at('copy', '/f'), file);
  const own = catalog.query({ kind: 'shared-contents', inode });
  const { contents } = catalog.at('main', '/f');
  const expected = { modifiedNs: '1003', sizeBytes: 3, objectBytes: 4096, policy: 'quorum', members: [] };
  assert.deepEqual(own, { source: inode, contents, ...expected });
});

test('a file gets contents of its own at the servers that have them, which are chosen once', () => {
  const world = new Cloned();
  const { catalog } = world;
  const source = world.file('/f');
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const { inode } = catalog.at('copy', '/f');
  const filled: Command = { kind: 'clone-filled', inode };
  assert.throws(() => catalog.run(filled), /No servers were chosen for the contents of inode \d+/);
  const members = catalog.at('main', '/f').replicas;
  assert.deepEqual(catalog.run({ kind: 'clone-open', inode }), { members });
  assert.equal(catalog.at('copy', '/f').shared, true, 'It is no change');
  const view = { number: 2, members: ['s4', 's5'] };
  assert.equal(catalog.run({ kind: 'follow-view', inode: source, view }).followed, true);
  assert.deepEqual(catalog.run({ kind: 'clone-open', inode }), { members }, 'They have made their copies');
  assert.deepEqual(catalog.query({ kind: 'shared-contents', inode }).members, members);
  catalog.run(filled);
  const file = catalog.at('copy', '/f');
  assert.deepEqual([file.shared, file.replicas, file.view], [undefined, members, 1]);
  assert.deepEqual(file.contents, { epoch: 1, seq: 1 });
  assert.equal(catalog.query({ kind: 'shared-contents', inode }).source, inode);
  assert.deepEqual(catalog.run({ kind: 'clone-open', inode }), { members: null });
  catalog.run({ kind: 'follow-view', inode, view });
  catalog.run(filled);
  assert.deepEqual(catalog.at('copy', '/f').replicas, view.members, 'A late repetition changes nothing');
  catalog.run({ kind: 'open-for-write', inode, preserves: true });
  assert.deepEqual(clonesIn(catalog.query({ kind: 'volumes' })), []);
});

test('servers stay while they copy; a file that is removed meanwhile is not filled', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const { inode } = catalog.at('copy', '/f');
  const [id = ''] = catalog.at('main', '/f').replicas;
  for (const server of SERVERS) {
    catalog.run({ kind: 'server-add', id: server, url: `http://${server}`, zone: 'z' });
    register(catalog, server);
  }
  catalog.run({ kind: 'clone-open', inode });
  const view = { number: 2, members: SERVERS.filter((server) => server !== id).slice(0, 3) };
  catalog.run({ kind: 'follow-view', inode: catalog.at('main', '/f').inode, view });
  assert.throws(() => catalog.run({ kind: 'server-remove', id, dead: false }), {
    code: 'busy',
    message: /is copying files of a clone/,
  });
  assert.deepEqual(catalog.query({ kind: 'unfilled', after: 0, countMax: 9 }).inodes, [
    { inode, kind: 'file' },
  ]);
  catalog.run({ kind: 'unlink', place: { volume: 'copy', path: '/f' } });
  world.collect();
  catalog.run({ kind: 'clone-filled', inode });
  assert.deepEqual(catalog.query({ kind: 'unfilled', after: 0, countMax: 9 }).inodes, []);
  catalog.run({ kind: 'server-remove', id, dead: false });
});

test('a clone that is flattened is listed until nothing of it needs the snapshot', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  for (const path of ['/f', '/d/g', '/d/h']) world.file(path);
  world.snapshot('main', 's');
  for (const name of ['copy', 'other']) world.clone('main', 's', name);
  const unfilled = (after = 0) => catalog.query({ kind: 'unfilled', after, countMax: 2 }).inodes;
  assert.deepEqual(unfilled(), []);
  assert.deepEqual(catalog.run({ kind: 'clone-flatten', name: 'copy' }), { unfilled: 1 });
  const seen: string[] = [];
  for (let found = unfilled(); found.length > 0; found = unfilled()) {
    for (const { inode, kind } of found) {
      seen.push(kind);
      if (kind === 'directory') catalog.fill(inode);
      else {
        catalog.run({ kind: 'clone-open', inode });
        catalog.run({ kind: 'clone-filled', inode });
      }
    }
  }
  assert.deepEqual(seen.sort(), ['directory', 'directory', 'file', 'file', 'file']);
  assert.deepEqual(
    clonesIn(catalog.query({ kind: 'volumes' })).map(({ volume, flattens }) => [volume, flattens]),
    [['other', false]],
  );
  assert.deepEqual(catalog.run({ kind: 'clone-flatten', name: 'copy' }), { unfilled: 0 });
});

test('snapshots of a clone show what is filled later, and their differences do not', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  world.file('/d/f');
  world.snapshot('main', 's');
  const lines = world.lines('main@s');
  const root = world.clone('main', 's', 'copy');
  const from = world.snapshot('copy', 'first');
  assertUnfilled(() =>
    runQuery(catalog.db, { kind: 'resolve', volume: 'copy@first', path: '/d', follow: false }),
  );
  const list = { kind: 'list', inode: root, after: '', countMax: 9, snapshot: from } as const;
  assertUnfilled(() => runQuery(catalog.db, list));
  catalog.run({ kind: 'set-attributes', inode: root, mode: 0o700 });
  const to = world.snapshot('copy', 'second');
  const range = { volume: 'copy', from, to, after: null, countMax: 10 };
  const { inodes, names } = runQuery(catalog.db, { kind: 'snapshot-changes', ...range });
  assert.deepEqual([inodes.length, names], [1, []], 'The root changed, and no directory was filled');
  catalog.run({ kind: 'unlink', place: { volume: 'copy', path: '/d/f' } });
  assert.deepEqual(world.lines('copy@first'), lines);
  assert.equal(world.lines('copy@second').length, lines.length);
  assert.equal(world.lines('copy').length, lines.length - 1);
  const again = catalog.query({ kind: 'snapshot-changes', ...range });
  assert.deepEqual([again.inodes.length, again.names], [1, []], 'Now that they are filled');
  world.collect();
  assert.deepEqual(world.lines('copy@first'), lines, 'Its file is kept for the snapshots');
  for (const name of ['first', 'second']) catalog.run({ kind: 'snapshot-remove', volume: 'copy', name });
  world.collect();
  assert.deepEqual(clonesIn(catalog.query({ kind: 'volumes' })), []);
});

test('filling counts against the quotas of the clone, which do not refuse it', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.file('/g');
  world.snapshot('main', 's');
  catalog.run({ kind: 'volume-set', name: 'main', quotaInodes: 2, quotaBytes: 1, trashMs: 60_000 });
  world.clone('main', 's', 'copy');
  const { sizeBytes } = catalog.at('copy', '/f');
  const { volume } = catalog.query({ kind: 'volume', name: 'copy' });
  assert.deepEqual([volume.quotaInodes, volume.trashMs, volume.namedInodes], [2, 60_000, 3]);
  assert.equal(volume.namedBytes, sizeBytes + catalog.at('copy', '/g').sizeBytes);
  const place = { volume: 'copy', path: '/d' };
  const make: Command = { kind: 'make-directory', place, mode: 0o755, ...OWNER };
  assert.throws(() => catalog.run(make), { code: 'quota-exceeded' });
  catalog.run({ kind: 'unlink', place: { volume: 'copy', path: '/f' }, by: 'anna' });
  assert.equal(catalog.query({ kind: 'volume', name: 'copy' }).volume.trashedBytes, sizeBytes);
  assertSound(catalog.db);
});

/** A clone with two files in `/d/in`; one of them has its other name there, too, or in `/out`. */
function withLinks(other: '/d/in' | '/out') {
  const world = new Cloned();
  const { catalog } = world;
  for (const path of ['/d', '/d/in', '/out']) world.directory(path);
  const file = world.file('/d/in/f');
  world.file('/d/in/g');
  catalog.run({ kind: 'link', inode: file, place: { volume: 'main', path: `${other}/h` } });
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  const { inode } = catalog.at('copy', '/d');
  const quota = { quotaInodes: 100 };
  catalog.run({ kind: 'set-quota', inode, quota, walks: true });
  const step = () => catalog.run({ kind: 'walk-quotas', countMax: 1 }).more;
  const rows = () => {
    const { quotas } = catalog.query({ kind: 'directory-quotas', volume: 'copy', after: 0, countMax: 9 });
    return quotas.map(({ namedInodes, namedBytes }) => [namedInodes, namedBytes]);
  };
  const bytes = () =>
    ['f', 'g'].reduce((sum, name) => sum + catalog.at('copy', `/d/in/${name}`).sizeBytes, 0);
  const isUnfilled = (path: string) => {
    const { inode: directory } = catalog.at('copy', path);
    return catalog.db.prepare('SELECT 1 FROM unfilled WHERE inode = ?').get(directory) !== undefined;
  };
  return { catalog, inode, step, rows, bytes, isUnfilled };
}

test('a quota that begins at a directory of a clone counts what is filled before its visit, and by it, once', () => {
  for (const isUsed of [false, true]) {
    const { catalog, step, rows, bytes, isUnfilled } = withLinks('/d/in');
    step();
    assert.ok(isUnfilled('/d/in'), 'Its entries are not visited yet');
    if (isUsed) catalog.at('copy', '/d/in/f');
    while (step());
    assert.equal(isUnfilled('/d/in'), false);
    assert.deepEqual(rows(), [[4, bytes()]]);
    assertSound(catalog.db);
    catalog.assertReplicasEqual();
  }
});

test('a file of a clone with names inside and outside refuses the quota, whichever is filled first', () => {
  for (const first of ['/d/in/f', '/out/h']) {
    const { catalog, inode, step, rows } = withLinks('/out');
    step();
    catalog.at('copy', first);
    while (step());
    const walk = catalog.query({ kind: 'quota-walk', inode });
    assert.match(walk.state === 'refused' ? walk.why : '', /has names inside and outside of it/, first);
    assert.deepEqual(rows(), []);
    assertSound(catalog.db);
  }
});

test('what is filled while the quota of a directory ends counts in the next outer one', () => {
  const { catalog, inode, step, rows, isUnfilled } = withLinks('/d/in');
  step();
  step();
  catalog.run({ kind: 'set-quota', inode, quota: null, walks: true });
  assert.ok(isUnfilled('/d/in'));
  const { inode: file } = catalog.at('copy', '/d/in/f');
  const quotaOf = catalog.db.prepare('SELECT quota FROM inodes WHERE id = ?').pluck();
  assert.equal(quotaOf.get(file), 0);
  const recount = new Recount(catalog.db);
  everyStep(() => !recount.step(100));
  assert.deepEqual(recount.wrongCounters(), []);
  while (step());
  assert.deepEqual(rows(), []);
  assertSound(catalog.db);
});

test('from the first clone on, all batches need members that know clones', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.file('/f');
  world.snapshot('main', 's');
  const versionOf = (number: number, volume: string): number => {
    const command: Command = { kind: 'unlink', place: { volume, path: '/f' } };
    return catalog.batch([{ session: 7, number, command }]).batch.version;
  };
  world.clone('main', 's', 'copy');
  catalog.at('copy', '/f');
  assert.equal(versionOf(1, 'copy'), CLONES_VERSION);
  const earlier = new Cloned();
  earlier.file('/f');
  const command: Command = { kind: 'unlink', place: { volume: 'main', path: '/f' } };
  assert.ok(earlier.catalog.batch([{ session: 7, number: 1, command }]).batch.version < CLONES_VERSION);
});

test('tables of the version before get those of clones', () => {
  const db = new Database(':memory:');
  ensureSchema(db);
  const made = [...dumpCatalog(db)];
  asVersion15(db);
  ensureSchema(db);
  assert.deepEqual([...dumpCatalog(db)], made);
});

test('a snapshot from before the upgrade is cloned after it', () => {
  const world = new Cloned();
  const { catalog } = world;
  world.directory('/d');
  const inode = world.file('/d/f');
  catalog.run({ kind: 'link', inode, place: { volume: 'main', path: '/g' } });
  world.snapshot('main', 's');
  const then = world.lines('main@s');
  catalog.run({ kind: 'unlink', place: { volume: 'main', path: '/d/f' } });
  for (const db of [catalog.db, catalog.other]) {
    asVersion15(db);
    ensureSchema(db);
  }
  world.clone('main', 's', 'copy');
  assert.deepEqual(world.lines('copy'), then);
  catalog.assertReplicasEqual();
  assertSound(catalog.db);
});

/** Random commands in clones, and the same in their copies. */
class Twins {
  readonly lazy = new Cloned();
  readonly copy = new Cloned();
  readonly random: Prng;
  readonly counts = new Map<string, number>();
  /** Clones by name, with their snapshots, and the time from which on both have the same times. */
  readonly volumes = new Map<string, { readonly snapshots: Set<string>; readonly sinceNs: bigint }>();
  #serial = 0;

  constructor(seed: number) {
    this.random = new Prng(seed);
    this.lazy.catalog.sliceMax = () => this.random.integer(1, 3);
  }

  /** Changes the source, and snapshots of it. */
  prepare(): void {
    for (let step = 0; step < 40; step++) this.changeSource();
    this.lazy.snapshot('main', 's');
    for (let step = 0; step < 15; step++) this.changeSource();
    this.#cloneBoth('main', 's', 'one');
  }

  step(): void {
    if (this.random.chance(0.3)) this.changeSource();
    else this.#changeClone();
  }

  /** What the catalog's primary does for clones that are flattened, and for copies that another server began. */
  #fillInBackground(volume: string): void {
    const { catalog } = this.lazy;
    if (this.random.chance(0.05)) catalog.run({ kind: 'clone-flatten', name: volume });
    for (const { inode, kind } of catalog.query({ kind: 'unfilled', after: 0, countMax: 1 }).inodes)
      if (kind === 'directory') catalog.fillNext(inode);
      else this.lazy.fillFile(inode);
    const files = catalog.db
      .prepare('SELECT u.inode FROM unfilled u JOIN inodes i ON i.id = u.inode WHERE i.kind = 1')
      .pluck()
      .all() as number[];
    if (files.length > 0) this.lazy.fillFile(this.random.pick(files), this.random.chance(0.5));
    this.#count('filled in the background');
  }

  changeSource(): void {
    const command = this.#commandIn('main', this.lazy);
    if (command === null) return;
    outcomeOf(() => command());
  }

  /** All that can be seen is the same. */
  check(): void {
    for (const [volume, { snapshots, sinceNs }] of this.volumes)
      for (const name of [volume, ...[...snapshots].map((snapshot) => `${volume}@${snapshot}`)])
        assert.deepEqual(this.lazy.lines(name, sinceNs), this.copy.lines(name, sinceNs), name);
    this.lazy.catalog.assertReplicasEqual();
    assertSound(this.lazy.catalog.db);
  }

  /** Everything goes, and nothing is left. */
  end(): void {
    const { catalog } = this.lazy;
    for (const [volume, { snapshots }] of [...this.volumes].reverse()) {
      for (const name of snapshots) catalog.run({ kind: 'snapshot-remove', volume, name });
      this.lazy.empty(volume);
      this.lazy.collect();
      catalog.run({ kind: 'volume-remove', name: volume });
    }
    for (const table of ['clones', 'unfilled', 'clone_names'])
      assert.equal(countRows(catalog.db, table), 0, table);
    for (const { name } of catalog.query({ kind: 'snapshots', volume: 'main' }).snapshots)
      catalog.run({ kind: 'snapshot-remove', volume: 'main', name });
    this.lazy.collect();
    for (const table of ['past_inodes', 'past_entries', 'past_xattrs'])
      assert.equal(countRows(catalog.db, table), 0, table);
    assertSound(catalog.db);
  }

  #changeClone(): void {
    this.#sameTime();
    const [volume, { snapshots }] = this.random.pick([...this.volumes]);
    const choice = this.random.integer(0, 99);
    if (choice < 4) {
      const name = `t${this.#serial++}`;
      this.#both('snapshot-create', ({ catalog }) => catalog.run({ kind: 'snapshot-create', volume, name }));
      snapshots.add(name);
    } else if (choice < 6 && this.volumes.size < 4 && snapshots.size > 0) {
      this.#cloneBoth(volume, this.random.pick([...snapshots]), `clone${this.#serial++}`);
    } else if (choice < 10 && snapshots.size > 0) {
      const name = this.random.pick([...snapshots]);
      const remove = { kind: 'snapshot-remove', volume, name } as const;
      const isNeeded = clonesIn(this.lazy.catalog.query({ kind: 'volumes' })).some(
        ({ source, snapshot }) => source === volume && snapshot === name,
      );
      if (isNeeded) {
        assert.equal(
          outcomeOf(() => this.lazy.catalog.run(remove)),
          'precondition-failed',
        );
        return;
      }
      this.#both('snapshot-remove', ({ catalog }) => catalog.run(remove));
      snapshots.delete(name);
    } else if (choice < 13) {
      this.#both('collect', (world) => world.collect());
    } else if (choice < 17) {
      this.#fillInBackground(volume);
    } else {
      const state = this.random.integer(0, 2 ** 31);
      const commands = [this.lazy, this.copy].map((world) => this.#commandIn(volume, world, new Prng(state)));
      const outcomes = commands.map((command) => (command === null ? 'none' : outcomeOf(() => command())));
      assert.equal(outcomes[0], outcomes[1]);
      this.#count(outcomes[0] === 'done' ? 'done' : 'refused');
    }
  }

  /** @returns a random command, with the inodes that the world has; null if there is no such inode */
  #commandIn(volume: string, world: Cloned, random = this.random): (() => unknown) | null {
    const { catalog } = world;
    const path = () =>
      `/${Array.from({ length: random.pick([1, 1, 2, 2, 3]) }, () => random.pick(NAMES)).join('/')}`;
    const place = { volume, path: path() };
    const to = { volume, path: path() };
    const choice = random.integer(0, 15);
    const [chance, value] = [random.next(), random.integer(0, 0o777)];
    const inode = (): number => catalog.at(volume, to.path).inode;
    switch (choice) {
      case 0:
      case 1:
      case 2:
        return () => catalog.run({ kind: 'make-directory', place, mode: 0o755, ...OWNER });
      case 3:
      case 4:
        return () => world.file(place.path, volume);
      case 5:
        return () => catalog.run({ kind: 'symlink', place, target: 'a/b', ...OWNER });
      case 6:
        return () => catalog.run({ kind: 'unlink', place });
      case 7:
        return () => catalog.run({ kind: 'remove-directory', place });
      case 8:
      case 9: {
        const mode = chance < 0.3 ? 'exchange' : 'replace';
        return () => catalog.run({ kind: 'rename', from: place, to, mode });
      }
      case 10:
        return () => catalog.run({ kind: 'link', inode: inode(), place });
      case 11:
        return () => catalog.run({ kind: 'set-attributes', inode: inode(), mode: value, uid: value });
      case 12:
        return () =>
          catalog.run({ kind: 'set-xattr', inode: inode(), name: 'user.a', value: 'QUJD', mode: 'set' });
      case 13:
        return () => catalog.run({ kind: 'remove-xattr', inode: inode(), name: 'user.a' });
      case 14:
        return () => world.write(inode());
      default:
        return () => catalog.at(volume, place.path);
    }
  }

  #cloneBoth(volume: string, snapshot: string, name: string): void {
    const from = volume === 'main' ? this.lazy : this.copy;
    const tree = treeOf(from.catalog, from.disks, `${volume}@${snapshot}`);
    const info = this.lazy.catalog.query({ kind: 'volume', name: volume }).volume;
    const { catalog, disks } = this.copy;
    this.#sameTime();
    const { fills } = this.lazy.catalog;
    this.lazy.clone(volume, snapshot, name);
    assert.equal(this.lazy.catalog.fills, fills, 'Nothing is filled for a new clone');
    copyTree(tree, info, { catalog, disks, name });
    this.#sameTime();
    this.volumes.set(name, { snapshots: new Set(), sinceNs: this.lazy.catalog.timeNs + 1n });
    this.#count('cloned');
  }

  #both(what: string, work: (world: Cloned) => unknown): void {
    for (const world of [this.lazy, this.copy]) work(world);
    this.#count(what);
  }

  #sameTime(): void {
    const catalogs = [this.lazy.catalog, this.copy.catalog];
    const behind = catalogs.find(({ timeNs }) => catalogs.some((other) => other.timeNs > timeNs));
    if (behind !== undefined)
      behind.timeNs = catalogs.find((other) => other !== behind)?.timeNs ?? behind.timeNs;
    this.copy.seq = this.lazy.seq;
  }

  #count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }
}

const total = new Map<string, number>();

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`a clone is a deep copy, whatever follows (seed ${seed})`, () => {
    const twins = new Twins(seed);
    twins.prepare();
    for (let step = 0; step < 120; step++) twins.step();
    assertSound(twins.lazy.catalog.db);
    const { unfilled } = clonesIn(twins.lazy.catalog.query({ kind: 'volumes' }))[0] ?? { unfilled: 0 };
    total.set('unfilled', (total.get('unfilled') ?? 0) + unfilled);
    twins.check();
    twins.end();
    for (const [what, count] of twins.counts) total.set(what, (total.get(what) ?? 0) + count);
  });
}

test('the seeds did what they are for', () => {
  const seen = (what: string) => total.get(what) ?? 0;
  for (const what of ['snapshot-create', 'snapshot-remove', 'collect', 'filled in the background'])
    assert.ok(seen(what) > SEEDS / 2, `${what}: ${seen(what)}`);
  assert.ok(seen('unfilled') > 0, 'Not all is filled at the end');
  assert.ok(seen('cloned') > SEEDS + SEEDS / 4, `Some clones are of clones: ${seen('cloned')}`);
  assert.ok(seen('done') > 10 * SEEDS && seen('refused') > 20 * SEEDS, `${seen('done')} ${seen('refused')}`);
});

test('servers of a release without clones are refused while there are some', () => {
  const world = new Cloned();
  const { catalog } = world;
  const earlier = (): string =>
    outcomeOf(() => {
      const space = { freeBytes: 1, totalBytes: 2, commandsVersion: CLONES_VERSION - 1 };
      catalog.run({
        kind: 'server-register',
        ...{ id: 's1', url: 'http://s1', zone: 'z', storageId: 'a', ...space },
      });
    });
  catalog.run({ kind: 'server-add', id: 's1', url: 'http://s1', zone: 'z' });
  assert.notEqual(earlier(), 'bad-request');
  world.file('/f');
  world.snapshot('main', 's');
  world.clone('main', 's', 'copy');
  assert.equal(earlier(), 'bad-request');
});
