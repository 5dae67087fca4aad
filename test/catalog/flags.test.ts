/**
 * Goal: no command changes what is immutable or append-only, on all members of the catalog, in all releases that
 * execute it.
 * Method: commands, and batches as members of two releases execute them. The rules are those of ext4 (`chattr +i`,
 * `+a`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ensureSchema } from '../../catalog/schema.ts';
import { FLAGS_VERSION } from '../../catalog/versions.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';
import { asVersion8 } from './earlier-schema.ts';
import { Catalog, main } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';

const CONTENTS = { epoch: 1, seq: 1 };

function settle(catalog: Catalog, { inode }: Attributes): void {
  const file = { inode, sizeBytes: 3, modifiedNs: '5', contents: CONTENTS };
  catalog.run({ kind: 'settle', files: [file] });
}

function setFlags(catalog: Catalog, { inode }: Attributes, ...set: InodeFlag[]): Attributes {
  return catalog.run({ kind: 'set-flags', inode, set, clear: [] }).attributes;
}

/** A settled file with these flags. */
function fileWith(catalog: Catalog, path: string, ...flags: InodeFlag[]): Attributes {
  const file = catalog.file(path);
  settle(catalog, file);
  return setFlags(catalog, file, ...flags);
}

/** Changes of the inode named `/f`, except of its contents. */
function changesOf({ inode }: Attributes, other: Attributes): Command[] {
  const [place, to] = [main('/f'), main('/to')];
  const names = { from: place, to, mode: 'replace' } as const;
  const value = Buffer.from('v').toString('base64');
  return [
    { kind: 'set-attributes', inode, mode: 0o600 },
    { kind: 'set-attributes', inode, uid: 7 },
    { kind: 'set-attributes', inode, modifiedNs: '7' },
    { kind: 'set-attributes', inode, mode: 0o600, accessedNs: '7', touches: true },
    { kind: 'set-xattr', inode, name: 'user.a', value, mode: 'set' },
    { kind: 'remove-xattr', inode, name: 'user.none' },
    { kind: 'link', inode, place: to },
    { kind: 'unlink', place },
    { kind: 'rename', ...names },
    { kind: 'rename', from: main('/o'), to: place, mode: 'replace' },
    { kind: 'rename', from: main('/o'), to: place, mode: 'exchange' },
    { kind: 'rename-whiteout', ...names, uid: 0, gid: 0 },
    { kind: 'replace', place, inode: other.inode, expect: { kind: 'anything' } },
  ];
}

for (const flag of ['immutable', 'append-only'] as const) {
  test(`attributes and names of a file that is ${flag} do not change`, () => {
    const catalog = new Catalog();
    const file = fileWith(catalog, '/f', flag);
    const { inode } = file;
    assert.deepEqual(file.flags, [flag]);
    catalog.file('/o');
    for (const command of changesOf(file, catalog.orphan())) catalog.refuse('protected', command);
    const { files } = catalog.run({
      kind: 'unlink-files',
      files: [{ parent: catalog.root, name: 'f', inode }],
    });
    assert.equal((files[0] as { code?: string }).code, 'protected');
    const touch = { kind: 'set-attributes', inode, modifiedNs: '7', touches: true } as const;
    if (flag === 'immutable') catalog.refuse('protected', touch);
    else assert.equal(catalog.run(touch).attributes.modifiedNs, `${catalog.timeNs}`);
    catalog.run({ kind: 'set-flags', inode, set: [], clear: [flag] });
    assert.equal(catalog.inode(inode).flags, undefined);
    catalog.run({ kind: 'unlink', place: main('/f') });
  });

  test(`entries of a directory that is ${flag} stay`, () => {
    const catalog = new Catalog();
    const directory = catalog.directory('/d');
    const file = catalog.file('/d/f');
    catalog.directory('/d/e');
    catalog.directory('/x');
    catalog.file('/g');
    setFlags(catalog, directory, flag);
    const orphan = catalog.orphan().inode;
    const anything = { kind: 'anything' } as const;
    const losses: Command[] = [
      { kind: 'unlink', place: main('/d/f') },
      { kind: 'remove-directory', place: main('/d/e') },
      { kind: 'rename', from: main('/d/f'), to: main('/f'), mode: 'replace' },
      { kind: 'rename', from: main('/g'), to: main('/d/f'), mode: 'replace' },
      { kind: 'rename', from: main('/d'), to: main('/x/d'), mode: 'replace' },
      { kind: 'replace', place: main('/d/f'), inode: orphan, expect: anything },
    ];
    for (const loss of losses) catalog.refuse('protected', loss);
    const owner = { uid: 0, gid: 0 };
    const additions: Command[] = [
      { kind: 'create-file', place: main('/d/1'), mode: 0o644, ...owner, exclusive: true },
      { kind: 'make-directory', place: main('/d/2'), mode: 0o755, ...owner },
      { kind: 'symlink', place: main('/d/3'), target: 't', ...owner },
      { kind: 'make-node', place: main('/d/4'), type: 'fifo', device: 0, mode: 0o644, ...owner },
      { kind: 'link', inode: file.inode, place: main('/d/5') },
      { kind: 'rename', from: main('/g'), to: main('/d/6'), mode: 'replace' },
      { kind: 'replace', place: main('/d/7'), inode: orphan, expect: anything },
    ];
    for (const addition of additions) {
      if (flag === 'immutable') catalog.refuse('protected', addition);
      else catalog.run(addition);
    }
    const members = [['s1', 's2', 's3']];
    const { first } = catalog.run({ kind: 'reserve-inodes', owner: 7, count: 1, members });
    const born = { parent: directory.inode, name: 'b', inode: first, sizeBytes: 1, mode: 0o600, ...owner };
    const { files } = catalog.run({
      ...{ kind: 'bear', owner: 7, replicas: ['s1', 's2', 's3'], objectBytes: 131_072 },
      files: [{ ...born, contents: CONTENTS }],
    });
    const outcome = files[first] as { code?: string } | null;
    assert.equal(outcome?.code, flag === 'immutable' ? 'protected' : undefined);
    // The file in it has no flags: it changes, and so do its contents.
    catalog.run({ kind: 'set-attributes', inode: file.inode, mode: 0o600 });
    catalog.run({ kind: 'open-for-write', inode: file.inode });
  });
}

