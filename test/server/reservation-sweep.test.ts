import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { catalogOfInode, type FileId, type ServerId } from '../../base/ids.ts';
import { ReplicaCheck } from '../../server/file/replica-check.ts';
import { ReservationSweep, type ReservationSweepParts } from '../../server/file/reservation-sweep.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import { Catalog, main } from '../catalog/fixture.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';

const QUOTA = 1_000_000;
const OWNER = { mode: 0o644, uid: 0, gid: 0 };
/** Of a primary that has ended without settling its files. */
const LOST = { epoch: 1, turn: 7 };

/** A catalog with a quota and a trash, and files whose next primary has epoch 2. */
class World {
  readonly catalog = new Catalog();
  readonly settled: number[] = [];
  readonly away = new Set<number>();
  /** Files whose contents are older than the catalog knows. */
  readonly lost = new Set<number>();
  isPrimary = true;
  readonly sweep: ReservationSweep;
  /** Of files that may not grow, too. */
  readonly liveSweep: ReservationSweep;
  queries = 0;
  #seq = 0;

  constructor(t: TestContext) {
    this.catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: QUOTA, trashMs: 3_600_000 });
    const parts: ReservationSweepParts = {
      world: patientWorld,
      log: pino({ level: 'silent' }),
      isCatalogPrimary: () => this.isPrimary,
      catalogPosition: () => String(this.catalog.timeNs),
      query: async <Q extends Query>(query: Q) => {
        this.queries++;
        return this.catalog.query(query) as QueryResults[Q['kind']];
      },
      settle: async (file) => {
        if (this.away.has(file)) throw new ServiceError('no-majority', 'Its servers are away');
        this.settled.push(file);
        return this.settle(file, 100, this.lost.has(file) ? 0 : 2, 1);
      },
    };
    this.sweep = new ReservationSweep(parts);
    this.liveSweep = new ReservationSweep({ ...parts, live: true });
    t.after(() => {
      this.sweep.close();
      this.liveSweep.close();
    });
  }

  /** A file of 100 bytes that was settled. */
  file(name: string): number {
    const place = main(`/${name}`);
    const { inode } = this.catalog.run({ kind: 'create-file', place, ...OWNER, exclusive: true }).attributes;
    this.settle(inode, 100, 1, 1);
    return inode;
  }

  settle(inode: number, sizeBytes: number, epoch: number, turn: number): FileState {
    const contents = { epoch, seq: ++this.#seq };
    const state = { sizeBytes, modifiedNs: '7', contents };
    this.catalog.run({
      kind: 'settle',
      files: [{ inode, ...state, mark: { epoch: Math.max(2, epoch), turn } }],
    });
    return { file: inode, ...state } as FileState;
  }

  mark(inode: number, mark = LOST): void {
    this.catalog.run({ kind: 'open-for-write', inode, mark, growTo: 200_000 });
  }

  get counted() {
    const { namedBytes, trashedBytes } = this.catalog.query({ kind: 'volume', name: 'main' }).volume;
    return { namedBytes, trashedBytes };
  }
}

test('the size to which files may grow ends if the primary that requested it has ended', async (t) => {
  const world = new World(t);
  const [named, trashed] = [world.file('named'), world.file('trashed')];
  world.mark(named);
  world.mark(trashed);
  world.catalog.run({ kind: 'unlink', place: main('/trashed') });
  assert.ok(world.counted.namedBytes > 400_000 && world.counted.trashedBytes > 200_000);
  await world.sweep.run();
  assert.deepEqual(world.settled, [], 'One round alone does not prove that nothing changes');
  await world.sweep.run();
  assert.deepEqual(world.settled.sort(), [named, trashed]);
  assert.deepEqual(world.counted, { namedBytes: 200, trashedBytes: 100 });
  await world.sweep.run();
  assert.equal(world.settled.length, 2, 'Settled files are unchanged');
});

