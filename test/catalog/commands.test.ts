import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LINKS_MAX } from '../../catalog/commands/entries.ts';
import { type Place, UPLOAD_NOTE } from '../../wire/catalog-api.ts';
import { everyStep } from './every-step.ts';
import { Catalog, main, SERVERS } from './fixture.ts';

test('volume-create makes a root; names are unique', () => {
  const catalog = new Catalog();
  const { volume } = catalog.query({ kind: 'volume', name: 'main' });
  assert.deepEqual(volume, {
    name: 'main',
    root: catalog.root,
    replicas: 3,
    policy: 'quorum',
    objectBytes: 131_072,
    inodes: 1,
    usedBytes: 0,
    quotaBytes: 0,
    quotaInodes: 0,
    namedBytes: 0,
    namedInodes: 1,
    trashMs: 0,
    trashedBytes: 0,
    trashedInodes: 0,
  });
  const root = catalog.inode(catalog.root);
  assert.equal(root.kind, 'directory');
  assert.equal(root.links, 2);
  assert.equal(root.mode, 0o755);
  catalog.refuse('exists', { kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 4096 });
  const { volume: other } = catalog.run({
    kind: 'volume-create',
    name: 'alpha',
    replicas: 1,
    objectBytes: 4096,
    mode: 0o1777,
    uid: 5,
    gid: 6,
  });
  const { mode, uid, gid } = catalog.inode(other.root);
  assert.deepEqual([mode, uid, gid], [0o1777, 5, 6]);
  const { volumes } = catalog.query({ kind: 'volumes' });
  assert.deepEqual(
    volumes.map((each) => each.name),
    ['alpha', 'main'],
  );
});

test('volume-remove requires an empty volume, and removes its unlinked files', () => {
  const catalog = new Catalog();
  const file = catalog.file('/a');
  catalog.refuse('not-empty', { kind: 'volume-remove', name: 'main' });
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.refuse('not-found', { kind: 'volume-remove', name: 'other' });
  catalog.run({ kind: 'volume-remove', name: 'main' });
  assert.deepEqual(catalog.query({ kind: 'existing', inodes: [file.inode, catalog.root] }).inodes, []);
  const { volume } = catalog.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 });
  assert(volume.root > file.inode, 'Inode numbers are not used twice');
});

test('create-file returns an existing file, unless it must be new', () => {
  const catalog = new Catalog();
  const file = catalog.file('/a', 0o640);
  assert.equal(file.kind, 'file');
  assert.equal(file.live, true);
  assert.equal(file.view, 1);
  assert.equal(file.links, 1);
  assert.equal(file.mode, 0o640);
  assert.equal(file.objectBytes, 131_072);
  assert.deepEqual(file.replicas, SERVERS.slice(0, 3));
  assert.deepEqual(file.contents, { epoch: 0, seq: 0 });
  assert.equal(file.modifiedNs, catalog.timeNs.toString());
  const again = { kind: 'create-file', place: main('a'), mode: 0o600, uid: 1, gid: 1 } as const;
  catalog.refuse('exists', { ...again, exclusive: true });
  const { attributes, created } = catalog.run({ ...again, exclusive: false });
  assert.equal(created, false);
  assert.deepEqual(attributes, file);
  catalog.directory('/d');
  catalog.refuse('is-directory', { ...again, place: main('/d'), exclusive: false });
  catalog.refuse('is-directory', { ...again, place: main('/'), exclusive: false });
  catalog.refuse('exists', { ...again, place: main('/'), exclusive: true });
  catalog.refuse('not-directory', { ...again, place: main('/a/b'), exclusive: false });
  catalog.refuse('not-found', { ...again, place: main('/none/b'), exclusive: false });
  catalog.refuse('not-found', { ...again, place: { volume: 'none', path: 'b' }, exclusive: false });
  catalog.refuse('not-found', { ...again, place: { parent: 999, name: 'b' }, exclusive: false });
  catalog.refuse('not-directory', { ...again, place: { parent: file.inode, name: 'b' }, exclusive: false });
});

test('create-file by path follows a symbolic link at the end, by directory it does not', () => {
  const catalog = new Catalog();
  catalog.directory('/d');
  catalog.symlink('/link', 'd/target');
  const create = { kind: 'create-file', mode: 0o600, uid: 1, gid: 1 } as const;
  catalog.refuse('exists', { ...create, place: main('/link'), exclusive: true });
  assert.equal(catalog.run({ ...create, place: main('/link'), exclusive: false }).created, true);
  assert.deepEqual(catalog.names('/d'), ['target']);
  const place = { parent: catalog.root, name: 'link' };
  const { attributes, created } = catalog.run({ ...create, place, exclusive: false });
  assert.deepEqual([attributes.kind, created], ['symlink', false]);
});

