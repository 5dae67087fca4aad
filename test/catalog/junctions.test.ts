/**
 * Goal: a directory at which a volume is attached has a name like others, and nothing in it; paths end there.
 * Method: the commands and queries of the catalog that has the directory.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { JUNCTIONS_VERSION } from '../../catalog/versions.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import { asVersion11 } from './earlier-schema.ts';
import { Catalog, main } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import { assertSound } from './soundness.ts';

const OWNER = { uid: 5, gid: 6 };

function junction(path: string, catalog = 4, volume = 'other') {
  const place = { volume: 'main', path };
  return { kind: 'junction-create', place, catalog, volume, mode: 0o750, ...OWNER } as const;
}

function resolve(path: string) {
  return { kind: 'resolve', volume: 'main', path, follow: true } as const;
}

/** A volume with the junction /dir/x. */
class Parent extends Catalog {
  readonly above: Attributes;
  readonly junction: Attributes;

  constructor() {
    super();
    this.above = this.directory('dir');
    this.junction = this.run(junction('dir/x')).attributes;
  }

  /** Where a path leads that is refused. */
  leadsTo(path: string, volume = 'main') {
    try {
      this.query({ ...resolve(path), volume });
    } catch (error) {
      assert.ok(error instanceof ServiceError && error.code === 'junction', String(error));
      return error.details.junction;
    }
    throw new assert.AssertionError({ message: `"${path}" leads nowhere else` });
  }
}

test('a junction is an empty directory with the volume in its attributes', () => {
  const { db, ...parent } = new Parent();
  const { junction: of, kind, mode, uid, gid, links } = parent.junction;
  assert.deepEqual(
    { of, kind, mode, uid, gid, links },
    { of: { catalog: 4, volume: 'other' }, kind: 'directory', mode: 0o750, ...OWNER, links: 2 },
  );
  assertSound(db);
});

test('lookup, attributes and list answer about the junction itself; other directories have none', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  const looked = parent.query({ kind: 'lookup', parent: parent.above.inode, name: 'x' });
  assert.deepEqual(looked.attributes, parent.query({ kind: 'attributes', inode }).attributes);
  assert.deepEqual(looked.attributes.junction, { catalog: 4, volume: 'other' });
  const { entries } = parent.query({ kind: 'list', inode: parent.above.inode, after: '', countMax: 9 });
  assert.deepEqual(entries, [{ name: 'x', attributes: looked.attributes }]);
  assert.deepEqual(parent.query({ kind: 'list', inode, after: '', countMax: 9 }).entries, []);
  assert.throws(() => parent.query({ kind: 'lookup', parent: inode, name: 'y' }), { code: 'not-found' });
  assert.equal(parent.at('dir', true).junction, undefined);
});

test('a path that leads into the volume, or ends at the junction, is refused with the rest of it', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  const details = (path: string) => ({ volume: 'other', catalog: 4, inode, path });
  assert.deepEqual(parent.leadsTo('/dir/x/a/b'), details('/a/b'));
  assert.deepEqual(parent.leadsTo('/dir/x'), details('/'));
  parent.symlink('into', 'dir/x/a');
  parent.symlink('dir/end', '/dir/x');
  assert.deepEqual(parent.leadsTo('into/b'), details('/a/b'));
  assert.deepEqual(parent.leadsTo('dir/end'), details('/'));
  const self = { ...resolve('dir/end'), junction: 'self' } as const;
  assert.equal(parent.query(self).attributes.inode, inode);
});

test('a symbolic link through a junction leads back by one step only', () => {
  const parent = new Parent();
  parent.symlink('back', 'dir/x/..');
  assert.equal(parent.at('back', true).inode, parent.above.inode);
  parent.symlink('around', 'dir/x/a/../../..');
  assert.throws(() => parent.query(resolve('around')), { code: 'bad-request' });
});

test('a snapshot has an empty directory instead of a junction', () => {
  const parent = new Parent();
  parent.run({ kind: 'snapshot-create', volume: 'main', name: 'then' });
  const then = (path: string) => parent.query({ ...resolve(path), volume: 'main@then' }).attributes;
  assert.equal(then('dir/x').inode, parent.junction.inode);
  assert.equal(then('dir/x').junction, undefined);
  assert.throws(() => then('dir/x/a'), { code: 'not-found' });
  parent.run({ kind: 'junction-remove', inode: parent.junction.inode });
  assert.equal(then('dir/x').junction, undefined);
  assertSound(parent.db);
});

test('nothing is created in a junction, linked or renamed to it, whatever the request names', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  const file = { mode: 0o644, ...OWNER };
  const { attributes } = parent.run({ kind: 'create-file', place: main('f'), exclusive: true, ...file });
  const { attributes: upload } = parent.run({ kind: 'create-orphan', volume: 'main', ...file });
  parent.directory('other');
  const into = (place: { parent: number; name: string } | { volume: string; path: string }): Command[] => [
    { kind: 'create-file', place, exclusive: false, ...file },
    { kind: 'make-directory', place, ...file },
    { kind: 'make-node', place, type: 'fifo', device: 0, ...file },
    { kind: 'symlink', place, target: 'f', ...OWNER },
    { kind: 'link', inode: attributes.inode, place },
    { kind: 'replace', place, inode: upload.inode, expect: { kind: 'anything' } },
    { kind: 'rename', from: main('f'), to: place, mode: 'replace' },
    { kind: 'rename', from: main('other'), to: place, mode: 'no-replace' },
    { kind: 'rename-whiteout', from: main('f'), to: place, mode: 'replace', ...OWNER },
    { kind: 'junction-create', place, catalog: 9, volume: 'third', ...file },
  ];
  for (const command of into({ parent: inode, name: 'y' })) parent.refuse('cross-volume', command);
  for (const command of into(main('dir/x/y'))) parent.refuse('junction', command);
  const { first } = parent.run({ kind: 'reserve-inodes', owner: 7, count: 1, members: [['s1', 's2', 's3']] });
  const contents = { epoch: 1, seq: 1 };
  const born = { parent: inode, name: 'y', inode: first, ...file, sizeBytes: 1, contents };
  const { files } = parent.run({
    ...{ kind: 'bear', owner: 7, replicas: ['s1', 's2', 's3'], objectBytes: 131_072, files: [born] },
  });
  assert.equal((files[first] as { code: string }).code, 'cross-volume');
  assertSound(parent.db);
});

