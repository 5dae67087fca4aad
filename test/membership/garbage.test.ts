import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { type FileId, type Incarnation, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { Position } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import { Garbage, type GarbageParts } from '../../server/file/garbage.ts';
import type { RemoteReplica } from '../../server/file/replica-place.ts';
import type { Command, PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';

const SELF = 's1' as ServerId;
const GRACE_MS = 10_000;

/** A server that has a replica of file 1 by its own view, while the catalog's answers vary. */
class World {
  readonly store = new MemoryStore();
  readonly removed: number[] = [];
  readonly departed: number[] = [];
  readonly opened: number[] = [];
  readonly loaded = new Set<number>();
  /** Servers that have all that this replica has; all others lack something. */
  whole = new Set<string>();
  away = new Set<string>();
  readonly failing = new Set<number>();
  /** Files that the index has lost when the disk is full, with rows left. */
  readonly interrupted = new Set<number>();
  /** Servers that never answer. */
  silent = new Set<string>();
  placed: PlacedFile[] = [];
  nowMs = 0;
  catalogEpoch = 1;
  readonly garbage: Garbage;

  driver = { idle: true, isPrimary: false, orders: false };
  /** Positions of the others' replicas. */
  places = new Map<string, RemoteReplica>();
  /** The epoch that the replica here promised, and to which server; the installed one if null. */
  promised: readonly [counter: number, server: string] | null = null;
  /** Its replicas never installed an epoch. */
  isEmpty = false;
  isRoomShort = false;
  /** Unlinked files, and how many commands have collected some of them; null: another server collects them. */
  orphans: number | null = null;
  /** The catalog's log for this server; null if the catalog's primary runs an earlier release. */
  log: QueryResults['deletions'] | null = { rows: [], trimmed: 0, last: 0, written: false };
  inodeCatalogs = InodeCatalogs.NONE_MOVED;
  reserved: FileId[] = [];
  /** The catalog does not answer where files are. */
  placedFails = false;
  /** Number of files that the store lists; null: those that it has. */
  listed: number | null = null;
  /** Files whose servers the catalog was asked for. */
  readonly asked: FileId[] = [];
  collects = 0;
  /** What the catalog says it has: orphans in their grace, for example. */
  garbageLeft: boolean | undefined;
  /** The catalog has a retention whose date has not come. */
  retains = false;
  /** Commands of others. */
  commands = 0;
  logReads = 0;
  /** The catalog does not answer what is in its log. */
  logFails = false;
  /** Calls of the store's list. */
  lists = 0;
  /** Uses of `inodeCatalogs`. */
  lookups = 0;
  /** Commands that trimmed the log. */
  trims = 0;

  constructor(view: View, graceMs = GRACE_MS) {
    this.store.create(1 as FileId, view, 4_096);
    const { store } = this;
    const epoch = { counter: 1, server: 's2' as ServerId, incarnation: 1 as Incarnation };
    const record = (file: FileId): ReplicaRecord | null => {
      const found = store.record(file);
      if (found === null || this.isEmpty) return found;
      const [counter, server] = this.promised ?? [epoch.counter, epoch.server];
      const promised = { ...epoch, counter, server: server as ServerId };
      return { ...found, promised, installed: epoch, seq: 1 };
    };
    this.garbage = new Garbage({
      world: systemWorld,
      self: SELF,
      catalog: ROOT_CATALOG,
      inodeCatalogs: () => {
        this.lookups++;
        return this.inodeCatalogs;
      },
      log: pino({ level: 'silent' }),
      store: {
        list: (after: FileId, countMax: number) => {
          this.lists++;
          if (this.listed === null) return store.list(after, countMax);
          return Array.from(
            { length: Math.min(countMax, this.listed - after) },
            (_, index) => after + index + 1,
          );
        },
        record,
      },
      departed: {
        add: async (file: FileId) => void this.departed.push(file),
        files: () => [],
        forget: async () => undefined,
      },
      host: {
        loaded: (file: FileId) => (this.loaded.has(file) ? this.driver : null),
        remove: async (file: FileId) => {
          if (this.failing.has(file)) throw new ServiceError('storage', 'The disk refused');
          await this.store.remove(file);
          if (this.interrupted.has(file)) throw new ServiceError('no-space', 'The disk is full');
          this.removed.push(file);
        },
      },
      lease: { close: () => undefined },
      // Its timer is off: the test runs each round.
      graceMs,
      isSpaceShort: () => this.isRoomShort,
      nowNs: () => 0n,
      nowMs: () => this.nowMs,
      isCatalogPrimary: () => this.orphans !== null,
      catalogPosition: () => `${this.collects}.${this.trims}.${this.commands}`,
      catalogEpoch: () => this.catalogEpoch,
      command: async (command: Command) => {
        if (command.kind === 'trim-deletions') {
          assert.ok(this.log !== null);
          this.log = { ...this.log, trimmed: command.through };
          this.trims++;
          return {};
        }
        const { countMax } = command as { readonly countMax: number };
        const count = Math.min(countMax, this.orphans ?? 0);
        this.orphans = (this.orphans ?? 0) - count;
        this.collects++;
        return { inodes: Array.from({ length: count }, (_, inode) => inode) };
      },
      query: async (query: Query) => {
        if (query.kind === 'deletions') {
          this.logReads++;
          if (this.logFails) throw new ServiceError('no-majority', 'The catalog has no primary');
          if (this.log === null) throw new ServiceError('bad-request', 'There is no such query');
          return this.logged(this.log, query.after, query.countMax);
        }
        if (query.kind !== 'placed')
          return { pending: false, garbage: this.garbageLeft, retains: this.retains };
        this.asked.push(...(query.inodes as FileId[]));
        if (this.placedFails) throw new ServiceError('no-majority', 'The catalog has no primary');
        const inodes = new Set<number>(query.inodes);
        return { files: this.placed.filter(({ inode }) => inodes.has(inode)), reserved: this.reserved };
      },
      conflicts: { compare: () => false },
      hasPosition: async (server: ServerId, _file: FileId, position: Position) => {
        assert.ok(position.epoch.counter > 0, 'No other server is asked for unwritten contents');
        if (this.silent.has(server)) return new Promise(() => undefined);
        if (this.away.has(server)) throw new ServiceError('no-majority', 'It is away');
        return this.whole.has(server);
      },
      replicaAt: async (server: ServerId) => {
        if (this.away.has(server)) throw new ServiceError('no-majority', 'It is away');
        return this.places.get(server) ?? null;
      },
      open: async (file: FileId) => {
        if (this.failing.has(file)) throw new ServiceError('no-majority', 'It has no primary');
        this.opened.push(file);
      },
    } as unknown as GarbageParts);
  }

  logged(log: QueryResults['deletions'], after: number, countMax: number): QueryResults['deletions'] {
    return {
      ...log,
      rows: log.rows.filter(([seq]) => seq > Math.max(after, log.trimmed)).slice(0, countMax),
    };
  }

  /** The catalog writes the log, which has these files in its last rows. */
  logs(last: number, ...inodes: readonly number[]): void {
    const first = last - inodes.length + 1;
    const rows = inodes.map((inode, index) => [first + index, inode] as const);
    this.log = { rows, trimmed: first - 1, last, written: true };
  }

  /** @returns the files that a round compared with the catalog */
  async round(): Promise<number[]> {
    this.asked.length = 0;
    await this.garbage.run();
    return [...this.asked];
  }

  place(view: number, members: readonly string[]): void {
    this.placed = [{ inode: 1, members, view, wanted: 3, sizeBytes: 0 }];
  }

  /** @returns what was removed by two rounds, one before and one after the grace period */
  async rounds(): Promise<number[]> {
    await this.garbage.run();
    assert.deepEqual(this.removed, [], 'Nothing is removed at once');
    this.nowMs += GRACE_MS;
    await this.garbage.run();
    this.garbage.close();
    return this.removed;
  }
}

function viewOf(number: number, ...members: readonly string[]): View {
  return { number, members: members as readonly ServerId[] };
}

test('a replica of a moved file is removed after the grace period, once a majority of the others has all of it', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's4']);
  world.away.add('s3');
  assert.deepEqual(await world.rounds(), [1]);
  assert.deepEqual(world.departed, [1], 'The removal is recorded before it takes place');
});