test('names are limited in bytes, and some are invalid', () => {
  const catalog = new Catalog();
  const at = (name: string): Place => ({ parent: catalog.root, name });
  const make = (place: Place) => ({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 }) as const;
  for (const name of ['', '.', '..', 'a/b', 'a\0b', '\ud800']) {
    catalog.refuse('bad-request', make(at(name)));
    catalog.refuseQuery('bad-request', { kind: 'lookup', parent: catalog.root, name });
  }
  catalog.refuse('name-too-long', make(at('x'.repeat(256))));
  catalog.refuse('name-too-long', make(at('ä'.repeat(128))));
  catalog.refuse('name-too-long', make(main(`/${'x'.repeat(300)}/b`)));
  catalog.run(make(at('x'.repeat(255))));
  catalog.run(make(at('ä'.repeat(127))));
  for (const name of [' ', 'a b', '#', '%2f', '...', '\n', '日本', '𝄞', '\ufeff', '\ufeffa', 'a\ufffd'])
    catalog.run(make(at(name)));
});

test('paths: empty components and dots mean nothing; none leads outside', () => {
  const catalog = new Catalog();
  const directory = catalog.directory('//./d//');
  assert.equal(catalog.at('d/.').inode, directory.inode);
  assert.equal(catalog.at('').inode, catalog.root);
  for (const path of ['..', '/d/..', '/d/../d', '../../etc/passwd']) {
    catalog.refuseQuery('bad-request', { kind: 'resolve', volume: 'main', path, follow: true });
  }
});

test('symbolic links are followed within the volume', () => {
  const catalog = new Catalog();
  catalog.directory('/a');
  catalog.directory('/a/b');
  const file = catalog.file('/a/b/f');
  catalog.symlink('/absolute', '/a/b');
  catalog.symlink('/a/relative', 'b/./f');
  catalog.symlink('/a/b/up', '../..');
  catalog.symlink('/out', '../x');
  catalog.symlink('/a/deep', '../../x');
  catalog.symlink('/dangling', 'nowhere');
  catalog.symlink('/loop', 'loop');
  assert.equal(catalog.at('/absolute/f').inode, file.inode);
  assert.equal(catalog.at('/a/relative').kind, 'symlink');
  assert.equal(catalog.at('/a/relative').sizeBytes, 5);
  assert.equal(catalog.at('/a/relative', true).inode, file.inode);
  assert.equal(catalog.at('/a/b/up', true).inode, catalog.root);
  assert.equal(catalog.at('/a/b/up/a/b/f').inode, file.inode);
  const resolve = (path: string) => ({ kind: 'resolve', volume: 'main', path, follow: true }) as const;
  catalog.refuseQuery('bad-request', resolve('/out'));
  catalog.refuseQuery('bad-request', resolve('/a/deep'));
  catalog.refuseQuery('not-found', resolve('/dangling'));
  catalog.refuseQuery('symlink-loop', resolve('/loop'));
  catalog.refuseQuery('not-directory', resolve('/a/relative/x'));
  for (let index = 1; index <= 41; index++)
    catalog.symlink(`/s${index}`, index === 1 ? 'a' : `s${index - 1}`);
  assert.equal(catalog.at('/s40', true).inode, catalog.at('/a').inode);
  catalog.refuseQuery('symlink-loop', resolve('/s41'));

  const link = { kind: 'symlink', place: main('/new'), uid: 0, gid: 0 } as const;
  catalog.refuse('exists', { ...link, place: main('/dangling'), target: 'x' });
  catalog.refuse('bad-request', { ...link, target: 'a\0b' });
  catalog.refuse('name-too-long', { ...link, target: 'x'.repeat(4096) });
});

test('directories count their subdirectories and show when their entries changed', () => {
  const catalog = new Catalog();
  catalog.directory('/a');
  catalog.directory('/a/b');
  assert.equal(catalog.at('/').links, 3);
  assert.equal(catalog.at('/a').links, 3);
  assert.equal(catalog.at('/a').modifiedNs, catalog.timeNs.toString());
  assert.equal(catalog.at('/a').changedNs, catalog.timeNs.toString());
  const remove = (path: string) => ({ kind: 'remove-directory', place: main(path) }) as const;
  catalog.refuse('not-empty', remove('/a'));
  catalog.refuse('bad-request', remove('/'));
  catalog.refuse('not-found', remove('/c'));
  catalog.file('/f');
  catalog.refuse('not-directory', remove('/f'));
  const gone = catalog.at('/a/b').inode;
  catalog.run(remove('/a/b'));
  assert.equal(catalog.at('/a').links, 2);
  assert.equal(catalog.at('/a').modifiedNs, catalog.timeNs.toString());
  catalog.refuseQuery('not-found', { kind: 'attributes', inode: gone });
  // A removed directory accepts no new entry.
  catalog.refuse('not-found', {
    kind: 'make-directory',
    place: { parent: gone, name: 'x' },
    mode: 0,
    uid: 0,
    gid: 0,
  });
});