test('a file is not restored from the trash into a junction', () => {
  const parent = new Parent();
  parent.run({ kind: 'volume-set', name: 'main', trashMs: 60_000 });
  parent.directory('gone');
  const { attributes } = parent.run({
    ...{ kind: 'create-file', place: main('gone/f'), exclusive: true, mode: 0o644, ...OWNER },
  });
  parent.run({ kind: 'unlink', place: main('gone/f') });
  parent.run({ kind: 'remove-directory', place: main('gone') });
  parent.run(junction('gone'));
  parent.refuse('cross-volume', { kind: 'trash-restore', volume: 'main', inode: attributes.inode });
});

test('a junction is neither removed nor replaced as a directory, and keeps those above it', () => {
  const parent = new Parent();
  const place = { parent: parent.above.inode, name: 'x' };
  parent.directory('other');
  for (const one of [place, main('dir/x')]) {
    parent.refuse('attached', { kind: 'remove-directory', place: one });
    parent.refuse('attached', { kind: 'rename', from: main('other'), to: one, mode: 'replace' });
    parent.refuse('is-directory', { kind: 'unlink', place: one });
    parent.refuse('exists', { ...makeDirectory(''), place: one });
  }
  parent.refuse('not-empty', { kind: 'remove-directory', place: main('dir') });
});

test('a junction is renamed in its volume, and exchanged', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  parent.directory('other');
  parent.run({ kind: 'rename', from: main('dir/x'), to: main('other/y'), mode: 'replace' });
  assert.equal(parent.leadsTo('other/y/a')?.inode, inode);
  parent.run({ kind: 'rename', from: main('dir'), to: main('other/y'), mode: 'exchange' });
  assert.equal(parent.leadsTo('dir/a')?.inode, inode);
  assertSound(parent.db);
});

test('creation and removal of a junction are repeated without effect', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  assert.equal(parent.run(junction('dir/x')).attributes.inode, inode);
  parent.refuse('exists', junction('dir/x', 5, 'third'));
  parent.refuse('exists', junction('dir'));
  parent.refuse('exists', junction('/'));
  parent.refuse('bad-request', { kind: 'junction-remove', inode: parent.above.inode });
  const before = parent.query({ kind: 'volume', name: 'main' }).volume;
  parent.run({ kind: 'junction-remove', inode });
  parent.run({ kind: 'junction-remove', inode });
  assert.throws(() => parent.query(resolve('dir/x')), { code: 'not-found' });
  assert.equal(parent.query({ kind: 'volume', name: 'main' }).volume.inodes, before.inodes - 1);
  assert.notEqual(parent.run(junction('dir/x')).attributes.inode, inode, 'Numbers are used once');
  assertSound(parent.db);
});

test('a junction that two requests have created is not removed as an unshared one', () => {
  const parent = new Parent();
  const { inode } = parent.junction;
  const removal = { kind: 'junction-remove', inode, unshared: true } as const;
  parent.run(junction('dir/x'));
  parent.run(removal);
  assert.equal(parent.query({ kind: 'attributes', inode }).attributes.inode, inode);
  parent.run({ kind: 'junction-remove', inode });
  const another = parent.run(junction('dir/x')).attributes.inode;
  parent.run({ ...removal, inode: another });
  assert.throws(() => parent.query(resolve('dir/x')), { code: 'not-found' });
  assertSound(parent.db);
});

test('a protected directory keeps its junctions', () => {
  const parent = new Parent();
  const { inode } = parent.above;
  parent.run({ kind: 'set-flags', inode, set: ['immutable'], clear: [] });
  parent.refuse('protected', { kind: 'junction-remove', inode: parent.junction.inode });
  parent.refuse('protected', junction('dir/y'));
});

test('a retry of a refused command leads to the same volume', () => {
  const parent = new Parent();
  const command = makeDirectory('dir/x/a');
  const refusals = [0, 1].map((attempt) => {
    if (attempt === 1) parent.run({ kind: 'junction-remove', inode: parent.junction.inode });
    try {
      parent.runAs(9, 1, command);
    } catch (error) {
      return (error as ServiceError).details.junction;
    }
    return undefined;
  });
  assert.ok(refusals[0] !== undefined);
  assert.deepEqual(refusals[1], refusals[0]);
});

test('a volume is not attached in itself', () => {
  const parent = new Catalog();
  parent.refuse('precondition-failed', junction('x', 0));
});

test('members execute junctions alike from their version on, also on upgraded tables', () => {
  const pair = new Pair(JUNCTIONS_VERSION - 1);
  pair.run(makeDirectory('early'));
  asVersion11(pair.backup);
  ensureSchema(pair.backup);
  pair.equal();
  pair.membersVersion = JUNCTIONS_VERSION;
  pair.run(junction('x'));
  pair.run(makeDirectory('x/y'));
  pair.equal();
  assert.equal(pair.versions.at(-1), JUNCTIONS_VERSION, 'Members of earlier releases do not know junctions');
  const tables = pair.backup.prepare('SELECT catalog, volume FROM junctions').all();
  assert.deepEqual(tables, [{ catalog: 4, volume: 'other' }]);
});