test('a catalog without live files is asked again when it has executed a command', async (t) => {
  const world = new World(t);
  const file = world.file('file');
  for (let round = 0; round < 3; round++) await world.sweep.run();
  assert.equal(world.queries, 1);
  world.mark(file);
  for (let round = 0; round < 2; round++) await world.sweep.run();
  assert.deepEqual(world.settled, [file]);
  await world.sweep.run();
  assert.equal(world.queries, 4);
  world.isPrimary = false;
  await world.sweep.run();
  assert.equal(world.queries, 4);
});

test('a file of a volume without a quota that stays live is settled', async (t) => {
  const world = new World(t);
  world.catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 0 });
  const [file, active] = [world.file('file'), world.file('active')];
  world.mark(file);
  for (let turn = 8; turn < 11; turn++) {
    world.mark(active, { epoch: 1, turn });
    await world.sweep.run();
    await world.liveSweep.run();
  }
  assert.deepEqual(world.settled, [file]);
  const { attributes } = world.catalog.query({ kind: 'attributes', inode: file });
  assert.equal(attributes.live, false);
});

test('a mark that takes effect after the settling ends, too', async (t) => {
  const world = new World(t);
  const file = world.file('late');
  world.mark(file);
  world.settle(file, 100, LOST.epoch, LOST.turn);
  // The request of the primary's second attempt, which its server has abandoned.
  world.mark(file);
  assert.ok(world.counted.namedBytes > 100);
  for (let round = 0; round < 2; round++) await world.sweep.run();
  assert.equal(world.counted.namedBytes, 100);
});

test('files that are marked again, or have no count, or do not answer, are left', async (t) => {
  const world = new World(t);
  const [active, away, nameless] = [world.file('active'), world.file('away'), world.file('nameless')];
  for (const file of [active, away, nameless]) world.mark(file);
  world.away.add(away);
  world.catalog.run({ kind: 'unlink', place: main('/nameless'), trash: false });
  for (let turn = 8; turn < 11; turn++) {
    await world.sweep.run();
    world.mark(active, { epoch: 1, turn });
  }
  assert.deepEqual(world.settled, []);
  // A catalog whose primary is elsewhere is swept there, and what was seen here before no longer counts.
  world.isPrimary = false;
  await world.sweep.run();
  world.isPrimary = true;
  world.away.clear();
  await world.sweep.run();
  assert.deepEqual(world.settled, []);
  await world.sweep.run();
  assert.deepEqual(world.settled.sort(), [active, away]);
});

test('a file whose contents are older than the catalog knows is settled more and more rarely, and reported', async (t) => {
  const world = new World(t);
  const [file, other] = [world.file('lost'), world.file('other')];
  const check = new ReplicaCheck({
    ...{ self: 's1' as ServerId, store: new MemoryStore(), unsettleable: () => world.sweep.unsettleable },
    conflicts: { current: [], compare: () => false },
    catalogOf: catalogOfInode,
    query: async <Q extends Query>(query: Q) => world.catalog.query(query) as QueryResults[Q['kind']],
  });
  const findings = async (after = 0) => (await check.page(after as FileId)).findings;
  world.lost.add(file);
  world.mark(file);
  for (let round = 0; round < 2; round++) await world.sweep.run();
  assert.deepEqual([world.settled, await findings()], [[file], []], 'Not yet known to be useless');
  for (let round = 2; round < 100; round++) await world.sweep.run();
  // In rounds 2, 4, 8, 16, 32 and 64.
  assert.equal(world.settled.length, 6);
  const what =
    'the catalog has contents 1.1 of 100 bytes and the replicas have contents 0.3 of 100 bytes, after a power loss; the next write corrects this';
  const found = { file, server: 's1', path: 'main:/lost', kind: 'catalog-ahead', what };
  assert.deepEqual(await findings(), [found]);
  assert.deepEqual(await findings(file), []);
  // A write requests its own mark, and what is settled under that counts.
  world.lost.delete(file);
  world.mark(file, { epoch: 2, turn: 1 });
  world.mark(other);
  for (let round = 0; round < 2; round++) await world.sweep.run();
  assert.deepEqual([world.settled.length, await findings()], [8, []]);
  assert.equal(world.counted.namedBytes, 200);
});