test('a directory with the setgid bit passes its group on', () => {
  const catalog = new Catalog();
  const parent = catalog.directory('/g', 0o2775);
  catalog.run({ kind: 'set-attributes', inode: parent.inode, gid: 77 });
  assert.equal(catalog.at('/g').mode, 0o2775, 'A directory keeps the bit when its group changes');
  const directory = catalog.directory('/g/d', 0o700);
  assert.deepEqual([directory.gid, directory.mode], [77, 0o2700]);
  const file = catalog.file('/g/f', 0o600);
  assert.deepEqual([file.gid, file.mode], [77, 0o600]);
  const orphan = catalog.orphan();
  catalog.run({ kind: 'replace', place: main('/g/o'), inode: orphan.inode, expect: { kind: 'nothing' } });
  assert.equal(catalog.at('/g/o').gid, 77);
});

test('make-node stores a device number only for devices', () => {
  const catalog = new Catalog();
  const node = { kind: 'make-node', mode: 0o600, uid: 0, gid: 0, device: 2 ** 40 } as const;
  assert.equal(catalog.run({ ...node, type: 'block', place: main('/b') }).attributes.device, 2 ** 40);
  const { attributes } = catalog.run({ ...node, type: 'fifo', place: main('/p') });
  assert.deepEqual([attributes.device, attributes.kind, attributes.replicas.length], [0, 'fifo', 0]);
  catalog.refuse('exists', { ...node, type: 'socket', place: main('/p') });
  assert.equal(catalog.run({ kind: 'unlink', place: main('/p') }).links, 0);
  catalog.refuseQuery('not-found', { kind: 'attributes', inode: attributes.inode });
});

test('hard links: one inode, several names', () => {
  const catalog = new Catalog();
  const file = catalog.file('/a');
  const directory = catalog.directory('/d');
  const link = { kind: 'link', inode: file.inode } as const;
  const { attributes } = catalog.run({ ...link, place: main('/d/b') });
  assert.deepEqual([attributes.inode, attributes.links], [file.inode, 2]);
  assert.equal(attributes.changedNs, catalog.timeNs.toString());
  assert.equal(attributes.modifiedNs, file.modifiedNs);
  assert.equal(catalog.at('/d').modifiedNs, catalog.timeNs.toString());
  catalog.refuse('exists', { ...link, place: main('/d/b') });
  catalog.refuse('is-directory', { ...link, inode: directory.inode, place: main('/e') });
  catalog.refuse('not-found', { ...link, inode: 12_345, place: main('/e') });
  catalog.refuse('not-found', { ...link, inode: catalog.orphan().inode, place: main('/e') });
  catalog.run({ kind: 'volume-create', name: 'other', replicas: 1, objectBytes: 4096 });
  catalog.refuse('cross-volume', { ...link, place: { volume: 'other', path: 'a' } });
  catalog.db.prepare('UPDATE inodes SET links = ? WHERE id = ?').run(LINKS_MAX, file.inode);
  catalog.refuse('too-many-links', { ...link, place: main('/e') });
  catalog.db.prepare('UPDATE inodes SET links = 2 WHERE id = ?').run(file.inode);
  assert.equal(catalog.run({ kind: 'unlink', place: main('/a') }).links, 1);
  assert.equal(catalog.inode(file.inode).changedNs, catalog.timeNs.toString());
});

test('an unlinked file is kept until it is collected', () => {
  const catalog = new Catalog();
  const file = catalog.file('/a');
  catalog.directory('/d');
  const unlink = (path: string) => ({ kind: 'unlink', place: main(path) }) as const;
  catalog.refuse('is-directory', unlink('/d'));
  catalog.refuse('is-directory', unlink('/'));
  catalog.refuse('not-found', unlink('/b'));
  assert.deepEqual(catalog.run(unlink('/a')), { inode: file.inode, links: 0 });
  const orphanedNs = catalog.timeNs;
  assert.equal(catalog.inode(file.inode).links, 0);
  const collect = (beforeNs: bigint) =>
    catalog.run({ kind: 'collect', beforeNs: beforeNs.toString(), countMax: 10 }).inodes;
  assert.deepEqual(collect(orphanedNs), []);
  catalog.run({ kind: 'keep-orphan', inode: file.inode });
  const keptNs = catalog.timeNs;
  assert.deepEqual(collect(keptNs), []);
  assert.deepEqual(collect(keptNs + 1n), [file.inode]);
  catalog.refuse('not-found', { kind: 'keep-orphan', inode: file.inode });
  assert.deepEqual(catalog.query({ kind: 'existing', inodes: [file.inode, catalog.root] }).inodes, [
    catalog.root,
  ]);
});

