/** How the catalog stores access control lists. `test/posix/rules/acl.txt` tests on mounts how a kernel checks them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ACCESS_ACL, type Acl, aclWithMode, DEFAULT_ACL, decodeAcl, encodeAcl } from '../../catalog/acl.ts';
import { Catalog, main } from './fixture.ts';

const TAGS: Record<string, number> = { u: 1, U: 2, g: 4, G: 8, m: 16, o: 32 };

/** `u7 U5:r-x` and so on: `u` owner, `U` user 1000, `g` owning group, `G` group 1000, `m` mask, `o` others. */
function acl(text: string): Acl {
  return text.split(' ').map((entry) => {
    const [letter = '', permissions = ''] = entry;
    const id = letter === 'U' || letter === 'G' ? 1000 : 0xffff_ffff;
    return { tag: TAGS[letter] ?? 0, permissions: Number(permissions), id };
  });
}

function textOf(list: Acl): string {
  const letterOf = (tag: number) => Object.keys(TAGS).find((letter) => TAGS[letter] === tag);
  return list.map(({ tag, permissions }) => `${letterOf(tag)}${permissions}`).join(' ');
}

function base64(list: Acl): string {
  return Buffer.from(encodeAcl(list)).toString('base64');
}

class Lists extends Catalog {
  set(inode: number, text: string, name: string = ACCESS_ACL, clearsSetgid = false): void {
    this.run({ kind: 'set-xattr', inode, name, value: base64(acl(text)), mode: 'set', clearsSetgid });
  }

  /** Mode and list of the inode at a path. */
  shown(path: string, name: string = ACCESS_ACL): string {
    const { inode, mode, xattrs } = this.at(path);
    const { names } = this.query({ kind: 'xattrs', inode });
    assert.equal(xattrs, names.length);
    if (!names.includes(name)) return mode.toString(8);
    const { value } = this.query({ kind: 'xattr', inode, name });
    return `${mode.toString(8)} ${textOf(decodeAcl(Buffer.from(value, 'base64')))}`;
  }
}

test('an invalid list is refused, whichever client sends it', () => {
  const catalog = new Lists();
  const { inode } = catalog.file('/a');
  const refused: Acl[] = [
    acl('u6 g4'),
    acl('u6 u6 g4 o4'),
    acl('u6 o4 g4'),
    acl('u6 U4 g4 o4'),
    acl('u6 U4 U4 g4 m4 o4'),
    acl('u8 g4 o4'),
    [],
  ];
  const values = [...refused.map(base64), '', 'AQAAAA==', Buffer.from('AgAAAAE').toString('base64')];
  for (const value of values) {
    catalog.refuse('bad-request', { kind: 'set-xattr', inode, name: ACCESS_ACL, value, mode: 'set' });
  }
  const value = base64(acl('u6 g4 o4'));
  catalog.refuse('not-directory', { kind: 'set-xattr', inode, name: DEFAULT_ACL, value, mode: 'set' });
  const link = catalog.symlink('/s', 'a');
  catalog.refuse('bad-request', {
    ...{ kind: 'set-xattr', inode: link.inode, name: ACCESS_ACL, value, mode: 'set' },
  });
});

test('mode and list change in one step, whichever of them is set', () => {
  const catalog = new Lists();
  const { inode } = catalog.file('/a', 0o2600);
  catalog.set(inode, 'u6 U7 g1 m4 o0');
  assert.equal(catalog.shown('/a'), '2640 u6 U7 g1 m4 o0');
  catalog.run({ kind: 'set-attributes', inode, mode: 0o2531 });
  assert.equal(catalog.shown('/a'), '2531 u5 U7 g1 m3 o1');
  catalog.run({ kind: 'set-attributes', inode, uid: 7 });
  assert.equal(catalog.shown('/a'), '531 u5 U7 g1 m3 o1', "Set-id bits end with the owner's change");
  catalog.run({ kind: 'set-attributes', inode, mode: 0o2770 });
  catalog.set(inode, 'u7 g5 o0', ACCESS_ACL, true);
  assert.equal(catalog.shown('/a'), '750', 'A list that equals a mode is not stored');
  catalog.run({ kind: 'remove-xattr', inode, name: ACCESS_ACL });
  assert.equal(catalog.shown('/a'), '750');
});

test('a new inode gets the default list of its directory, also from a client that knows no lists', () => {
  const catalog = new Lists();
  const { inode } = catalog.directory('/d');
  catalog.set(inode, 'u7 U7 g5 m7 o4', DEFAULT_ACL);
  const cases: readonly [string, number, string][] = [
    ['/d/a', 0o666, '664 u6 U7 g5 m6 o4'],
    ['/d/b', 0o600, '600 u6 U7 g5 m0 o0'],
  ];
  for (const [path, mode, wanted] of cases) {
    const at = main(path);
    catalog.run({
      ...{ kind: 'create-file', place: at, mode, uid: 1, gid: 2, umask: 0o777, exclusive: true },
    });
    assert.equal(catalog.shown(path), wanted);
  }
  catalog.directory('/d/e', 0o777);
  assert.equal(catalog.shown('/d/e'), '774 u7 U7 g5 m7 o4');
  assert.equal(catalog.shown('/d/e', DEFAULT_ACL), '774 u7 U7 g5 m7 o4');
  // An upload gets its name when it is complete.
  const anything = { kind: 'anything' } as const;
  const first = catalog.orphan();
  catalog.run({ kind: 'replace', place: main('/d/u'), inode: first.inode, expect: anything });
  assert.equal(catalog.shown('/d/u'), '600 u6 U7 g5 m0 o0');
  catalog.set(first.inode, 'u6 U4 g4 m4 o0');
  catalog.run({ kind: 'replace', place: main('/d/u'), inode: catalog.orphan().inode, expect: anything });
  assert.equal(
    catalog.shown('/d/u'),
    '640 u6 U4 g4 m4 o0',
    'It keeps the attributes of the file that it replaces',
  );
});

test('a umask applies if the directory has no default list', () => {
  const catalog = new Lists();
  const owner = { uid: 1, gid: 2, umask: 0o027 };
  catalog.run({ kind: 'create-file', place: main('/a'), mode: 0o666, ...owner, exclusive: true });
  catalog.run({ kind: 'make-directory', place: main('/d'), mode: 0o777, ...owner });
  catalog.run({ kind: 'make-node', place: main('/p'), type: 'fifo', device: 0, mode: 0o666, ...owner });
  assert.deepEqual(
    ['/a', '/d', '/p'].map((path) => catalog.shown(path)),
    ['640', '750', '640'],
  );
});

test('a mode and the list that follows from it agree', () => {
  const lists = ['u6 g4 o4', 'u6 U7 g1 m4 o0', 'u0 U1 g2 G3 m7 o5'].map(acl);
  for (const list of lists) {
    for (let mode = 0; mode <= 0o777; mode += 0o111) {
      const followed = aclWithMode(list, mode);
      assert.deepEqual(decodeAcl(encodeAcl(followed)), followed);
      const named = (each: Acl) => each.filter(({ tag }) => tag === 2 || tag === 8);
      assert.deepEqual(named(followed), named(list));
    }
  }
});
