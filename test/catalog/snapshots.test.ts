/**
 * Goal: a snapshot always shows the volume as it was at its creation, whatever changes later; and its removal leaves
 * nothing. Replicas that execute the same commands stay equal.
 * Method: random commands; at each snapshot the test records all that a walk of the volume finds, and compares later.
 * The test plays the primaries: before a write it asks the catalog which contents to preserve, and preserves them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Attributes, Command, CommandResults, ContentVersion } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { everyStep } from './every-step.ts';
import { Catalog, SERVERS } from './fixture.ts';

const NAMES = ['a', 'b', 'c', 'd'];
const SEEDS = isLong ? 16 : 12;

/** Two replicas that execute the same batches. */
class Replicated {
  readonly db = new Database(':memory:');
  readonly other = new Database(':memory:');
  #seq = 0;

  constructor() {
    ensureSchema(this.db);
    ensureSchema(this.other);
  }

  run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    this.#seq++;
    this.db.exec('BEGIN');
    const request = { session: 1, number: this.#seq, command };
    const { outcomes, batch } = executeRequests(this.db, this.#seq, [request], {
      nowNs: 1_700_000_000_000_000_000n + BigInt(this.#seq),
      placement: (count) => SERVERS.slice(0, count),
    });
    this.db.exec('COMMIT');
    this.other.exec('BEGIN');
    executeBatch(this.other, this.#seq, decodeBatch(encodeBatch(batch)));
    this.other.exec('COMMIT');
    const [outcome] = outcomes;
    assert.ok(outcome !== undefined);
    return outcomeResult(outcome) as CommandResults[Kind];
  }
}

/** Contents by file, as their versions: what the replicas have on their disks. */
type Disks = Map<number, string>;

interface Seen {
  readonly serial: number;
  readonly tree: string;
}

function versionOf({ epoch, seq }: { readonly epoch: number; readonly seq: number }): string {
  return `${epoch}.${seq}`;
}

/** All that a walk of a volume or a snapshot finds, as text. */
function lookAt(db: Database.Database, volume: string, disks: Disks): string {
  const lines: string[] = [];
  const visit = (path: string, attributes: Attributes): void => {
    const {
      inode,
      snapshot,
      source,
      live: _,
      view: _view,
      replicas: _replicas,
      allowedBytes: _allowed,
      ...rest
    } = attributes;
    const shown = snapshot === undefined ? {} : { snapshot };
    const { names } = runQuery(db, { kind: 'xattrs', inode, ...shown });
    const xattrs = names.map((name) => [name, runQuery(db, { kind: 'xattr', inode, name, ...shown }).value]);
    const disk = rest.kind === 'file' ? disks.get(source ?? inode) : undefined;
    if (rest.kind === 'file')
      assert.equal(disk, versionOf(rest.contents), `${volume}:${path} has its contents`);
    lines.push(JSON.stringify([path, inode, { ...rest, volume: '' }, xattrs, disk]));
    if (rest.kind !== 'directory') return;
    for (let after = ''; ; ) {
      const page = runQuery(db, { kind: 'list', inode, after, countMax: 2, ...shown });
      for (const entry of page.entries) {
        const found = runQuery(db, { kind: 'lookup', parent: inode, name: entry.name, ...shown });
        assert.deepEqual(found.attributes, entry.attributes);
        const at = runQuery(db, { kind: 'attributes', inode: found.attributes.inode, ...shown });
        assert.deepEqual(at.attributes, entry.attributes);
        visit(`${path}/${entry.name}`, entry.attributes);
        after = entry.name;
      }
      if (!page.more) break;
    }
  };
  visit('', runQuery(db, { kind: 'resolve', volume, path: '/', follow: false }).attributes);
  return lines.join('\n');
}

class World {
  readonly catalog = new Replicated();
  readonly disks: Disks = new Map();
  readonly seen = new Map<string, Seen>();
  readonly #random: Prng;
  readonly counts = { preserved: 0, swept: 0, snapshots: 0, read: 0, refused: 0 };
  #seq = 0;
  #turn = 0;