test('one command removes many files, each by its inode; each is refused separately', () => {
  const catalog = new Catalog();
  const [d, e] = [catalog.directory('/d'), catalog.directory('/e')];
  const [a, b, c] = [catalog.file('/d/a'), catalog.file('/d/b'), catalog.file('/e/c')];
  catalog.run({ kind: 'link', inode: b.inode, place: main('/e/b2') });
  const untouched = catalog.at('/e').modifiedNs;
  const name = (parent: number, at: string, inode: number) => ({ parent, name: at, inode });
  const { files } = catalog.run({
    kind: 'unlink-files',
    files: [
      name(d.inode, 'a', a.inode),
      name(d.inode, 'a', a.inode),
      name(e.inode, 'c', a.inode),
      name(12_345, 'c', c.inode),
      name(catalog.root, 'd', d.inode),
      name(d.inode, 'b', b.inode),
    ],
  });
  assert.deepEqual(
    files.map((left) => (typeof left === 'number' ? left : left.code)),
    [0, 'not-found', 'precondition-failed', 'not-found', 'is-directory', 1],
  );
  assert.deepEqual([catalog.inode(a.inode).links, catalog.at('/e/b2').inode], [0, b.inode]);
  assert.equal(catalog.at('/d').modifiedNs, catalog.timeNs.toString());
  assert.deepEqual([catalog.at('/e').modifiedNs, catalog.at('/e/c').inode], [untouched, c.inode]);
});

test('of many files, those that were written since or are being written are not removed', () => {
  const catalog = new Catalog();
  const d = catalog.directory('/d');
  const names = ['unwritten', 'written', 'live', 'unknown'];
  const inodes = names.map((name) => catalog.file(`/d/${name}`).inode);
  const seen = { epoch: 1, seq: 1 };
  const settle = (inode: number, seq: number) => {
    const file = { inode, sizeBytes: 0, modifiedNs: '1', contents: { epoch: 1, seq } };
    catalog.run({ kind: 'settle', files: [file] });
  };
  for (const inode of inodes) settle(inode, 1);
  const [, written = 0, live = 0] = inodes;
  settle(written, 2);
  catalog.run({ kind: 'open-for-write', inode: live });
  const { files } = catalog.run({
    kind: 'unlink-fenced',
    files: names.map((name, index) => ({ parent: d.inode, name, inode: inodes[index] ?? 0 })),
    contents: [seen, seen, seen, null],
  });
  assert.deepEqual(
    files.map((left) => (typeof left === 'number' ? left : left.code)),
    [0, 'fence-lost', 'fence-lost', 0],
  );
});

test('collect takes the oldest first, and at most as many as asked', () => {
  const catalog = new Catalog();
  const orphans = [catalog.orphan().inode, catalog.orphan().inode, catalog.orphan().inode];
  catalog.run({ kind: 'keep-orphan', inode: orphans[0] as number });
  const collect = { kind: 'collect', beforeNs: '9000000000000000000', countMax: 2 } as const;
  assert.deepEqual(catalog.run(collect).inodes, [orphans[1], orphans[2]]);
  assert.deepEqual(catalog.run(collect).inodes, [orphans[0]]);
  assert.equal(catalog.query({ kind: 'volume', name: 'main' }).volume.inodes, 1);
});

test('replace puts a file in place, which takes over mode, owner and extended attributes', () => {
  const catalog = new Catalog();
  const old = catalog.file('/a', 0o640);
  catalog.run({ kind: 'set-xattr', inode: old.inode, name: 'user.k', value: 'dg==', mode: 'set' });
  const orphan = catalog.orphan();
  const replace = { kind: 'replace', place: main('/a'), inode: orphan.inode } as const;
  catalog.refuse('precondition-failed', { ...replace, expect: { kind: 'nothing' } });
  catalog.refuse('precondition-failed', { ...replace, expect: { kind: 'inode', inode: orphan.inode } });
  catalog.refuse('bad-request', { ...replace, inode: old.inode, expect: { kind: 'anything' } });
  const { attributes, replaced } = catalog.run({ ...replace, expect: { kind: 'inode', inode: old.inode } });
  assert.equal(replaced, old.inode);
  assert.deepEqual(
    [attributes.inode, attributes.mode, attributes.uid, attributes.gid, attributes.links],
    [orphan.inode, 0o640, 10, 20, 1],
  );
  assert.equal(catalog.query({ kind: 'xattr', inode: orphan.inode, name: 'user.k' }).value, 'dg==');
  assert.equal(catalog.at('/a').inode, orphan.inode);
  assert.equal(catalog.inode(old.inode).links, 0);
  // A file with a name is not collected.
  const collect = { kind: 'collect', beforeNs: '9000000000000000000', countMax: 10 } as const;
  assert.deepEqual(catalog.run(collect).inodes, [old.inode]);
});