test('with little free space the grace period is shorter', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'), 3_600_000);
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  await world.garbage.run();
  world.nowMs = 400_000;
  await world.garbage.run();
  assert.deepEqual(world.removed, []);
  world.isRoomShort = true;
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual(world.removed, [1]);
});

test('it stays while too few of the others have all of it, or cannot be asked', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s4']);
  world.away.add('s3');
  assert.deepEqual(await world.rounds(), []);
});

test("it stays while the catalog is behind this replica's record, which names this server", async () => {
  const world = new World(viewOf(5, 's1', 's2'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  assert.deepEqual(await world.rounds(), []);
});

test("a file whose members changed without the catalog's knowledge is opened, so that its primary reports them", async () => {
  const world = new World(viewOf(3, 's1', 's2', 's4'));
  const file2 = 2 as FileId;
  world.store.create(file2, viewOf(3, 's1', 's2', 's4'), 4_096);
  const place = { members: ['s1', 's2', 's3'], view: 2, wanted: 3, sizeBytes: 0 };
  world.placed = [1, 2].map((inode) => ({ ...place, inode }));
  world.failing.add(1);
  await world.garbage.run();
  assert.deepEqual(world.opened, [2], 'One that cannot be opened delays none behind it');
  world.failing.clear();
  world.loaded.add(2);
  world.driver = { idle: true, isPrimary: true, orders: false };
  await world.garbage.run();
  assert.deepEqual(world.opened, [2, 1], "A primary reports its file's members unasked");
  world.placed = [1, 2].map((inode) => ({ ...place, inode, view: 3 }));
  await world.garbage.run();
  assert.deepEqual(world.opened, [2, 1]);
  assert.deepEqual(world.removed, []);
  world.garbage.close();
});

test('a change of members in progress is not reported', async () => {
  const { members: joint } = viewOf(2, 's1', 's2', 's3');
  const world = new World({ ...viewOf(3, 's1', 's2', 's4'), joint });
  world.place(2, ['s1', 's2', 's3']);
  await world.garbage.run();
  assert.deepEqual(world.opened, []);
  world.garbage.close();
});

test('it is removed if its record is ahead, and says that this server is no member', async () => {
  const world = new World(viewOf(5, 's2', 's3'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  assert.deepEqual(await world.rounds(), [1]);
});

test('it stays while it is in use, while members change, and if it is a member', async () => {
  const inUse = new World(viewOf(1, 's1', 's2', 's3'));
  inUse.place(3, ['s2', 's3', 's4']);
  inUse.whole = new Set(['s2', 's3', 's4']);
  inUse.loaded.add(1);
  assert.deepEqual(await inUse.rounds(), []);

  const joint = new World({
    ...viewOf(4, 's2', 's3', 's4'),
    joint: [SELF, 's2' as ServerId, 's3' as ServerId],
  });
  joint.place(3, ['s2', 's3', 's4']);
  joint.whole = new Set(['s2', 's3', 's4']);
  assert.deepEqual(await joint.rounds(), []);

  const member = new World(viewOf(1, 's1', 's2', 's3'));
  member.place(3, ['s1', 's2', 's4']);
  member.whole = new Set(['s2', 's4']);
  assert.deepEqual(await member.rounds(), []);
});

/** Makes these servers report an epoch whose voters are s2, s3 and s4, or others. */
function placesAt(epoch: number, servers: string, voters = 's2 s3 s4'): Map<string, RemoteReplica> {
  const place = { epoch, voters: voters.split(' ') as ServerId[] };
  return new Map(servers.split(' ').map((server) => [server, place]));
}

/** A change of members that was interrupted: this server was to become a member. */
function joining(): World {
  const world = new World({ ...viewOf(65_536, 's2', 's3', 's4'), joint: ['s1', 's2', 's3'] as ServerId[] });
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  return world;
}

test('a replica of a change of members that was interrupted is removed once a majority has a later epoch without this server', async () => {
  const later = joining();
  later.places = placesAt(2, 's2 s4');
  later.loaded.add(1);
  assert.deepEqual(await later.rounds(), [1], 'Also while it requests the lease');

  for (const [why, places] of [
    ['an earlier member alone', placesAt(2, 's3')],
    ['the epoch of the change may still commit it', placesAt(1, 's2 s3 s4')],
    ['the change was committed', placesAt(2, 's2 s3 s4', 's1 s2 s3 s4')],
    ['they have no replicas', new Map<string, RemoteReplica>()],
  ] as const) {
    const world = joining();
    world.places = new Map(places);
    assert.deepEqual(await world.rounds(), [], why);
  }
});

test('a replica that learns by a change of members in progress stays, one that requests the lease itself is removed', async () => {
  const learner = joining();
  learner.places = placesAt(4, 's2 s3 s4');
  learner.promised = [4, 's2'];
  assert.deepEqual(await learner.rounds(), []);
  const candidate = joining();
  candidate.places = placesAt(4, 's2 s3 s4');
  candidate.promised = [9, SELF];
  assert.deepEqual(await candidate.rounds(), [1]);
  const same = joining();
  same.places = placesAt(1, 's2 s3 s4');
  same.promised = [9, SELF];
  assert.deepEqual(await same.rounds(), [], 'Its own epoch may have committed the change');
});

test("a replica of an interrupted change keeps its file's lease from others for at most a minute", async () => {
  const world = new World(
    { ...viewOf(65_536, 's2', 's3', 's4'), joint: ['s1', 's2', 's3'] as ServerId[] },
    3_600_000,
  );
  world.place(3, ['s2', 's3', 's4']);
  world.places = placesAt(2, 's2 s3 s4');
  await world.garbage.run();
  world.nowMs = 60_000;
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual(world.removed, [1]);
});

test('a replica of an interrupted change is removed while the file is requested, unless an operation is under way', async () => {
  for (const [driver, removed] of [
    [{ idle: true, isPrimary: false, orders: false }, [1]],
    [{ idle: false, isPrimary: false, orders: false }, []],
    [{ idle: true, isPrimary: true, orders: true }, []],
    [{ idle: true, isPrimary: false, orders: true }, []],
  ] as const) {
    const world = new World(viewOf(1, 's1', 's2', 's3'));
    world.place(3, ['s2', 's3', 's4']);
    world.places = placesAt(2, 's2 s3');
    world.loaded.add(1);
    world.driver = driver;
    assert.deepEqual(await world.rounds(), removed, JSON.stringify(driver));
  }
});

test('a replica without an installed epoch is removed without asking the others', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.isEmpty = true;
  world.place(3, ['s2', 's3', 's4']);
  world.away = new Set(['s2', 's3', 's4']);
  assert.deepEqual(await world.rounds(), [1]);
  assert.deepEqual(world.departed, [1], 'It voted once, and votes by no older view again');
});

test('it stays if it preserves contents of another file', async () => {
  const world = new World(viewOf(1, 's1'));
  world.place(1, []);
  assert.deepEqual(await world.rounds(), []);
});

test('a file that was to preserve contents of another one is not opened, however long it waits for its members', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(0, []);
  assert.deepEqual(await world.rounds(), []);
  assert.deepEqual(world.opened, []);
});

test('a file whose members do not answer delays no other file', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.store.create(2 as FileId, viewOf(1, 's1', 's5'), 4_096);
  world.place(3, ['s2', 's3', 's4']);
  world.placed = [...world.placed, { inode: 2, members: ['s5'], view: 3, wanted: 1, sizeBytes: 0 }];
  world.silent = new Set(['s2', 's3', 's4']);
  world.whole.add('s5');
  await world.garbage.run();
  world.nowMs += GRACE_MS;
  void world.garbage.run();
  for (let ticks = 0; ticks < 10 && world.removed.length === 0; ticks++) await turn();
  world.garbage.close();
  assert.deepEqual(world.removed, [2]);
});

test('a replica that cannot be removed delays none behind it', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.store.create(2 as FileId, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.failing.add(1);
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual(world.removed, [2], 'The catalog knows neither');
});

test('it stays while this server is to become a member, however long its primary does not answer', async () => {
  const world = new World(viewOf(3, 's2', 's3', 's4'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  const plan = { servers: ['s1'], view: 3, mark: { epoch: 5, turn: 1 } };
  world.placed = world.placed.map((file) => ({ ...file, planned: plan }));
  assert.deepEqual(await world.rounds(), []);
  world.placed = world.placed.map((file) => ({ ...file, planned: { ...plan, servers: ['s5'] } }));
  await world.garbage.run();
  world.nowMs += GRACE_MS;
  await world.garbage.run();
  assert.deepEqual(world.removed, [1], 'Another one is planned');
});

test("the grace period starts again if the file was a member's again in between", async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.whole = new Set(['s2', 's3', 's4']);
  world.place(3, ['s2', 's3', 's4']);
  await world.garbage.run();
  world.nowMs += GRACE_MS / 2;
  world.place(5, ['s1', 's2', 's3']);
  await world.garbage.run();
  world.nowMs += GRACE_MS / 2;
  world.place(7, ['s2', 's3', 's4']);
  assert.deepEqual(await world.rounds(), [1]);
});

test('all unlinked files are collected in one round, in commands of bounded size, up to a hundred of them', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(1, ['s1', 's2', 's3']);
  world.orphans = 4_500;
  await world.garbage.run();
  assert.deepEqual([world.orphans, world.collects], [0, 6]);
  world.orphans = 1_000_000;
  world.collects = 0;
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual([world.orphans, world.collects], [900_000, 100]);
});

test('while the catalog has retentions, a command advances their clock each hour', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(1, ['s1', 's2', 's3']);
  world.orphans = 0;
  world.garbageLeft = false;
  const hours = async (): Promise<number[]> => {
    const counts: number[] = [];
    for (let hour = 0; hour < 3; hour++) {
      for (let round = 0; round < 3; round++) await world.garbage.run();
      counts.push(world.collects);
      world.nowMs += 3_600_000;
    }
    return counts;
  };
  assert.deepEqual(await hours(), [1, 1, 1], 'Without retentions, an idle catalog gets no commands');
  world.commands++;
  world.retains = true;
  assert.deepEqual(await hours(), [2, 3, 4]);
  world.garbage.close();
});

