import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import type { Timer } from '../../base/world.ts';
import type { WrongCounter } from '../../catalog/recount.ts';
import { CounterCheck, RecountTurns } from '../../server/catalog/counter-check.ts';
import { Catalog } from '../catalog/fixture.ts';

const FILES = 1_000;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** The check of a catalog, in a time that the test lets pass. */
class World {
  catalog = new Catalog();
  isPrimary = true;
  readonly found: (readonly WrongCounter[])[] = [];
  readonly check: CounterCheck;
  #nowMs = 0;
  #next: { readonly atMs: number; run(): void } | null = null;

  constructor(t: TestContext, recountTurns = new RecountTurns()) {
    this.fill(this.catalog);
    this.check = new CounterCheck({
      world: { nowMs: () => this.#nowMs, after: (delayMs, run) => this.#after(delayMs, run) },
      log: pino({ level: 'silent' }),
      recountTurns,
      isCatalogPrimary: () => this.isPrimary,
      store: () => ({ withTemporaryTables: (work) => work(this.catalog.db) }),
      found: (wrong) => void this.found.push(wrong),
    });
    t.after(() => this.check.close());
  }

  fill(catalog: Catalog): void {
    for (let index = 0; index < FILES; index++) catalog.file(`/f${index}`);
  }

  pass(ms: number): void {
    const untilMs = this.#nowMs + ms;
    for (let next = this.#next; next !== null && next.atMs <= untilMs; next = this.#next) {
      this.#nowMs = next.atMs;
      this.#next = null;
      next.run();
    }
    this.#nowMs = untilMs;
  }

  miscount(): void {
    this.catalog.db.exec("UPDATE placement_counts SET files = files - 1 WHERE server = 's1'");
  }

  temporaryTables(): unknown[] {
    return this.catalog.db.prepare('SELECT name FROM sqlite_temp_schema').all();
  }

  #after(delayMs: number, run: () => void): Timer {
    const next = { atMs: this.#nowMs + delayMs, run };
    this.#next = next;
    const timer: Timer = {
      cancel: () => {
        if (this.#next === next) this.#next = null;
      },
      unref: () => timer,
    };
    return timer;
  }
}

test('the primary of the catalog counts again once a day, in slices, and reports what is wrong', (t) => {
  const world = new World(t);
  world.miscount();
  world.pass(11 * MINUTE_MS);
  assert.ok(world.temporaryTables().length > 0, 'It has begun');
  assert.deepEqual(world.found, []);
  world.pass(MINUTE_MS);
  const wrong = [{ what: 'files of server s1', counter: FILES - 1, counted: FILES }];
  assert.deepEqual(world.found, [wrong]);
  assert.deepEqual(world.check.wrong, wrong);
  assert.deepEqual(world.temporaryTables(), []);
  world.pass(DAY_MS - 5 * MINUTE_MS);
  assert.equal(world.found.length, 1);
  world.pass(10 * MINUTE_MS);
  assert.equal(world.found.length, 2);
  world.catalog.db.exec('UPDATE placement_counts SET files = (SELECT COUNT(*) FROM inodes WHERE kind = 1)');
  world.pass(DAY_MS + 5 * MINUTE_MS);
  assert.deepEqual([world.found.length, world.check.wrong], [2, []]);
});

test('a server that is not the primary abandons its recount, between batches, and reports nothing', (t) => {
  const world = new World(t);
  world.miscount();
  world.pass(11 * MINUTE_MS);
  world.isPrimary = false;
  world.catalog.db.exec('BEGIN');
  world.pass(MINUTE_MS);
  assert.ok(world.temporaryTables().length > 0, 'Undoing the batch would bring them back');
  world.catalog.db.exec('ROLLBACK');
  world.pass(MINUTE_MS);
  assert.deepEqual(world.temporaryTables(), []);
  world.pass(DAY_MS);
  assert.deepEqual([world.found, world.check.wrong], [[], []]);
});

test("a recount begins anew if another server's catalog has replaced this one", (t) => {
  const world = new World(t);
  world.pass(11 * MINUTE_MS);
  const copy = new Catalog();
  world.fill(copy);
  world.catalog = copy;
  world.miscount();
  world.pass(MINUTE_MS);
  assert.deepEqual(
    world.found.map(([first]) => first?.what),
    ['files of server s1'],
  );
});

test('catalogs on one server are counted one after the other', (t) => {
  const turns = new RecountTurns();
  const [first, second, third] = [new World(t, turns), new World(t, turns), new World(t, turns)];
  const all = [first, second, third];
  for (const world of all) world.miscount();
  const counting = (): number => all.filter((world) => world.temporaryTables().length > 0).length;
  first.pass(11 * MINUTE_MS);
  assert.equal(counting(), 1);
  for (const world of [second, third]) world.pass(13 * MINUTE_MS);
  assert.equal(counting(), 1, 'The others wait');
  first.pass(MINUTE_MS);
  assert.deepEqual([first.found.length, counting()], [1, 0]);
  second.pass(61_000);
  assert.equal(counting(), 1);
  second.isPrimary = false;
  second.pass(MINUTE_MS);
  third.pass(61_000);
  assert.deepEqual(
    [second.temporaryTables().length > 0, counting()],
    [false, 1],
    'It has abandoned its turn',
  );
  third.check.close();
  second.isPrimary = true;
  second.pass(13 * MINUTE_MS);
  assert.equal(second.found.length, 1, 'A closed check has no turn');
});
