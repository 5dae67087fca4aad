/**
 * Goal: clones stay deep copies of their snapshots while quotas of directories begin and end in them, whatever is
 * filled when; the quotas count what is in their directories.
 * Method: random commands, at a catalog with clones and quotas, and those that succeed at one with copies and without
 * quotas. What only a quota refuses is not executed there.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { Recount } from '../../catalog/recount.ts';
import { type CatalogDatabase, KIND_DIRECTORY } from '../../catalog/schema.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { copyTree, countRows, Disks, FilledCatalog, linesOf, outcomeOf, treeOf } from './clones-world.ts';
import { everyStep } from './every-step.ts';
import { assertNamesCounted, countedByTree } from './quota-fixture.ts';
import { assertSound } from './soundness.ts';

const SEEDS = isLong ? 400 : 8;
const NAMES = ['a', 'b', 'c'];
const OWNER = { uid: 1, gid: 2 };
const TRASH_MS = 1_000_000;
/** Refusals that only a quota, or its walk, causes. */
const BY_QUOTA = ['cross-volume', 'quota-exceeded', 'busy'];

/** A catalog with the volume `main`, whose files have contents. */
class World {
  readonly catalog = new FilledCatalog();
  readonly disks = new Disks();
  #seq = 0;

  constructor() {
    this.catalog.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 });
  }

  file(path: string, volume: string, sizeBytes: number): number {
    const { catalog } = this;
    const place = { volume, path };
    const create = { kind: 'create-file', place, mode: 0o644, ...OWNER, exclusive: true } as const;
    const { inode } = catalog.run(create).attributes;
    const contents = { epoch: 1, seq: ++this.#seq };
    this.disks.put(inode, contents, `${sizeBytes} bytes`);
    catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, contents, modifiedNs: String(sizeBytes) }] });
    return inode;
  }

  /** Files in the trash, in the order of their removal. */
  trashed(volume: string): number[] {
    const { files } = this.catalog.query({ kind: 'trash', volume, path: '/', after: null, countMax: 1_000 });
    const ofFile = ({ removedNs, path }: (typeof files)[number]) => `${removedNs.padStart(20)} ${path}`;
    return files.toSorted((a, b) => (ofFile(a) < ofFile(b) ? -1 : 1)).map(({ inode }) => inode);
  }
}

interface Spot {
  readonly volume: string;
  readonly path: string;
}

/** Random commands in clones with quotas, and in their copies without. */
class Twins {
  readonly lazy = new World();
  readonly copy = new World();
  readonly random: Prng;
  readonly counts = new Map<string, number>();
  #recount: Recount;
  /** Clones by name, with their snapshots, and the time from which on both have the same times. */
  readonly #volumes = new Map<string, { readonly snapshots: Set<string>; readonly sinceNs: bigint }>();
  #serial = 0;

  constructor(seed: number) {
    this.random = new Prng(seed);
    this.lazy.catalog.sliceMax = () => this.random.integer(1, 3);
    this.#recount = new Recount(this.lazy.catalog.db);
  }

  /** Many files have names in several directories. */
  prepare(): void {
    const { catalog } = this.lazy;
    catalog.run({ kind: 'volume-set', name: 'main', trashMs: TRASH_MS });
    const at = (path: string) => ({ volume: 'main', path });
    const owner = { mode: 0o755, ...OWNER };
    const directories = [''];
    for (let index = 0; index < 20; index++) {
      const path = `${this.random.pick(directories)}/${this.random.pick(NAMES)}`;
      const made = outcomeOf(() => catalog.run({ kind: 'make-directory', place: at(path), ...owner }));
      if (made === 'done') directories.push(path);
    }
    const files: number[] = [];
    const linkChance = this.random.pick([0, 0.1, 0.5]);
    for (let index = 0; index < 25; index++) {
      const path = `${this.random.pick(directories)}/${this.random.pick([...NAMES, 'f', 'g'])}`;
      if (files.length > 0 && this.random.chance(linkChance))
        outcomeOf(() => catalog.run({ kind: 'link', inode: this.random.pick(files), place: at(path) }));
      else outcomeOf(() => files.push(this.lazy.file(path, 'main', 10 * index)));
    }
    catalog.run({ kind: 'snapshot-create', volume: 'main', name: 's' });
    this.#cloneBoth('main', 's', 'one');
  }

