/**
 * Goal: the differences of two snapshots, applied to a copy of the older one, give the newer one, whatever was changed
 * between them, later, and in snapshots that were removed.
 * Method: random commands; each snapshot is recorded by a walk, and each pair of snapshots is compared.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import type { Attributes, ChangesPosition, SnapshotChanges } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { Catalog } from './fixture.ts';

const NAMES = ['a', 'b', 'c', 'd', 'é', '\u{1f600}', '\uffee'];
const SEEDS = isLong ? 60 : 8;
const STEPS = 200;

/** What a snapshot shows: inodes as text, and names by directory. */
interface Shown {
  readonly inodes: Map<number, string>;
  readonly names: Map<string, number>;
}

interface Range {
  readonly from: number;
  readonly to: number;
  /** Inodes that the older snapshot shows. */
  readonly known: ReadonlySet<number>;
}

function nameKey(parent: number, name: string): string {
  return `${parent}/${name}`;
}

class Changing {
  readonly catalog = new Catalog();
  readonly serials: number[] = [];
  readonly counts = { renamed: 0, contents: 0, xattrs: 0, replaced: 0, moved: 0, pages: 0, pairs: 0 };
  readonly #random: Prng;
  #contents = 0;

  constructor(seed: number) {
    this.#random = new Prng(seed);
  }

