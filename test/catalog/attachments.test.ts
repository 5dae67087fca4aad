/**
 * Goal: the root catalog says where each volume is attached: at one junction at the most, and never below itself.
 * Method: its commands and reports, in the orders in which they may arrive.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { COMMANDS_VERSION, JUNCTIONS_VERSION } from '../../catalog/versions.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { asVersion11 } from './earlier-schema.ts';
import { Pair } from './pair.ts';
import { creation, Root, registration } from './root.ts';

/** A root catalog with volumes `a`, `b` and `c`, which have catalogs of their own, and `main`. */
class Volumes extends Root {
  readonly a = this.ready('a');
  readonly b = this.ready('b');
  readonly c = this.ready('c');

  /** A junction of a volume in the root catalog. */
  junction(path: string, { number, name }: ListedCatalog): number {
    const place = { volume: 'main', path };
    const { attributes } = this.run({
      ...{ kind: 'junction-create', place, catalog: number, volume: name, mode: 0o755, uid: 0, gid: 0 },
    });
    return attributes.inode;
  }

  attach(name: string, inode: number): ListedCatalog {
    return this.run({ kind: 'volume-attach', name, inode }).catalog;
  }

  detach(name: string, inode?: number): ListedCatalog | undefined {
    return this.run({ kind: 'volume-detach', name, ...(inode === undefined ? {} : { inode }) }).catalog;
  }
}

/** The `place`th inode of a volume's catalog. */
function inodeIn({ number }: ListedCatalog, place = 7): number {
  return inodesOf(number as CatalogNumber).first + place;
}

test('the list says where a volume is attached, under a version of its own', () => {
  const root = new Volumes();
  const inode = root.junction('x', root.a);
  const { version } = root;
  const attached = { ...root.a, attached: inode };
  assert.deepEqual(root.attach('a', inode), attached);
  assert.deepEqual(root.row(root.a.number), attached);
  assert.equal(root.version, version + 1);
  assert.deepEqual(root.attach('a', inode), attached, 'A repeated attachment changes nothing');
  assert.equal(root.version, version + 1);
  assert.deepEqual(root.detach('a', inode), root.a);
  assert.equal(root.version, version + 2);
  assert.deepEqual(root.detach('a'), root.a);
  assert.equal(root.version, version + 2);
});

test('a volume is attached at one directory at the most, and a directory has one volume', () => {
  const root = new Volumes();
  root.attach('a', inodeIn(root.b));
  root.refuse('attached', { kind: 'volume-attach', name: 'a', inode: inodeIn(root.b, 8) });
  root.refuse('attached', { kind: 'volume-attach', name: 'c', inode: inodeIn(root.b) });
  root.detach('a');
  root.attach('a', inodeIn(root.b, 8));
});

test('a volume is attached neither in itself nor below itself', () => {
  const root = new Volumes();
  const below = (name: string, inode: number) =>
    root.refuse('precondition-failed', { kind: 'volume-attach', name, inode });
  below('a', inodeIn(root.a));
  root.attach('b', inodeIn(root.a));
  root.attach('c', inodeIn(root.b));
  below('a', inodeIn(root.c));
  below('a', inodeIn(root.b, 8));
  root.attach('a', root.junction('x', root.a));
  root.detach('b');
  below('b', inodeIn(root.b, 8));
});

test('two attachments that would close a circle: the second one is refused', () => {
  const root = new Volumes();
  // Both junctions exist before either volume is attached.
  root.attach('a', inodeIn(root.b));
  root.refuse('precondition-failed', { kind: 'volume-attach', name: 'b', inode: inodeIn(root.a) });
});

test('a volume is attached only at a directory that its catalog may have', () => {
  const root = new Volumes();
  const nowhere = (inode: number) => root.refuse('not-found', { kind: 'volume-attach', name: 'a', inode });
  nowhere(root.root);
  nowhere(root.junction('for-b', root.b));
  nowhere(inodesOf(9 as CatalogNumber).first);
  const { number } = root.create('d');
  nowhere(inodeIn(root.row(number)));
  root.remove('d');
  root.report(number, { kind: 'closed' });
  nowhere(inodeIn(root.row(number)));
});