test('contents that a change expects are compared with what the catalog knows for certain', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const settled = { epoch: 2, seq: 7 };
  const settle = (contents = settled) =>
    catalog.run({ kind: 'settle', files: [{ inode, sizeBytes: 3, modifiedNs: '5', contents }] });
  const expect = { kind: 'contents', inode, contents: settled } as const;
  const unlink = { kind: 'unlink', place: main('/a') } as const;
  const replace = { kind: 'replace', place: main('/a'), inode: catalog.orphan().inode } as const;
  settle();
  // It may have been written since: only the primary knows.
  catalog.run({ kind: 'open-for-write', inode });
  for (const change of [unlink, replace]) catalog.refuse('precondition-failed', { ...change, expect });
  settle();
  for (const change of [unlink, replace]) {
    for (const contents of [
      { epoch: 2, seq: 6 },
      { epoch: 1, seq: 7 },
    ]) {
      catalog.refuse('precondition-failed', { ...change, expect: { ...expect, contents } });
    }
    catalog.refuse('precondition-failed', { ...change, expect: { ...expect, inode: replace.inode } });
    catalog.refuse('precondition-failed', { ...change, expect: { kind: 'nothing' } });
  }
  assert.equal(catalog.run({ ...unlink, expect }).inode, inode);
  catalog.refuse('precondition-failed', { ...replace, expect });
});

test('an upload in parts waits as long as it says, and keeps its note until it has a name', () => {
  const catalog = new Catalog();
  const make = { kind: 'create-orphan', volume: 'main', mode: 0o644, uid: 1, gid: 1 } as const;
  const orphan = () =>
    catalog.run({ ...make, note: 'bm90ZQ==', untilNs: '8000000000000000000' }).attributes.inode;
  const [named, left, dropped] = [orphan(), orphan(), orphan()];
  const note = (inode: number) => ({ kind: 'xattr', inode, name: UPLOAD_NOTE }) as const;
  assert.equal(catalog.query(note(named)).value, 'bm90ZQ==');
  catalog.refuse('bad-request', { ...note(named), kind: 'set-xattr', value: 'eA==', mode: 'set' });
  catalog.run({ kind: 'replace', place: main('/a'), inode: named, expect: { kind: 'nothing' } });
  assert.throws(() => catalog.query(note(named)), { code: 'no-attribute' });
  const collect = (beforeNs: string) => catalog.run({ kind: 'collect', beforeNs, countMax: 10 }).inodes;
  assert.deepEqual(collect('7000000000000000000'), []);
  catalog.run({ kind: 'keep-orphan', inode: dropped, untilNs: '0' });
  assert.deepEqual(collect('1'), [dropped]);
  assert.deepEqual(collect('8000000000000000001'), [left]);
});

test('replace of a missing name, through a link, and where it is not permitted', () => {
  const catalog = new Catalog();
  catalog.directory('/d');
  catalog.symlink('/link', 'd/new');
  const orphan = catalog.orphan();
  const replace = { kind: 'replace', inode: orphan.inode, expect: { kind: 'anything' } } as const;
  catalog.refuse('is-directory', { ...replace, place: main('/d') });
  catalog.refuse('is-directory', { ...replace, place: main('/') });
  catalog.refuse('not-found', { ...replace, place: main('/none/x') });
  catalog.refuse('precondition-failed', {
    ...replace,
    place: main('/link'),
    expect: { kind: 'inode', inode: 3 },
  });
  catalog.run({ kind: 'volume-create', name: 'other', replicas: 1, objectBytes: 4096 });
  catalog.refuse('cross-volume', { ...replace, place: { volume: 'other', path: 'x' } });
  const { attributes, replaced } = catalog.run({ ...replace, place: main('/link') });
  assert.deepEqual([attributes.mode, attributes.uid, replaced], [0o600, 1, null]);
  assert.deepEqual(catalog.names('/d'), ['new']);
  // A hard link of the replaced file keeps its contents.
  catalog.run({ kind: 'link', inode: orphan.inode, place: main('/kept') });
  const next = catalog.orphan();
  catalog.run({ ...replace, inode: next.inode, place: main('/d/new') });
  assert.deepEqual([catalog.at('/kept').inode, catalog.at('/kept').links], [orphan.inode, 1]);
});

test('a rename with a whiteout leaves one with its owner, and changes nothing if it is refused', () => {
  const catalog = new Catalog();
  const a = catalog.file('/a');
  catalog.directory('/d');
  const whiten = (from: string, to: string, mode: 'replace' | 'no-replace' = 'replace') =>
    ({ kind: 'rename-whiteout', from: main(from), to: main(to), mode, uid: 7, gid: 8 }) as const;
  catalog.refuse('is-directory', whiten('/a', '/d'));
  catalog.refuse('exists', whiten('/a', '/d', 'no-replace'));
  assert.deepEqual(catalog.run(whiten('/a', '/d/a')), { replaced: null });
  assert.equal(catalog.at('/d/a').inode, a.inode);
  const { kind, device, mode, uid, gid, links } = catalog.at('/a');
  assert.deepEqual(
    { kind, device, mode, uid, gid, links },
    { kind: 'character', device: 0, mode: 0, uid: 7, gid: 8, links: 1 },
  );
  catalog.run({ kind: 'volume-set', name: 'main', quotaInodes: 1 });
  catalog.refuse('quota-exceeded', whiten('/d/a', '/b'));
  assert.deepEqual([catalog.names('/'), catalog.names('/d')], [['a', 'd'], ['a']]);
});