  step(): void {
    const { catalog } = this.lazy;
    this.#change();
    // While a walk is under way, its part of the tree counts against another quota.
    if (countRows(catalog.db, "quota_walks WHERE phase <> 'refused'") === 0) assertSound(catalog.db);
    assertNamesCounted(catalog);
    if (!this.#recount.step(9)) return;
    assert.deepEqual(this.#recount.wrongCounters(), []);
    this.#recount = new Recount(catalog.db);
  }

  /** The walks end, and everything is filled. */
  check(): void {
    const { catalog } = this.lazy;
    everyStep(() => catalog.run({ kind: 'walk-quotas', countMax: this.random.integer(1, 5) }).more);
    assertSound(catalog.db);
    for (const [volume, { snapshots, sinceNs }] of this.#volumes)
      for (const name of [volume, ...[...snapshots].map((snapshot) => `${volume}@${snapshot}`)])
        assert.deepEqual(linesIn(this.lazy, name, sinceNs), linesIn(this.copy, name, sinceNs), name);
    for (const volume of this.#volumes.keys()) {
      const [lazy, copy] = [this.lazy, this.copy].map((world) => {
        const { volume: info } = world.catalog.query({ kind: 'volume', name: volume });
        return [info.namedInodes, info.namedBytes, info.trashedInodes, info.trashedBytes];
      });
      assert.deepEqual(lazy, copy, volume);
    }
    catalog.assertReplicasEqual();
    assertSound(catalog.db);
    everyStep(() => !this.#recount.step(3));
    assert.deepEqual(this.#recount.wrongCounters(), []);
    for (const volume of this.#volumes.keys()) catalog.run({ kind: 'trash-empty', volume, countMax: 10_000 });
    assert.deepEqual(countedByQuota(catalog.db), countedByTree(catalog));
  }

  /** Everything goes, and nothing is left. */
  end(): void {
    const { catalog } = this.lazy;
    for (const volume of [...this.#volumes.keys()].reverse()) this.#removeVolume(this.lazy, volume);
    catalog.run({ kind: 'snapshot-remove', volume: 'main', name: 's' });
    everyStep(() => catalog.run({ kind: 'walk-quotas', countMax: 5 }).more);
    for (const table of ['clones', 'unfilled', 'clone_names', 'directory_quotas', 'quota_walk_files'])
      assert.equal(countRows(catalog.db, table), 0, table);
    assertSound(catalog.db);
    for (const world of [this.lazy, this.copy])
      for (const db of [world.catalog.db, world.catalog.other]) db.close();
  }

  #change(): void {
    this.#sameTime();
    const [volume, { snapshots }] = this.random.pick([...this.#volumes]);
    const choice = this.random.integer(0, 99);
    if (choice < 3) {
      const name = `t${this.#serial++}`;
      for (const { catalog } of [this.lazy, this.copy])
        catalog.run({ kind: 'snapshot-create', volume, name });
      snapshots.add(name);
    } else if (choice < 5) {
      const name = `clone${this.#serial++}`;
      if (this.#volumes.size >= 4) return;
      if (this.random.chance(0.3)) this.#cloneBoth('main', 's', name);
      else if (snapshots.size > 0) this.#cloneBoth(volume, this.random.pick([...snapshots]), name);
    } else if (choice < 7) {
      if (snapshots.size > 0) this.#removeSnapshot(volume, snapshots);
    } else if (choice < 9) for (const world of [this.lazy, this.copy]) this.#collect(world);
    else if (choice < 10) this.#removeOne();
    else if (choice < 22) this.#setQuota(volume);
    else if (choice < 40) {
      const isWhole = this.random.chance(0.15);
      const walk = () =>
        this.lazy.catalog.run({ kind: 'walk-quotas', countMax: this.random.integer(1, 3) }).more;
      everyStep(() => walk() && isWhole);
    } else if (choice < 52) this.#fillSome(volume);
    else this.#changeTree(volume);
    for (const phase of this.lazy.catalog.db.prepare('SELECT phase FROM quota_walks').pluck().all())
      this.#count(`${phase}`);
  }

  #removeSnapshot(volume: string, snapshots: Set<string>): void {
    const name = this.random.pick([...snapshots]);
    const remove = { kind: 'snapshot-remove', volume, name } as const;
    const isNeeded = clonesOf(this.lazy.catalog.db, volume).includes(name);
    const outcome = outcomeOf(() => this.lazy.catalog.run(remove));
    assert.equal(outcome, isNeeded ? 'precondition-failed' : 'done');
    if (isNeeded) return;
    this.copy.catalog.run(remove);
    snapshots.delete(name);
  }

  #setQuota(volume: string): void {
    const { catalog } = this.lazy;
    const begun = catalog.db.prepare('SELECT directory FROM directory_quotas').pluck().all() as number[];
    const isEnd = begun.length > 0 && this.random.chance(0.3);
    const isUnfilled = this.random.chance(0.4);
    const inode = isEnd
      ? this.random.pick(begun)
      : isUnfilled
        ? this.#unfilled(volume)
        : this.#directory(volume);
    if (inode === null) return;
    const quota = isEnd ? null : this.random.pick([{}, { quotaInodes: 9 }, { quotaBytes: 2_000 }]);
    const outcome = outcomeOf(() => catalog.run({ kind: 'set-quota', inode, quota, walks: true }));
    this.#count(`quota ${isEnd ? 'ends' : 'begins'}: ${outcome}`);
  }

  /** A directory that is not filled; null if there is none. */
  #unfilled(volume: string): number | null {
    const inodes = this.lazy.catalog.db
      .prepare(
        `SELECT u.inode FROM unfilled u JOIN inodes i ON i.id = u.inode JOIN volumes v ON v.id = u.volume
         WHERE v.name = ? AND i.kind = ? ORDER BY u.inode`,
      )
      .pluck()
      .all(volume, KIND_DIRECTORY) as number[];
    return inodes.length === 0 ? null : this.random.pick(inodes);
  }

  #directory(volume: string): number | null {
    const { path } = this.#path(volume);
    let found: Attributes | null = null;
    outcomeOf(() => {
      found = this.lazy.catalog.at(volume, path);
    });
    const { inode, kind } = (found ?? {}) as Partial<Attributes>;
    return inode !== undefined && kind === 'directory' ? inode : null;
  }

  #fillSome(volume: string): void {
    const directory = this.#unfilled(volume);
    if (directory === null) return;
    this.#count('partly filled');
    this.lazy.catalog.fillNext(directory);
  }

  #changeTree(volume: string): void {
    const { random } = this;
    const chosen = { kind: random.integer(0, 15), chance: random.next(), size: random.integer(0, 900) };
    const places = [this.#path(volume), this.#target(volume)] as const;
    const lazy = outcomeOf(() => change(this.lazy, chosen, places));
    this.#count(lazy);
    if (BY_QUOTA.includes(lazy)) return;
    assert.equal(
      outcomeOf(() => change(this.copy, chosen, places)),
      lazy,
    );
  }

  /** A path of the volume, often an existing one; the copy knows them, so none is filled for that. */
  #path(volume: string): Spot {
    const known = pathsIn(this.copy.catalog.db, volume);
    const existing = known.filter(({ path }) => path !== '');
    if (existing.length > 0 && this.random.chance(0.6))
      return { volume, path: this.random.pick(existing).path };
    const { path } = this.random.pick(known.filter(({ kind }) => kind === KIND_DIRECTORY));
    return { volume, path: `${path}/${this.random.pick([...NAMES, 'f', 'g'])}` };
  }

  /** A path as above, or one in a directory with a quota. */
  #target(volume: string): Spot {
    const list = { kind: 'directory-quotas', volume, after: 0, countMax: 100 } as const;
    const paths = this.lazy.catalog.query(list).quotas.flatMap(({ path }) => path ?? []);
    if (paths.length === 0 || this.random.chance(0.6)) return this.#path(volume);
    return { volume, path: `${this.random.pick(paths)}/${this.random.pick(NAMES)}` };
  }

  #cloneBoth(volume: string, snapshot: string, name: string): void {
    const from = volume === 'main' ? this.lazy : this.copy;
    const tree = treeOf(from.catalog, from.disks, `${volume}@${snapshot}`);
    const info = this.lazy.catalog.query({ kind: 'volume', name: volume }).volume;
    const { catalog, disks } = this.copy;
    this.#sameTime();
    this.lazy.catalog.run({ kind: 'clone-create', name, volume, snapshot });
    copyTree(tree, info, { catalog, disks, name });
    catalog.run({ kind: 'volume-set', name, trashMs: TRASH_MS });
    this.#sameTime();
    this.#volumes.set(name, { snapshots: new Set(), sinceNs: this.lazy.catalog.timeNs + 1n });
    this.#count('cloned');
  }

  #collect({ catalog }: World): void {
    everyStep(() => catalog.run({ kind: 'sweep', countMax: 3 }).more);
    catalog.run({ kind: 'collect', beforeNs: String(catalog.timeNs), countMax: 1_000 });
  }

  /** A volume that no clone is of any more. */
  #removeOne(): void {
    const volume = this.random.pick([...this.#volumes.keys()]);
    if (this.#volumes.size === 1 || clonesOf(this.lazy.catalog.db, volume).length > 0) return;
    for (const world of [this.lazy, this.copy]) this.#removeVolume(world, volume);
    this.#volumes.delete(volume);
    this.#count('volume removed');
  }

  #removeVolume({ catalog }: World, volume: string): void {
    const remove = (parent: number): void => {
      for (const { name, attributes } of catalog.entries(parent)) {
        const place = { parent, name };
        if (attributes.kind === 'directory') {
          remove(attributes.inode);
          catalog.run({ kind: 'remove-directory', place });
        } else catalog.run({ kind: 'unlink', place });
      }
    };
    remove(catalog.at(volume, '/').inode);
    for (const name of this.#volumes.get(volume)?.snapshots ?? [])
      catalog.run({ kind: 'snapshot-remove', volume, name });
    catalog.run({ kind: 'trash-empty', volume, countMax: 10_000 });
    catalog.run({ kind: 'volume-remove', name: volume });
  }

  #sameTime(): void {
    const [a, b] = [this.lazy.catalog, this.copy.catalog];
    if (a.timeNs < b.timeNs) a.timeNs = b.timeNs;
    else b.timeNs = a.timeNs;
  }

  #count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }
}

/** A command, the same in both catalogs. */
function change(
  world: World,
  { kind, chance, size }: { readonly kind: number; readonly chance: number; readonly size: number },
  [place, to]: readonly [Spot, Spot],
): void {
  const { catalog } = world;
  const { volume } = place;
  switch (kind) {
    case 0:
    case 1:
      catalog.run({ kind: 'make-directory', place, mode: 0o755, ...OWNER });
      return;
    case 2:
    case 3:
      world.file(place.path, volume, size);
      return;
    case 4:
    case 5:
    case 6:
      catalog.run({ kind: 'unlink', place });
      return;
    case 7:
      catalog.run({ kind: 'remove-directory', place });
      return;
    case 8:
    case 9:
    case 10:
    case 11:
      catalog.run({ kind: 'rename', from: place, to, mode: chance < 0.3 ? 'exchange' : 'replace' });
      return;
    case 12:
    case 13:
      catalog.run({ kind: 'link', inode: catalog.at(volume, to.path).inode, place });
      return;
    case 14: {
      const trashed = world.trashed(volume);
      const inode = trashed[size % Math.max(1, trashed.length)];
      if (inode === undefined) return;
      if (chance < 0.3) catalog.run({ kind: 'trash-empty', volume, inode, countMax: 1 });
      else catalog.run({ kind: 'trash-restore', volume, inode, ...(chance < 0.6 ? { to: place.path } : {}) });
      return;
    }
    default:
      catalog.at(volume, place.path);
  }
}

function pathsIn(db: CatalogDatabase, volume: string): { readonly path: string; readonly kind: number }[] {
  return db
    .prepare(
      `WITH RECURSIVE paths (path, inode) AS (
         SELECT '', root FROM volumes WHERE name = ?
         UNION ALL SELECT p.path || '/' || e.name, e.inode FROM paths p JOIN entries e ON e.parent = p.inode)
       SELECT path, kind FROM paths JOIN inodes ON id = inode ORDER BY path`,
    )
    .all(volume) as { path: string; kind: number }[];
}

function linesIn({ catalog, disks }: World, name: string, sinceNs: bigint): string[] {
  return linesOf(treeOf(catalog, disks, name), sinceNs);
}

/** Snapshots of the volume that clones need. */
function clonesOf(db: CatalogDatabase, volume: string): unknown[] {
  return db
    .prepare(
      `SELECT s.name FROM clones c JOIN volumes v ON v.id = c.source
       JOIN snapshots s ON s.volume = c.source AND s.serial = c.serial WHERE v.name = ?`,
    )
    .pluck()
    .all(volume);
}

function countedByQuota(db: CatalogDatabase): unknown {
  return db
    .prepare(
      'SELECT directory, named_inodes AS inodes, named_bytes AS bytes FROM directory_quotas ORDER BY directory',
    )
    .all();
}

const total = new Map<string, number>();

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`quotas begin and end in clones, whatever is filled when (seed ${seed})`, () => {
    const twins = new Twins(seed);
    twins.prepare();
    for (let step = 0; step < 120; step++) twins.step();
    twins.check();
    twins.end();
    for (const [what, count] of twins.counts) total.set(what, (total.get(what) ?? 0) + count);
  });
}

test('the seeds did what they are for', () => {
  const wanted = [
    ...['counting', 'checking', 'ending', 'refused', 'partly filled', 'volume removed'],
    ...['quota begins: done', 'quota ends: done', 'done', 'cross-volume', 'not-empty'],
  ];
  const few = wanted.filter((what) => (total.get(what) ?? 0) < 2);
  assert.deepEqual(few, [], JSON.stringify([...total]));
});