test('only volumes with a catalog of their own are attached, once they are ready', () => {
  const root = new Volumes();
  const refuse = (code: 'not-found' | 'precondition-failed', name: string) =>
    root.refuse(code, { kind: 'volume-attach', name, inode: inodeIn(root.b) });
  refuse('precondition-failed', 'main');
  refuse('not-found', 'nothing');
  root.create('d');
  refuse('precondition-failed', 'd');
  root.remove('c');
  refuse('precondition-failed', 'c');
  root.refuse('precondition-failed', { kind: 'volume-detach', name: 'main' });
  root.refuse('not-found', { kind: 'volume-detach', name: 'nothing' });
});

test('an attached volume is not removed', () => {
  const root = new Volumes();
  root.attach('a', inodeIn(root.b));
  root.refuse('attached', { kind: 'volume-remove', name: 'a' });
  root.detach('a');
  assert.equal(root.remove('a').state, 'removing');
  root.refuse('precondition-failed', { kind: 'volume-attach', name: 'a', inode: inodeIn(root.b) });
});

test('a volume whose catalog is lost is attached nowhere, and nothing is attached in it', () => {
  const root = new Volumes();
  root.attach('b', inodeIn(root.a));
  root.attach('c', inodeIn(root.b));
  const at = inodeIn(root.b);
  root.run({ kind: 'volume-remove', name: 'b', lost: true });
  assert.equal(root.row(root.b.number).attached, undefined);
  assert.equal(root.row(root.c.number).attached, undefined);
  root.attach('c', inodeIn(root.a, 8));
  assert.equal(root.detach('b', at), undefined, 'The detachment of a removed volume is complete');
});

test('attachment and detachment of a volume, in either order, end in what the list says', () => {
  const root = new Volumes();
  const [before, after] = [inodeIn(root.b), inodeIn(root.b, 8)];
  root.attach('a', before);
  // A late detachment of the earlier directory.
  root.detach('a', before);
  root.attach('a', after);
  assert.equal(root.detach('a', before)?.attached, after);
  assert.equal(root.row(root.a.number).attached, after);
});

test('what is attached stays so in the states and views that follow', () => {
  const root = new Volumes();
  const inode = inodeIn(root.b);
  root.attach('a', inode);
  root.report(root.a.number, { kind: 'view', view: 2, members: ['s2', 's3', 's4'] });
  assert.equal(root.row(root.a.number).attached, inode);
});

test('a server of a release without junctions is let in only before a volume is attached', () => {
  const root = new Volumes();
  const earlier = { ...registration('s6'), commandsVersion: JUNCTIONS_VERSION - 1 };
  root.run(earlier);
  root.attach('a', inodeIn(root.b));
  assert.throws(() => root.run(earlier), { code: 'bad-request', message: /without attached volumes/ });
  root.run(registration('s6'));
  root.detach('a');
  root.run(earlier);
});

test('tables of version 11 list no volume as attached', () => {
  const pair = new Pair(COMMANDS_VERSION);
  for (const id of ['s1', 's2', 's3']) pair.run(registration(id));
  pair.run(creation('a'));
  asVersion11(pair.backup);
  ensureSchema(pair.backup);
  pair.equal();
  pair.run({ kind: 'catalog-report', number: 1, report: { kind: 'created' } });
  pair.run(creation('b'));
  pair.run({ kind: 'catalog-report', number: 2, report: { kind: 'created' } });
  pair.run({ kind: 'volume-attach', name: 'a', inode: inodesOf(2 as CatalogNumber).first + 5 });
  pair.equal();
  const rows = pair.backup.prepare('SELECT name, attached > 0 AS attached FROM volume_catalogs').all();
  assert.deepEqual(rows, [
    { name: 'a', attached: 1 },
    { name: 'b', attached: 0 },
  ]);
});