test('rename moves, replaces and refuses as POSIX demands', () => {
  const catalog = new Catalog();
  const rename = (from: string, to: string, mode: 'replace' | 'no-replace' | 'exchange' = 'replace') =>
    ({ kind: 'rename', from: main(from), to: main(to), mode }) as const;
  const a = catalog.file('/a');
  const b = catalog.file('/b');
  const d = catalog.directory('/d');
  catalog.directory('/e');
  catalog.directory('/e/sub');

  catalog.refuse('not-found', rename('/none', '/x'));
  catalog.refuse('not-found', rename('/a', '/none/x'));
  catalog.refuse('is-directory', rename('/a', '/d'));
  catalog.refuse('not-directory', rename('/d', '/a'));
  catalog.refuse('not-empty', rename('/d', '/e'));
  catalog.refuse('bad-request', rename('/e', '/e/sub/x'));
  catalog.refuse('bad-request', rename('/e', '/e/x'));
  catalog.refuse('bad-request', rename('/', '/x'));
  catalog.refuse('bad-request', rename('/a', '/'));
  catalog.refuse('exists', rename('/a', '/b', 'no-replace'));
  catalog.run({ kind: 'volume-create', name: 'other', replicas: 1, objectBytes: 4096 });
  catalog.refuse('cross-volume', { ...rename('/a', '/x'), to: { volume: 'other', path: 'x' } });

  assert.equal(catalog.run(rename('/a', '/b')).replaced, b.inode);
  assert.equal(catalog.at('/b').inode, a.inode);
  assert.equal(catalog.at('/b').changedNs, catalog.timeNs.toString());
  assert.equal(catalog.at('/').modifiedNs, catalog.timeNs.toString());
  assert.equal(catalog.inode(b.inode).links, 0);

  // Two names of one inode: both stay.
  catalog.run({ kind: 'link', inode: a.inode, place: main('/c') });
  assert.equal(catalog.run(rename('/b', '/c')).replaced, null);
  assert.deepEqual(catalog.names(), ['b', 'c', 'd', 'e']);

  // A directory changes its parent, and the link counts of both parents follow.
  assert.equal(catalog.run(rename('/d', '/e/sub')).replaced !== null, true);
  assert.deepEqual([catalog.at('/').links, catalog.at('/e').links], [3, 3]);
  catalog.run(rename('/e/sub', '/up', 'no-replace'));
  assert.deepEqual([catalog.at('/').links, catalog.at('/e').links], [4, 2]);
  assert.equal(catalog.at('/up').inode, d.inode);
  // The moved directory knows its new parent: `..` of a link follows it.
  catalog.symlink('/up/back', '../c');
  assert.equal(catalog.at('/up/back', true).inode, a.inode);
});

test('rename can exchange two names', () => {
  const catalog = new Catalog();
  const exchange = (from: string, to: string) =>
    ({ kind: 'rename', from: main(from), to: main(to), mode: 'exchange' }) as const;
  const d = catalog.directory('/d');
  const e = catalog.directory('/d/e');
  catalog.directory('/x');
  const f = catalog.file('/x/f');
  catalog.refuse('not-found', exchange('/x/f', '/none'));
  catalog.refuse('bad-request', exchange('/d', '/d/e'));
  catalog.refuse('bad-request', exchange('/d/e', '/d'));
  assert.deepEqual(catalog.run(exchange('/d/e', '/x/f')), { replaced: null });
  assert.deepEqual([catalog.at('/d/e').inode, catalog.at('/x/f').inode], [f.inode, e.inode]);
  assert.deepEqual([catalog.at('/d').links, catalog.at('/x').links], [2, 3]);
  assert.equal(catalog.inode(f.inode).changedNs, catalog.timeNs.toString());
  catalog.symlink('/x/f/up', '..');
  assert.equal(catalog.at('/x/f/up', true).inode, catalog.at('/x').inode);
  catalog.run(exchange('/d', '/x'));
  assert.equal(catalog.at('/x').inode, d.inode);
});