/** Files 1 to 3 are here, in the view that the catalog has; it writes the log, and all have been compared once. */
async function compared(): Promise<World> {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  const place = { members: ['s1', 's2', 's3'], view: 1, wanted: 3, sizeBytes: 0 };
  for (const file of [2, 3] as FileId[]) world.store.create(file, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.placed = [1, 2, 3].map((inode) => ({ ...place, inode }));
  world.logs(0);
  assert.deepEqual(await world.round(), [1, 2, 3], 'After the start, all replicas are compared');
  return world;
}

test('a round compares what the log names, and nothing if nothing has changed', async () => {
  const world = await compared();
  assert.deepEqual(await world.round(), []);
  world.placed = world.placed.filter(({ inode }) => inode !== 2);
  world.logs(1, 2);
  assert.deepEqual(await world.round(), [2]);
  assert.deepEqual([world.removed, world.log?.trimmed], [[2], 1]);
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('a row stays in the log until the replica is removed, or is needed again', async () => {
  const world = await compared();
  const [first, ...others] = world.placed;
  assert.ok(first !== undefined);
  world.placed = [{ ...first, members: ['s2', 's3', 's4'], view: 3 }, ...others];
  world.whole = new Set(['s2', 's3', 's4']);
  world.logs(1, 1);
  assert.deepEqual(await world.round(), [1]);
  assert.deepEqual(await world.round(), [1], 'It is compared until the grace has passed');
  assert.equal(world.log?.trimmed, 0);
  // It moves back, and away again.
  world.placed = [{ ...first, view: 5 }, ...others];
  await world.garbage.run();
  assert.deepEqual([world.removed, world.log?.trimmed], [[], 1]);
  world.placed = [{ ...first, members: ['s2', 's3', 's4'], view: 7 }, ...others];
  world.logs(2, 1);
  await world.garbage.run();
  world.nowMs += GRACE_MS;
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual([world.removed, world.log?.trimmed], [[1], 2]);
});

test('a file that is named by a row is removed only if the catalog does not have it', async () => {
  const world = await compared();
  world.logs(2, 1, 2);
  await world.garbage.run();
  world.nowMs += GRACE_MS;
  await world.garbage.run();
  world.garbage.close();
  assert.deepEqual([world.removed, world.log?.trimmed], [[], 2]);
});

test('all replicas are compared after a gap in the log, and daily', async () => {
  const world = await compared();
  world.placed = world.placed.filter(({ inode }) => inode !== 3);
  // Row 5 is the first that is kept.
  world.logs(5, 1);
  assert.deepEqual(await world.round(), [1, 2, 3]);
  assert.deepEqual(world.removed, [3], 'Its row was lost');
  assert.deepEqual(await world.round(), []);
  world.nowMs += 24 * 3_600_000;
  assert.deepEqual(await world.round(), [1, 2]);
  // The catalog lost its latest commands with the power.
  world.logs(4);
  assert.deepEqual(await world.round(), [1, 2]);
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('all replicas are compared in a new epoch of the catalog, which may have lost rows', async () => {
  const world = await compared();
  world.logs(1, 1);
  assert.deepEqual(await world.round(), [1]);
  // The row is lost with the power, and its number names another deleted file.
  world.placed = world.placed.filter(({ inode }) => inode !== 3);
  world.logs(1, 3);
  assert.deepEqual(await world.round(), [], 'Nothing shows it within the epoch');
  world.catalogEpoch = 2;
  assert.deepEqual(await world.round(), [1, 2, 3]);
  assert.deepEqual(world.removed, [3]);
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('a file that stays open keeps its row in the log, and finished ones behind it take no memory', async () => {
  const world = await compared();
  const [first, ...others] = world.placed;
  assert.ok(first !== undefined);
  world.placed = [{ ...first, members: ['s2', 's3', 's4'], view: 3 }, ...others];
  world.logs(3_002, ...Array.from({ length: 1_500 }, () => 2), 1, ...Array.from({ length: 1_501 }, () => 3));
  assert.deepEqual(await world.round(), [2, 1, 3]);
  assert.deepEqual([world.log?.trimmed, world.trims], [1_500, 2], 'In commands of bounded size');
  // File 3, whose rows are forgotten, is to be compared again for another reason.
  world.placed = [first, ...others].filter(({ inode }) => inode !== 3);
  world.reserved = [3 as FileId];
  world.garbage.placed(3 as FileId);
  assert.deepEqual(await world.round(), [1, 3]);
  assert.deepEqual([world.log?.trimmed, world.trims], [3_002, 4]);
  world.garbage.close();
});

test('a removal that a full disk interrupts is continued in later rounds', async () => {
  const world = await compared();
  const place = world.placed[0];
  assert.ok(place !== undefined);
  world.placed = [place];
  world.logs(2, 2, 3);
  world.interrupted.add(2).add(3);
  await world.round();
  assert.deepEqual([world.store.record(2 as FileId), world.removed, world.log?.trimmed], [null, [], 0]);
  assert.deepEqual(await world.round(), [2, 3], 'The disk is still full');
  world.interrupted.clear();
  // The rest of file 3 is gone, and a new replica is here.
  world.store.create(3 as FileId, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.placed = [place, { ...place, inode: 3 }];
  assert.deepEqual(await world.round(), [2, 3]);
  assert.deepEqual([world.removed, world.log?.trimmed], [[2], 2]);
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('all replicas are compared in each round while members of the catalog may not write the log', async () => {
  const world = await compared();
  world.log = null;
  assert.deepEqual(await world.round(), [1, 2, 3]);
  world.log = { rows: [], trimmed: 0, last: 0, written: false };
  assert.deepEqual(await world.round(), [1, 2, 3]);
  world.logs(0);
  assert.deepEqual(await world.round(), [1, 2, 3], 'Deletions before the first row are found');
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('a replica that was created here, or whose view changed, is compared until the catalog has it', async () => {
  const world = await compared();
  const file = 4 as FileId;
  world.store.create(file, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.garbage.placed(file);
  world.reserved = [file];
  assert.deepEqual(await world.round(), [file]);
  assert.deepEqual(await world.round(), [file], 'Its number may still become a file');
  world.reserved = [];
  assert.deepEqual(await world.round(), [file]);
  assert.deepEqual(world.removed, [4], 'Its creation failed');
  world.garbage.placed(1 as FileId);
  assert.deepEqual(await world.round(), [1]);
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('files that a failed round has not compared are compared by the next one', async () => {
  const world = await compared();
  world.logs(1, 2);
  world.placedFails = true;
  assert.deepEqual(await world.round(), [2]);
  world.placedFails = false;
  assert.deepEqual(await world.round(), [2]);
  assert.equal(world.log?.trimmed, 1);
  world.garbage.close();
});

test('all replicas are compared a slice in each round, from the position of the last one', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.listed = 60_000;
  world.logs(0);
  const slices = [await world.round(), await world.round(), await world.round(), await world.round()];
  world.garbage.close();
  assert.deepEqual(
    slices.map((slice) => slice.length),
    [25_000, 25_000, 10_000, 0],
  );
  assert.equal(new Set(slices.flat()).size, 60_000);
});

test('replicas are compared a page in each tick, although the catalog answers in the same tick', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.listed = 5_000;
  world.logs(0);
  let isEnded = false;
  const round = world.round().finally(() => {
    isEnded = true;
  });
  let before = world.asked.length;
  let most = before;
  while (!isEnded) {
    await turn();
    most = Math.max(most, world.asked.length - before);
    before = world.asked.length;
  }
  world.garbage.close();
  assert.equal((await round).length, 5_000);
  assert.ok(most <= 250, `A tick compared ${most} replicas`);
});

test('a catalog that has nothing to delete is not made to collect again before it has executed a command', async () => {
  const world = new World(viewOf(1, 's1'));
  world.orphans = 1;
  world.garbageLeft = true;
  for (let round = 0; round < 2; round++) await world.round();
  assert.equal(world.collects, 3, 'What is left may be due at the next round');
  world.garbageLeft = false;
  for (let round = 0; round < 3; round++) await world.round();
  assert.equal(world.collects, 4);
  world.commands++;
  world.garbageLeft = undefined;
  for (let round = 0; round < 3; round++) await world.round();
  assert.equal(world.collects, 7, 'A primary of an earlier release does not say what is left');
  world.garbage.close();
});

test("a server reads its log rarely while it has no replica of the catalog's files", async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  await world.store.remove(1 as FileId);
  world.logs(3);
  for (let round = 0; round < 3; round++) await world.round();
  assert.equal(world.logReads, 1);
  // Its rows have been kept.
  world.store.create(1 as FileId, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.garbage.placed(1 as FileId);
  world.logs(4, 1);
  assert.deepEqual(await world.round(), [1]);
  assert.equal(world.logReads, 2);
  world.nowMs += GRACE_MS;
  await world.round();
  assert.deepEqual(world.removed, [1]);
  await world.round();
  assert.equal(world.trims, 1);
  const { logReads } = world;
  await world.round();
  assert.equal(world.logReads, logReads);
  world.nowMs += 3_600_000;
  await world.round();
  assert.equal(world.logReads, logReads + 1);
  world.garbage.close();
});

/** Numbers of the root catalog that have moved to another one. */
function movedTo(catalog: number, ...numbers: readonly number[]): InodeCatalogs {
  return new InodeCatalogs(numbers.map((first) => ({ first, end: first + 1, catalog })));
}

/** @returns the most that `count` grew between two ticks of a round, in which two pages may be done */
async function mostPerTick(world: World, count: () => number): Promise<number> {
  let isEnded = false;
  const round = world.round().finally(() => {
    isEnded = true;
  });
  let most = 0;
  for (let before = 0; !isEnded; before = count()) {
    await turn();
    most = Math.max(most, count() - before);
  }
  await round;
  return most;
}

test("files of other catalogs, in numbers between the catalog's own, are passed over a page in each tick", async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  await world.store.remove(1 as FileId);
  const others = Array.from({ length: 1_000 }, (_, at) => 2 * at + 2);
  for (const file of others as FileId[]) world.store.create(file, viewOf(1, 's1'), 4_096);
  world.inodeCatalogs = movedTo(5, ...others);
  world.logs(0);
  for (let round = 0; round < 2; round++) {
    world.lists = 0;
    const most = await mostPerTick(world, () => world.lists);
    assert.ok(most <= 2, `Between two ticks there were ${most} lists`);
  }
  world.lists = 0;
  await world.round();
  assert.equal(world.lists, 0, 'None is created unnoticed');
  world.store.create(3 as FileId, viewOf(1, 's1', 's2', 's3'), 4_096);
  world.garbage.placed(3 as FileId);
  assert.deepEqual(await world.round(), [3]);
  assert.deepEqual(world.removed, [3], 'The catalog does not have it');
  assert.equal(world.logReads, 2);
  world.garbage.close();
});

test('of many files that have changed, a page is looked at in each tick, also if some have moved meanwhile', async () => {
  const world = await compared();
  const files = Array.from({ length: 2_000 }, (_, at) => at + 10);
  for (const file of files as FileId[]) world.garbage.placed(file);
  world.lookups = 0;
  const most = mostPerTick(world, () => world.lookups);
  while (world.asked.length === 0) await Promise.resolve();
  world.inodeCatalogs = movedTo(5, 1_000, 2_000);
  assert.ok((await most) <= 1_000, `Between two ticks there were ${await most} lookups`);
  assert.deepEqual(
    world.asked,
    files.filter((file) => file !== 1_000 && file !== 2_000),
  );
  assert.deepEqual(await world.round(), []);
  world.garbage.close();
});

test('a log that could not be read is read in the next round, also without replicas', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  await world.store.remove(1 as FileId);
  world.logs(3);
  world.logFails = true;
  await world.round();
  world.logFails = false;
  await world.round();
  await world.round();
  world.garbage.close();
  assert.equal(world.logReads, 2);
});

test('the grace of a moved file is forgotten when another catalog has the file', async () => {
  const world = new World(viewOf(1, 's1', 's2', 's3'));
  world.place(3, ['s2', 's3', 's4']);
  world.whole = new Set(['s2', 's3', 's4']);
  await world.round();
  world.inodeCatalogs = movedTo(5, 1);
  await world.round();
  world.inodeCatalogs = InodeCatalogs.NONE_MOVED;
  world.nowMs += GRACE_MS;
  world.garbage.placed(1 as FileId);
  await world.round();
  world.garbage.close();
  assert.deepEqual(world.removed, []);
});