  step(): void {
    try {
      this.#act();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  #act(): void {
    const place = this.#place();
    const owner = { uid: 1, gid: 1 };
    const { catalog } = this;
    switch (this.#random.integer(0, 21)) {
      case 0:
      case 1:
      case 2:
        catalog.run({ kind: 'make-directory', place, mode: 0o755, ...owner });
        return;
      case 3:
      case 4: {
        const made = catalog.run({ kind: 'create-file', place, mode: 0o644, ...owner, exclusive: true });
        this.#settle(made.attributes.inode);
        return;
      }
      case 5:
        catalog.run({ kind: 'symlink', place, target: 'a/b', ...owner });
        return;
      case 6:
        catalog.run({ kind: 'unlink', place });
        return;
      case 7:
        catalog.run({ kind: 'remove-directory', place });
        return;
      case 8:
      case 17:
      case 18:
      case 19: {
        // Something old moves into a new directory.
        catalog.run({ kind: 'make-directory', place, mode: 0o755, ...owner });
        const { path } = place;
        catalog.run({
          kind: 'rename',
          from: this.#place(),
          to: { ...place, path: `${path}/a` },
          mode: 'replace',
        });
        return;
      }
      case 9:
      case 20:
      case 21:
        catalog.run({
          kind: 'rename',
          from: place,
          to: this.#place(),
          mode: this.#random.chance(0.3) ? 'exchange' : 'replace',
        });
        return;
      case 10:
        catalog.run({ kind: 'link', inode: this.#someInode(), place });
        return;
      case 11:
        catalog.run({
          kind: 'set-attributes',
          inode: this.#someInode(),
          mode: this.#random.integer(0, 0o777),
        });
        return;
      case 12: {
        const value = Buffer.from([this.#random.integer(0, 255)]).toString('base64');
        const name = `user.${this.#random.integer(0, 2)}`;
        catalog.run({ kind: 'set-xattr', inode: this.#someInode(), name, value, mode: 'set' });
        return;
      }
      case 13: {
        const name = `user.${this.#random.integer(0, 2)}`;
        catalog.run({ kind: 'remove-xattr', inode: this.#someInode(), name });
        return;
      }
      case 14:
        this.#write(this.#someInode());
        return;
      case 15: {
        const name = `s${catalog.timeNs}`;
        this.serials.push(catalog.run({ kind: 'snapshot-create', volume: 'main', name }).snapshot.serial);
        return;
      }
      default: {
        const { snapshots } = catalog.query({ kind: 'snapshots', volume: 'main' });
        const one = snapshots[this.#random.integer(0, snapshots.length)];
        if (one === undefined || this.#random.chance(0.6)) return;
        catalog.run({ kind: 'snapshot-remove', volume: 'main', name: one.name });
        this.serials.splice(this.serials.indexOf(one.serial), 1);
        if (this.#random.chance(0.5)) catalog.run({ kind: 'sweep', countMax: 3 });
      }
    }
  }

  #write(inode: number): void {
    const ask = {
      kind: 'open-for-write',
      inode,
      mark: { epoch: 1, turn: ++this.#contents },
      preserves: true,
    } as const;
    const { preserve } = this.catalog.run(ask);
    if (preserve !== undefined) {
      const view = { number: 1, members: ['s1', 's2', 's3'] };
      this.catalog.run({ ...ask, preserved: { inode: preserve.inode, view } });
    }
    this.#settle(inode);
  }

  #settle(inode: number): void {
    const contents = { epoch: 1, seq: ++this.#contents };
    const sizeBytes = this.#random.integer(0, 3);
    this.catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs: '7', contents }] });
  }

  #place(): { volume: string; path: string } {
    const depth = this.#random.integer(1, 3);
    const names = Array.from({ length: depth }, () => NAMES[this.#random.integer(0, NAMES.length - 1)]);
    return { volume: 'main', path: `/${names.join('/')}` };
  }

  #someInode(): number {
    const ids = this.catalog.db.prepare('SELECT id FROM inodes WHERE orphaned_ns IS NULL').pluck().all();
    return ids[this.#random.integer(0, ids.length - 1)] as number;
  }

  shown(snapshot: number): Shown {
    const shown: Shown = { inodes: new Map(), names: new Map() };
    this.#visit(
      this.catalog.query({ kind: 'attributes', inode: this.catalog.root, snapshot }).attributes,
      shown,
    );
    return shown;
  }

  #visit(attributes: Attributes, shown: Shown): void {
    const { inode, kind, snapshot = 0 } = attributes;
    shown.inodes.set(inode, this.#textOf(attributes));
    if (kind !== 'directory') return;
    const { entries } = this.catalog.query({ kind: 'list', inode, after: '', countMax: 1_000, snapshot });
    for (const entry of entries) {
      shown.names.set(nameKey(inode, entry.name), entry.attributes.inode);
      this.#visit(entry.attributes, shown);
    }
  }

  #textOf({
    inode,
    kind,
    mode,
    uid,
    gid,
    links,
    sizeBytes,
    modifiedNs,
    contents,
    snapshot = 0,
  }: Attributes): string {
    const { names } = this.catalog.query({ kind: 'xattrs', inode, snapshot });
    const xattrs = names.map((name) => this.catalog.query({ kind: 'xattr', inode, name, snapshot }).value);
    return JSON.stringify([kind, mode, uid, gid, links, sizeBytes, modifiedNs, contents, names, xattrs]);
  }

  *changes(from: number, to: number): Generator<SnapshotChanges, void, undefined> {
    for (let after: ChangesPosition | null = null; ; ) {
      const countMax = this.#random.integer(1, 4);
      const page: SnapshotChanges = this.catalog.query({
        kind: 'snapshot-changes',
        volume: 'main',
        from,
        to,
        after,
        countMax,
      });
      assert.ok(page.inodes.length + page.names.length <= countMax + 1, 'A page is bounded');
      this.counts.pages += 1;
      yield page;
      if (page.next === null) return;
      after = page.next;
    }
  }

  /** As clients do: what is in a new directory is queried, too. */
  #addNew(attributes: Attributes, range: Range, copy: Shown): void {
    const { inode: directory, kind } = attributes;
    copy.inodes.set(directory, this.#textOf(attributes));
    if (kind !== 'directory') return;
    for (let after: ChangesPosition | null = null; ; ) {
      const page: SnapshotChanges = this.catalog.query({
        ...{
          kind: 'snapshot-changes',
          volume: 'main',
          from: range.from,
          to: range.to,
          directory,
          after,
          countMax: 2,
        },
      });
      for (const { name, after: end } of page.names) {
        assert.ok(end !== null);
        copy.names.set(nameKey(directory, name), end.attributes.inode);
        assert.equal(end.isNew, !range.known.has(end.attributes.inode));
        if (end.isNew) this.#addNew(end.attributes, range, copy);
        else this.counts.moved += 1;
      }
      if (page.next === null) return;
      after = page.next;
    }
  }

  compare(from: number, to: number): void {
    const copy = this.shown(from);
    const wanted = this.shown(to);
    const known = new Set(copy.inodes.keys());
    const [removed, added] = [new Set<number>(), new Set<number>()];
    for (const { inodes, names } of this.changes(from, to)) {
      for (const { before, after, contents, xattrs } of inodes) {
        assert.equal(this.#textOf(before), copy.inodes.get(before.inode));
        const text = this.#textOf(after);
        const sameContents = JSON.stringify(before.contents) === JSON.stringify(after.contents);
        assert.equal(contents, !sameContents || before.sizeBytes !== after.sizeBytes);
        copy.inodes.set(after.inode, text);
        this.counts.contents += contents ? 1 : 0;
        this.counts.xattrs += xattrs ? 1 : 0;
      }
      for (const { parent, name, before, after } of names) {
        const key = nameKey(parent, name);
        assert.equal(copy.names.get(key), before?.inode, `${key} in ${from}`);
        if (before !== null) {
          assert.equal(before.isRemoved, !wanted.inodes.has(before.inode));
          removed.add(before.inode);
          if (before.isRemoved) copy.inodes.delete(before.inode);
          copy.names.delete(key);
        }
        if (after === null) continue;
        const { attributes, isNew } = after;
        added.add(attributes.inode);
        copy.names.set(key, attributes.inode);
        this.counts.replaced += before === null ? 0 : 1;
        assert.equal(isNew, !known.has(attributes.inode));
        if (isNew) this.#addNew(attributes, { from, to, known }, copy);
      }
    }
    this.counts.renamed += [...removed].filter((inode) => added.has(inode)).length;
    this.counts.pairs += 1;
    assert.deepEqual(sorted(copy.names), sorted(wanted.names), `${from} to ${to}`);
    assert.deepEqual(sorted(copy.inodes), sorted(wanted.inodes), `${from} to ${to}`);
  }
}

function sorted<Key extends number | string, Value>(map: ReadonlyMap<Key, Value>): [string, Value][] {
  return [...map]
    .map(([key, value]): [string, Value] => [String(key), value])
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

test('a copy of the older snapshot with the differences is the newer one', () => {
  const all = { renamed: 0, contents: 0, xattrs: 0, replaced: 0, moved: 0, pages: 0, pairs: 0 };
  for (let seed = 1; seed <= SEEDS; seed++) {
    const world = new Changing(seed);
    for (let step = 0; step < STEPS; step++) world.step();
    for (const from of world.serials) for (const to of world.serials) if (from < to) world.compare(from, to);
    for (const [key, count] of Object.entries(world.counts)) all[key as keyof typeof all] += count;
  }
  const { renamed, contents, xattrs, replaced, moved, pages, pairs } = all;
  assert.ok(
    renamed > 50 && contents > 50 && xattrs > 50 && replaced > 20 && moved > 10 && pages > 500 && pairs > 80,
    JSON.stringify(all),
  );
});

test('reads alone make no difference', () => {
  const catalog = new Catalog();
  const link = catalog.symlink('/link', 'target');
  const from = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'a' }).snapshot.serial;
  const { inode, accessedNs, changedNs } = link;
  const access = { inode, accessedNs: '1700000000000000500', seen: { accessedNs, changedNs } };
  assert.equal(catalog.run({ kind: 'note-accesses', volume: 'main', accesses: [access] }).noted, 1);
  const to = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'b' }).snapshot.serial;
  const page: SnapshotChanges = catalog.query({
    kind: 'snapshot-changes',
    volume: 'main',
    from,
    to,
    after: null,
    countMax: 10,
  });
  assert.deepEqual(page, { inodes: [], names: [], next: null });
});

test('only existing snapshots are compared, the older one first, and only directories of the volume', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-create', name: 'other', replicas: 3, objectBytes: 131_072 });
  const { root } = catalog.query({ kind: 'volume', name: 'other' }).volume;
  for (const name of ['a', 'b']) catalog.run({ kind: 'snapshot-create', volume: 'main', name });
  const query = {
    kind: 'snapshot-changes',
    volume: 'main',
    from: 1,
    to: 2,
    after: null,
    countMax: 10,
  } as const;
  catalog.query(query);
  catalog.refuseQuery('not-found', { ...query, to: 3 });
  catalog.refuseQuery('not-found', { ...query, volume: 'other' });
  catalog.refuseQuery('bad-request', { ...query, from: 2, to: 1 });
  catalog.refuseQuery('bad-request', { ...query, from: 1, to: 1 });
  catalog.refuseQuery('bad-request', { ...query, directory: root });
  catalog.refuseQuery('bad-request', { ...query, directory: catalog.root });
  catalog.refuseQuery('bad-request', { ...query, after: { until: 1, since: 1, inode: root, name: '' } });
});

test('a few changes among many files cost a few steps, and pages are short', () => {
  const catalog = new Catalog();
  const files = 8_000;
  for (let file = 0; file < files; file++) {
    const parent = file % 100 === 0 ? catalog.directory(`/d${file / 100}`).inode : null;
    const place =
      parent === null
        ? { volume: 'main', path: `/d${Math.floor(file / 100)}/f${file}` }
        : { parent, name: 'f' };
    catalog.run({ kind: 'symlink', place, target: 't', uid: 0, gid: 0 });
  }
  const from = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'a' }).snapshot.serial;
  for (let file = 1; file < 100; file += 10)
    catalog.run({ kind: 'unlink', place: { volume: 'main', path: `/d0/f${file}` } });
  const to = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'b' }).snapshot.serial;
  // Changes after the newer snapshot cost nothing.
  for (let file = 101; file < 5_000; file++) {
    if (file % 100 === 0) continue;
    catalog.run({ kind: 'unlink', place: { volume: 'main', path: `/d${Math.floor(file / 100)}/f${file}` } });
  }
  const compare = (first: number, second: number): { pages: number; longestMs: number; names: number } => {
    let [pages, longestMs, names] = [0, 0, 0];
    for (let after: ChangesPosition | null = null; ; pages++) {
      const beganMs = performance.now();
      const page: SnapshotChanges = catalog.query({
        ...{ kind: 'snapshot-changes', volume: 'main', from: first, to: second, after, countMax: 50 },
      });
      longestMs = Math.max(longestMs, performance.now() - beganMs);
      names += page.names.length;
      if (page.next === null) return { pages: pages + 1, longestMs, names };
      after = page.next;
    }
  };
  const few = compare(from, to);
  assert.equal(few.names, 10);
  assert.equal(few.pages, 1);
  const last = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'c' }).snapshot.serial;
  const many = compare(to, last);
  assert.ok(many.names > 4_000 && many.pages > 40, JSON.stringify(many));
  console.log(`10 of ${files} names: ${few.longestMs.toFixed(1)} ms; ${many.names}: ${JSON.stringify(many)}`);
});