  constructor(seed: number) {
    this.#random = new Prng(seed);
    this.catalog.run({
      kind: 'volume-create',
      name: 'main',
      replicas: 3,
      objectBytes: 4096,
      quotaBytes: 1_000_000,
    });
  }

  step(): void {
    try {
      this.#act();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.counts.refused++;
    }
  }

  check(where: string): void {
    for (const [name, { tree }] of this.seen) {
      assert.equal(lookAt(this.catalog.db, `main@${name}`, this.disks), tree, `${where}: snapshot ${name}`);
    }
    assert.deepEqual([...dumpCatalog(this.catalog.db)], [...dumpCatalog(this.catalog.other)]);
  }

  end(): void {
    for (const name of this.seen.keys()) this.catalog.run({ kind: 'snapshot-remove', volume: 'main', name });
    this.seen.clear();
    while (this.catalog.run({ kind: 'sweep', countMax: 3 }).more) this.counts.swept++;
    this.#collect();
    const { db } = this.catalog;
    for (const table of ['past_inodes', 'past_entries', 'past_xattrs', 'sweeps', 'snapshots'])
      assert.equal(db.prepare(`SELECT COUNT(*) FROM ${table}`).pluck().get(), 0, table);
    const { volume } = runQuery(db, { kind: 'volume', name: 'main' });
    assert.equal(volume.inodes, volume.namedInodes);
    const used = db.prepare('SELECT COALESCE(SUM(size), 0) FROM inodes WHERE kind = 1').pluck().get();
    assert.equal(volume.usedBytes, used);
  }