test('set-attributes changes the given attributes, and a new owner clears setuid', () => {
  const catalog = new Catalog();
  const file = catalog.file('/a', 0o6755);
  const set = { kind: 'set-attributes', inode: file.inode } as const;
  assert.deepEqual(catalog.run(set).attributes, file, 'Without attributes nothing changes');
  const { attributes } = catalog.run({ ...set, gid: 9 });
  assert.deepEqual([attributes.mode, attributes.uid, attributes.gid], [0o755, 10, 9]);
  assert.equal(attributes.changedNs, catalog.timeNs.toString());
  assert.equal(attributes.modifiedNs, file.modifiedNs);
  assert.equal(catalog.run({ ...set, uid: 3, mode: 0o4711 }).attributes.mode, 0o4711);
  catalog.run({ ...set, mode: 0o6744 });
  assert.equal(
    catalog.run({ ...set, uid: 4 }).attributes.mode,
    0o2744,
    'Without the execute bit, set-id has no meaning',
  );
  const times = catalog.run({ ...set, accessedNs: '-5', modifiedNs: '9223372036854775807' }).attributes;
  assert.deepEqual([times.accessedNs, times.modifiedNs], ['-5', '9223372036854775807']);
  catalog.refuse('bad-request', { ...set, modifiedNs: '9223372036854775808' });
  catalog.refuse('bad-request', { ...set, mode: 0o700, accessedNs: 'x' });
  catalog.refuse('not-found', { ...set, inode: 99 });
});

test('set-attributes under a condition is executed once, and not after another change', () => {
  const catalog = new Catalog();
  const { inode, changedNs } = catalog.file('/a', 0o644);
  const set = { kind: 'set-attributes', inode, mode: 0o600 } as const;
  const { attributes } = catalog.run({ ...set, unchangedNs: changedNs });
  assert.equal(attributes.mode, 0o600);
  catalog.refuse('precondition-failed', { ...set, mode: 0o640, unchangedNs: changedNs });
  assert.equal(catalog.inode(inode).mode, 0o600);
  assert.equal(
    catalog.run({ ...set, mode: 0o640, unchangedNs: attributes.changedNs }).attributes.mode,
    0o640,
  );
});

test('settle: a report from before the file was marked again does not end the mark', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const settle = (seq: number, epoch: number, turn: number): number =>
    catalog.run({
      kind: 'settle',
      files: [{ inode, sizeBytes: seq, modifiedNs: '7', contents: { epoch: 1, seq }, mark: { epoch, turn } }],
    }).settled;

  assert.equal(settle(5, 1, 0), 1, 'of the primary that marked the file live');
  catalog.run({ kind: 'open-for-write', inode, mark: { epoch: 2, turn: 1 } });
  assert.equal(settle(6, 1, 3), 0, 'of an earlier primary');
  assert.equal(settle(6, 2, 0), 0, 'of the same primary, before it marked the file');
  assert.deepEqual([catalog.inode(inode).live, catalog.inode(inode).sizeBytes], [true, 5]);
  catalog.run({ kind: 'open-for-write', inode, mark: { epoch: 1, turn: 9 } });
  assert.equal(settle(6, 1, 9), 0, 'an earlier primary cannot take the mark back');
  assert.equal(settle(7, 2, 1), 1);
  assert.deepEqual([catalog.inode(inode).live, catalog.inode(inode).sizeBytes], [false, 7]);
});

test('settle: the newest contents win, and a time that a client set holds until newer contents', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const settle = (epoch: number, seq: number, sizeBytes: number, modifiedNs: string): number =>
    catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs, contents: { epoch, seq } }] })
      .settled;
  const used = (): number => catalog.query({ kind: 'volume', name: 'main' }).volume.usedBytes;

  assert.equal(settle(1, 5, 100, '1700000000000000500'), 1);
  let now = catalog.inode(inode);
  assert.deepEqual(
    [now.sizeBytes, now.modifiedNs, now.changedNs, now.live, now.contents],
    [100, '1700000000000000500', '1700000000000000500', false, { epoch: 1, seq: 5 }],
  );
  assert.equal(used(), 100);

  assert.equal(catalog.run({ kind: 'open-for-write', inode }).attributes.live, true);
  assert.equal(settle(1, 4, 7, '1'), 0, 'Older contents change nothing');
  assert.equal(catalog.inode(inode).live, true);

  // A client that saw (1, 8) set the time. Settling (1, 8) brings the size, and (2, 1) brings all.
  catalog.run({ kind: 'set-attributes', inode, modifiedNs: '42', contents: { epoch: 1, seq: 8 } });
  assert.deepEqual(catalog.inode(inode).contents, { epoch: 1, seq: 8 });
  assert.equal(settle(1, 7, 70, '700'), 1);
  now = catalog.inode(inode);
  assert.deepEqual([now.sizeBytes, now.modifiedNs, now.live], [70, '42', true]);
  assert.equal(settle(1, 8, 80, '800'), 1);
  now = catalog.inode(inode);
  assert.deepEqual([now.sizeBytes, now.modifiedNs, now.live], [80, '42', false]);
  assert.equal(settle(2, 1, 10, '900'), 1);
  now = catalog.inode(inode);
  assert.deepEqual([now.sizeBytes, now.modifiedNs], [10, '900']);
  assert.equal(used(), 10);

  // Set without a version: valid for the version that the catalog knows.
  catalog.run({ kind: 'set-attributes', inode, modifiedNs: '43' });
  assert.equal(settle(2, 1, 10, '900'), 1);
  assert.equal(catalog.inode(inode).modifiedNs, '43');

  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: '9000000000000000000', countMax: 1 });
  assert.equal(used(), 0);
  assert.equal(settle(3, 1, 10, '900'), 0, 'A removed file is ignored');
});