test('names above an immutable inode change, and so do its replicas', () => {
  const catalog = new Catalog();
  catalog.directory('/d');
  const { inode } = fileWith(catalog, '/d/f', 'immutable');
  catalog.run({ kind: 'rename', from: main('/d'), to: main('/e'), mode: 'replace' });
  catalog.run({ kind: 'set-replicas', inode, count: 2 });
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members: ['s4', 's5'] } });
  assert.deepEqual(catalog.at('/e/f').flags, ['immutable']);
});

test('a primary gets no mark of an immutable file, and of an append-only file only for appends', () => {
  const catalog = new Catalog();
  const { inode } = fileWith(catalog, '/f', 'immutable');
  catalog.refuse('protected', { kind: 'open-for-write', inode, restricts: true });
  catalog.run({ kind: 'set-flags', inode, set: ['append-only'], clear: ['immutable'] });
  catalog.refuse('protected', { kind: 'open-for-write', inode });
  const { attributes } = catalog.run({ kind: 'open-for-write', inode, restricts: true });
  assert.deepEqual([attributes.live, attributes.flags], [true, ['append-only']]);
});

test("a file's flags change only while no primary has a mark of it; that refusal is not remembered", () => {
  const catalog = new Catalog();
  const file = catalog.file('/f');
  const command: Command = { kind: 'set-flags', inode: file.inode, set: ['immutable'], clear: [] };
  catalog.refuse('busy', command);
  assert.throws(() => catalog.runAs(9, 1, command), { code: 'busy' });
  settle(catalog, file);
  catalog.runAs(9, 1, command);
  assert.deepEqual(catalog.inode(file.inode).flags, ['immutable']);
  catalog.refuse('bad-request', { ...command, inode: catalog.symlink('/l', 'f').inode });
});

test('a snapshot shows the flags at its creation', () => {
  const catalog = new Catalog();
  const { inode } = fileWith(catalog, '/f', 'append-only');
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'then' });
  catalog.run({ kind: 'set-flags', inode, set: [], clear: ['append-only'] });
  const { attributes } = catalog.query({ kind: 'resolve', volume: 'main@then', path: '/f', follow: true });
  assert.deepEqual([attributes.flags, catalog.inode(inode).flags], [['append-only'], undefined]);
});

test('garbage is collected whatever its flags', () => {
  const catalog = new Catalog();
  const orphan = catalog.orphan();
  settle(catalog, orphan);
  setFlags(catalog, orphan, 'immutable');
  const { inode } = orphan;
  catalog.refuse('protected', { kind: 'replace', place: main('/f'), inode, expect: { kind: 'anything' } });
  const beforeNs = `${catalog.timeNs + 10n}`;
  assert.deepEqual(catalog.run({ kind: 'collect', beforeNs, countMax: 9 }).inodes, [inode]);
});

test('after the first flags, every batch demands members that obey them', () => {
  const pair = new Pair(FLAGS_VERSION);
  pair.run(makeDirectory('/d'));
  // This member is upgraded.
  asVersion8(pair.backup);
  ensureSchema(pair.backup);
  const inode = pair.primary.prepare('SELECT MAX(id) FROM inodes').pluck().get() as number;
  pair.run({ kind: 'set-flags', inode, set: ['immutable'], clear: [] });
  pair.run(makeDirectory('/e'));
  assert.deepEqual(pair.versions, [8, 8, 9, 9]);
  pair.equal();
});