  #act(): void {
    const place = this.#place();
    const owner = { uid: 1, gid: 1 };
    switch (this.#random.integer(0, 18)) {
      case 0:
      case 1:
        this.catalog.run({ kind: 'make-directory', place, mode: 0o755, ...owner });
        return;
      case 2:
      case 3: {
        const made = this.catalog.run({ kind: 'create-file', place, mode: 0o644, ...owner, exclusive: true });
        this.disks.set(made.attributes.inode, '0.0');
        return;
      }
      case 4:
        this.catalog.run({ kind: 'symlink', place, target: 'a/b', ...owner });
        return;
      case 5:
        this.catalog.run({ kind: 'unlink', place });
        return;
      case 6:
        this.catalog.run({ kind: 'remove-directory', place });
        return;
      case 7:
        this.catalog.run({
          kind: 'rename',
          from: place,
          to: this.#place(),
          mode: this.#random.chance(0.3) ? 'exchange' : 'replace',
        });
        return;
      case 8:
        this.catalog.run({ kind: 'link', inode: this.#someInode(), place });
        return;
      case 9:
        this.catalog.run({
          kind: 'set-attributes',
          inode: this.#someInode(),
          mode: this.#random.integer(0, 0o777),
        });
        return;
      case 10:
        this.catalog.run({
          kind: 'set-xattr',
          inode: this.#someInode(),
          name: `user.${this.#name()}`,
          value: 'QUJD',
          mode: 'set',
        });
        return;
      case 11:
        this.catalog.run({ kind: 'remove-xattr', inode: this.#someInode(), name: `user.${this.#name()}` });
        return;
      case 12: {
        const orphan = this.catalog.run({ kind: 'create-orphan', volume: 'main', mode: 0o600, ...owner })
          .attributes.inode;
        this.disks.set(orphan, '0.0');
        if (this.#random.chance(0.8)) this.#write(orphan);
        this.catalog.run({ kind: 'replace', place, inode: orphan, expect: { kind: 'anything' } });
        return;
      }
      case 13:
      case 14:
        this.#write(this.#someInode());
        return;
      case 15:
        this.#snapshot();
        return;
      case 16: {
        const [name] = [...this.seen.keys()].filter(() => this.#random.chance(0.3));
        if (name === undefined) return;
        this.catalog.run({ kind: 'snapshot-remove', volume: 'main', name });
        this.seen.delete(name);
        return;
      }
      case 17:
        this.#read(this.#someInode());
        return;
      default:
        if (this.#random.chance(0.5)) this.#collect();
        else
          this.counts.swept += this.catalog.run({ kind: 'sweep', countMax: this.#random.integer(1, 5) }).rows;
    }
  }

  #snapshot(): void {
    const name = `s${this.counts.snapshots++}`;
    const { inodes } = runQuery(this.catalog.db, { kind: 'live-files', volume: 'main', countMax: 100 });
    if (inodes.length > 0)
      assert.throws(
        () => this.catalog.run({ kind: 'snapshot-create', volume: 'main', name }),
        /is being written/,
      );
    for (const inode of inodes) this.#settle(inode);
    const { snapshot } = this.catalog.run({ kind: 'snapshot-create', volume: 'main', name });
    const tree = lookAt(this.catalog.db, `main@${name}`, this.disks);
    assert.equal(tree, lookAt(this.catalog.db, 'main', this.disks), 'The snapshot shows entries');
    this.seen.set(name, { serial: snapshot.serial, tree });
  }

  /** A primary's part, possibly interrupted between two of its steps. */
  #write(inode: number): void {
    const mark = { epoch: 1, turn: ++this.#turn };
    const ask = { kind: 'open-for-write', inode, mark, preserves: true } as const;
    let answer = this.catalog.run(ask);
    while (answer.preserve !== undefined) {
      const { inode: as, contents } = answer.preserve;
      if (this.#random.chance(0.2)) return;
      assert.equal(versionOf(contents), this.disks.get(inode));
      if (!this.disks.has(as)) this.disks.set(as, versionOf(contents));
      this.counts.preserved++;
      if (this.#random.chance(0.2)) return;
      answer = this.catalog.run({
        ...ask,
        preserved: { inode: as, view: { number: 1, members: ['s1', 's2', 's3'] } },
      });
    }
    if (this.#random.chance(0.1)) return;
    this.disks.set(inode, `1.${++this.#seq}`);
    if (this.#random.chance(0.7)) this.#settle(inode);
  }

  /** Reported some steps late, with the state of then. */
  #read(inode: number): void {
    const { accessedNs, changedNs } = runQuery(this.catalog.db, { kind: 'attributes', inode }).attributes;
    if (this.#random.chance(0.3)) this.catalog.run({ kind: 'set-attributes', inode, accessedNs: '5' });
    const access = { inode, accessedNs: '1800000000000000000', seen: { accessedNs, changedNs } };
    this.counts.read += this.catalog.run({
      kind: 'note-accesses',
      volume: 'main',
      accesses: [access],
    }).noted;
  }

  #settle(inode: number): void {
    const [epoch = 0, seq = 0] = String(this.disks.get(inode)).split('.').map(Number);
    const mark = { epoch: 1, turn: this.#turn };
    const file = { inode, sizeBytes: seq, modifiedNs: String(1000 + seq), contents: { epoch, seq }, mark };
    this.catalog.run({ kind: 'settle', files: [file] });
  }

  #collect(): void {
    const { inodes } = this.catalog.run({
      kind: 'collect',
      beforeNs: '1800000000000000000',
      countMax: 1_000,
    });
    for (const inode of inodes) this.disks.delete(inode);
  }

  #name(): string {
    return NAMES[this.#random.integer(0, NAMES.length - 1)] as string;
  }

  #place(): { volume: string; path: string } {
    const depth = this.#random.integer(1, 3);
    return { volume: 'main', path: `/${Array.from({ length: depth }, () => this.#name()).join('/')}` };
  }

  #someInode(): number {
    const ids = this.catalog.db
      .prepare('SELECT id FROM inodes WHERE orphaned_ns IS NULL OR orphaned_ns < 9223372036854775807')
      .pluck()
      .all() as number[];
    return ids[this.#random.integer(0, ids.length - 1)] as number;
  }
}

test('snapshots show the past whatever changes, and their removal leaves no trace', () => {
  const all = { preserved: 0, swept: 0, snapshots: 0, read: 0, refused: 0 };
  for (let seed = 1; seed <= SEEDS; seed++) {
    const world = new World(seed);
    for (let step = 0; step < 250; step++) {
      world.step();
      if (step % 25 === 24) world.check(`SEED=${seed}, step ${step}`);
    }
    world.end();
    for (const [key, count] of Object.entries(world.counts)) all[key as keyof typeof all] += count;
  }
  assert.ok(all.preserved > 40 && all.swept > 40 && all.snapshots > 80 && all.read > 40, JSON.stringify(all));
});

test('a snapshot has a unique name, and a volume with snapshots is not removed', () => {
  const catalog = new Catalog();
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.refuse('exists', { kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.refuse('not-found', { kind: 'snapshot-create', volume: 'none', name: 'one' });
  catalog.refuse('not-found', { kind: 'snapshot-remove', volume: 'main', name: 'two' });
  catalog.refuse('not-empty', { kind: 'volume-remove', name: 'main' });
  catalog.refuseQuery('not-found', { kind: 'resolve', volume: 'main@two', path: '/', follow: true });
  catalog.refuseQuery('not-found', { kind: 'attributes', inode: catalog.root, snapshot: 2 });
  const { snapshots } = catalog.query({ kind: 'snapshots', volume: 'main' });
  assert.deepEqual(
    snapshots.map(({ name, serial }) => [name, serial]),
    [['one', 1]],
  );
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.refuseQuery('not-found', { kind: 'attributes', inode: catalog.root, snapshot: 1 });
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  catalog.run({ kind: 'volume-remove', name: 'main' });
});

test('a primary that does not know snapshots gets no mark of contents that a snapshot shows', () => {
  const catalog = new Catalog();
  const place = { volume: 'main', path: '/f' };
  const { inode } = catalog.run({
    kind: 'create-file',
    place,
    mode: 0,
    uid: 0,
    gid: 0,
    exclusive: true,
  }).attributes;
  catalog.refuse('busy', { kind: 'snapshot-create', volume: 'main', name: 'one' });
  const contents = { epoch: 1, seq: 1 };
  catalog.run({ kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '1', contents }] });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.refuse('busy', { kind: 'open-for-write', inode, mark: { epoch: 1, turn: 1 } });
});

test('a snapshot of a volume with many files costs no more than that of an empty one', () => {
  const catalog = new Catalog();
  const names = 20_000;
  const filledMs = performance.now();
  for (let file = 0; file < names; file++) {
    catalog.run({
      kind: 'symlink',
      place: { parent: catalog.root, name: `f${file}` },
      target: 't',
      uid: 0,
      gid: 0,
    });
  }
  const beganMs = performance.now();
  const perNameMs = (beganMs - filledMs) / names;
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  const tookMs = performance.now() - beganMs;
  console.log(`snapshot-create of ${names} names: ${tookMs.toFixed(2)} ms`);
  assert.ok(tookMs < 1_000 * perNameMs, 'It reads no entry');
});

test('preservation for a removed snapshot is not continued after a change', () => {
  const catalog = new Catalog();
  const place = { volume: 'main', path: '/f' };
  const made = catalog.run({ kind: 'create-file', place, mode: 0, uid: 0, gid: 0, exclusive: true });
  const { inode } = made.attributes;
  const settle = (seq: number): unknown =>
    catalog.run({
      kind: 'settle',
      files: [{ inode, sizeBytes: seq, modifiedNs: '1', contents: { epoch: 1, seq } }],
    });
  const ask = (turn: number): CommandResults['open-for-write'] =>
    catalog.run({ kind: 'open-for-write', inode, mark: { epoch: 1, turn }, preserves: true });
  settle(1);
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  const begun = ask(1).preserve;
  assert.ok(begun !== undefined);
  assert.deepEqual(ask(1).preserve, begun, 'A primary that asks again continues it');
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  assert.equal(ask(2).preserve, undefined);
  settle(2);
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'two' });
  const next = ask(3).preserve;
  assert.notEqual(next?.inode, begun.inode);
  assert.deepEqual(next?.contents, { epoch: 1, seq: 2 });
});

/** A file `/f` of the volume `main`, with contents of this version. */
function settledFile(catalog: Catalog | Replicated, first: ContentVersion) {
  const place = { volume: 'main', path: '/f' };
  const { inode } = catalog.run({
    ...{ kind: 'create-file', place, mode: 0, uid: 0, gid: 0, exclusive: true },
  }).attributes;
  const settle = (contents: ContentVersion) =>
    catalog.run({ kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '1', contents }] });
  settle(first);
  return { inode, settle };
}

test('contents that were preserved at earlier members are preserved again', () => {
  const catalog = new Replicated();
  catalog.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4_096 });
  const contents = { epoch: 1, seq: 1 };
  const { inode } = settledFile(catalog, contents);
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  const open = { kind: 'open-for-write', inode, mark: { epoch: 1, turn: 1 }, preserves: true } as const;
  const first = catalog.run(open).preserve;
  assert.ok(first !== undefined);
  catalog.run({ kind: 'follow-view', inode, view: { number: 3, members: ['s2', 's3', 's4'] } });
  const view = { number: 1, members: ['s1', 's2', 's3'] };
  const second = catalog.run({ ...open, preserved: { inode: first.inode, view } }).preserve;
  assert.ok(second !== undefined && second.inode !== first.inode, 'The servers may be removed');
  catalog.run({ ...open, preserved: { inode: first.inode, view } });
  assert.deepEqual(catalog.run(open).preserve, second, 'A late command undoes nothing of it');
  const now = { number: 3, members: ['s2', 's3', 's4'] };
  assert.equal(catalog.run({ ...open, preserved: { inode: second.inode, view: now } }).preserve, undefined);
  const shown = runQuery(catalog.db, { kind: 'resolve', volume: 'main@one', path: '/f', follow: true });
  assert.deepEqual(shown.attributes.replicas, now.members);
  assert.deepEqual([...dumpCatalog(catalog.db)], [...dumpCatalog(catalog.other)]);
});

test("a late report of lost contents does not apply to the file's later contents", () => {
  const catalog = new Replicated();
  catalog.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4_096 });
  const { inode, settle } = settledFile(catalog, { epoch: 1, seq: 1 });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  const open = { kind: 'open-for-write', inode, preserves: true } as const;
  const wish = catalog.run({ ...open, mark: { epoch: 2, turn: 1 } }).preserve;
  assert.ok(wish !== undefined);
  const lost = { ...open, preserved: 'lost', contents: wish.contents } as const;
  assert.equal(catalog.run({ ...lost, mark: { epoch: 3, turn: 1 } }).preserve, undefined);
  settle({ epoch: 3, seq: 1 });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'two' });
  const late = catalog.run({ ...lost, mark: { epoch: 2, turn: 1 } }).preserve;
  assert.ok(late !== undefined, 'The contents that snapshot two shows are to be preserved');
  const { contents } = late;
  assert.deepEqual(contents, { epoch: 3, seq: 1 });
  const preserved = { inode: late.inode, view: { number: 1, members: ['s1', 's2', 's3'] } };
  const mark = { epoch: 3, turn: 2 };
  assert.equal(catalog.run({ ...open, mark, preserved, contents }).preserve, undefined);
  const shown = runQuery(catalog.db, { kind: 'resolve', volume: 'main@two', path: '/f', follow: true });
  assert.equal(shown.attributes.source, late.inode);
  assert.deepEqual([...dumpCatalog(catalog.db)], [...dumpCatalog(catalog.other)]);
});

test('contents about to be preserved are not swept while a snapshot shows them', () => {
  const catalog = new Catalog();
  const { inode } = settledFile(catalog, { epoch: 1, seq: 1 });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  catalog.run({ kind: 'open-for-write', inode, mark: { epoch: 1, turn: 1 }, preserves: true });
  assert.equal(catalog.query({ kind: 'sweeps' }).pending, false);
  catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
  assert.equal(catalog.query({ kind: 'sweeps' }).pending, true);
  everyStep(() => catalog.run({ kind: 'sweep', countMax: 10 }).more);
  assert.equal(catalog.query({ kind: 'sweeps' }).pending, false);
});