test('settle: holes are those that the primary counted with the size, or none if it counted none', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const settle = (seq: number, sizeBytes: number, holeBytes?: number): number | undefined => {
    const contents = { epoch: 1, seq };
    const holes = holeBytes === undefined ? {} : { holeBytes };
    catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs: '7', contents, ...holes }] });
    return catalog.inode(inode).holeBytes;
  };
  assert.equal(catalog.inode(inode).holeBytes, undefined);
  assert.equal(settle(2, 1_000, 600), 600);
  catalog.run({ kind: 'set-attributes', inode, mode: 0o600 });
  assert.equal(catalog.inode(inode).holeBytes, 600);
  assert.equal(settle(1, 1_000, 100), 600, 'of older contents');
  assert.equal(settle(3, 1_000), undefined, 'A primary of an earlier release counts none');
  assert.equal(settle(4, 100, 500), 100, 'At most as many as there are bytes');

  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'then' });
  settle(5, 100, 40);
  const place = { volume: 'main@then', path: '/a' };
  const { attributes } = catalog.query({ kind: 'resolve', ...place, follow: true });
  assert.deepEqual([attributes.holeBytes, catalog.inode(inode).holeBytes], [100, 40]);
});

test('open-for-write is for files only', () => {
  const catalog = new Catalog();
  catalog.refuse('is-directory', { kind: 'open-for-write', inode: catalog.root });
  catalog.refuse('bad-request', { kind: 'open-for-write', inode: catalog.symlink('/l', 'x').inode });
  catalog.refuse('not-found', { kind: 'open-for-write', inode: 99 });
});

test('extended attributes', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const set = { kind: 'set-xattr', inode, name: 'user.b', value: 'AAH/' } as const;
  catalog.refuse('no-attribute', { ...set, mode: 'replace' });
  catalog.run({ ...set, mode: 'create' });
  assert.equal(catalog.inode(inode).changedNs, catalog.timeNs.toString());
  catalog.refuse('exists', { ...set, mode: 'create' });
  catalog.run({ ...set, value: '', mode: 'replace' });
  assert.equal(catalog.query({ kind: 'xattr', inode, name: 'user.b' }).value, '');
  catalog.run({ ...set, name: 'user.a', mode: 'set' });
  assert.deepEqual(catalog.query({ kind: 'xattrs', inode }).names, ['user.a', 'user.b']);
  const largest = Buffer.alloc(65_536, 7).toString('base64');
  catalog.run({ ...set, name: 'user.l', value: largest, mode: 'set' });
  assert.equal(catalog.query({ kind: 'xattr', inode, name: 'user.l' }).value, largest);
  const tooLarge = Buffer.alloc(65_537).toString('base64');
  catalog.refuse('too-large', { ...set, value: tooLarge, mode: 'set' });
  catalog.refuse('name-too-long', { ...set, name: 'ä'.repeat(128), mode: 'set' });
  catalog.refuse('no-attribute', { kind: 'remove-xattr', inode, name: 'user.z' });
  catalog.run({ kind: 'remove-xattr', inode, name: 'user.a' });
  assert.deepEqual(catalog.query({ kind: 'xattrs', inode }).names, ['user.b', 'user.l']);
  catalog.refuseQuery('no-attribute', { kind: 'xattr', inode, name: 'user.a' });
  for (let index = 2; index < 255; index++) catalog.run({ ...set, name: `user.${index}`, mode: 'set' });
  catalog.refuse('too-large', { ...set, name: 'user.one-more', mode: 'set' });
});

test('list returns pages in the order of bytes', () => {
  const catalog = new Catalog();
  // UTF-16 would put U+1D11E before U+FB00.
  const names = ['Z', 'a', 'a ', 'aa', 'ä', 'ﬀ', '𝄞'];
  for (const name of [...names].reverse()) catalog.file(`/${name}`);
  const seen: string[] = [];
  everyStep(() => {
    const page = catalog.query({ kind: 'list', inode: catalog.root, after: seen.at(-1) ?? '', countMax: 3 });
    seen.push(...page.entries.map((entry) => entry.name));
    for (const { name, attributes } of page.entries) assert.deepEqual(attributes, catalog.at(`/${name}`));
    return page.more;
  });
  assert.deepEqual(seen, names);
  const last = catalog.query({ kind: 'list', inode: catalog.root, after: '', countMax: names.length });
  assert.equal(last.more, false);
  catalog.refuseQuery('not-directory', {
    kind: 'list',
    inode: catalog.at('/a').inode,
    after: '',
    countMax: 1,
  });
});
