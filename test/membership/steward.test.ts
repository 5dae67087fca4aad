import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { measureSteward } from '../../bench/scale/steward.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { MoveLimits } from '../../server/membership/move-limits.ts';
import type { MoveAnswer } from '../../server/membership/move-orders.ts';
import { STEADY_MS } from '../../server/membership/server-conditions.ts';
import { Steward } from '../../server/membership/steward.ts';
import { catalogReplicasWanted } from '../../server/process/catalog-replicas.ts';
import { Placement } from '../../server/process/placement.ts';
import type { Command, Query, QueryResults } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { Catalog, main, SERVERS } from '../catalog/fixture.ts';

const REPLACE_AFTER_MS = 60_000;
const REBALANCE_MS = 120_000;
const STARTED_MS = 1_000;
const GIB = 2 ** 30;

/** A steward over a real catalog; a function of the test moves the files. */
class World {
  readonly catalog = new Catalog();
  readonly away = new Set<string>();
  /** Servers of an earlier release. */
  readonly earlier = new Set<string>();
  readonly moves: [number, string[]][] = [];
  readonly announced: string[][] = [];
  nowMs = STARTED_MS;
  /** The number of commands that the catalog has executed. */
  commands = 0;
  isPrimary = true;
  catalogMembers: readonly ServerId[] = SERVERS.slice(0, 3);
  /** Throws if a move is to fail. */
  onMove: (file: number) => void = () => undefined;
  partToBalance = (_own: number): number => 1;
  /** Kinds of the queries of the steward since the last look. */
  readonly queries: string[] = [];
  /** How often the steward has examined the servers. */
  examinations = 0;
  /** Throws if the catalog cannot be moved. */
  onCatalogMove: () => void = () => undefined;
  /** How long the query for a page of files takes. */
  pageMs = 0;
  readonly steward: Steward;

  constructor(catalogReplicas = 3, servers: readonly string[] = SERVERS) {
    this.catalogMembers = SERVERS.slice(0, catalogReplicas);
    for (const id of servers) this.register(id);
    const placement = new Placement({ configured: [], isConnected: (server) => !this.away.has(server) });
    this.steward = new Steward({
      log: pino({ level: 'silent' }),
      replaceAfterMs: REPLACE_AFTER_MS,
      // Its timer is off: the test runs each round.
      periodMs: 2 ** 30,
      world: { ...systemWorld, nowMs: () => this.nowMs, wallMs: () => this.wallMs },
      isCatalogPrimary: () => this.isPrimary,
      query: async <Q extends Query>(query: Q) => {
        this.queries.push(query.kind);
        if (query.kind === 'files-on') this.nowMs += this.pageMs;
        return this.catalog.query(query as never) as QueryResults[Q['kind']];
      },
      candidates: (servers) => {
        this.examinations += 1;
        return placement.candidates(servers);
      },
      isConnected: (server) => !this.away.has(server),
      catalogMembers: () => this.catalogMembers,
      catalogPosition: () => String(this.commands),
      catalog: ROOT_CATALOG,
      catalogMembersWanted: (servers) => catalogReplicasWanted({ ...servers, first: catalogReplicas }),
      moveLimits: new MoveLimits(systemWorld, { filesPerS: Infinity, bytesPerS: Infinity }),
      knownPrimary: () => null,
      order: async (_, orders) => orders.map(({ file, members }) => this.#change(file, members)),
      changeMembers: async ({ file, members }) => {
        const answer = this.#change(file, members);
        if ('code' in answer) throw new ServiceError(answer.code, answer.message);
      },
      changeCatalogMembers: async (members) => {
        this.onCatalogMove();
        this.catalogMembers = members;
        return { number: 2, members };
      },
      commandsVersion: (server) => COMMANDS_VERSION - (this.earlier.has(server) ? 1 : 0),
      rebalancePeriodMs: REBALANCE_MS,
      partToBalance: (own) => this.partToBalance(own),
      announce: (servers) => void this.announced.push(servers.map(({ id, state }) => `${id} ${state}`)),
    });
  }

  run(command: Command): unknown {
    this.commands += 1;
    return this.catalog.run(command as never);
  }

  /** The wall clock of this server and of the catalog. */
  get wallMs(): number {
    return Number(this.catalog.timeNs / 1_000_000n) + this.nowMs - STARTED_MS;
  }

  register(id: string, freeBytes = 50 * GIB, totalBytes = 100 * GIB): void {
    const room = { storageId: id, freeBytes, totalBytes };
    this.run({ kind: 'server-register', id, url: `http://${id}:1`, ...room });
  }

  file(path: string, sizeBytes = 0): number {
    this.commands += 1;
    const { inode, modifiedNs } = this.catalog.file(path);
    const file = { inode, sizeBytes, modifiedNs, contents: { epoch: 1, seq: 1 } };
    this.run({ kind: 'settle', files: [file] });
    return inode;
  }

  members(inode: number): string[] {
    return [...this.catalog.inode(inode).replicas];
  }

  progress(): object {
    const moving = this.steward.moving();
    assert.ok(moving !== null && moving.current.length === 0);
    return { total: moving.total, done: moving.done, failed: moving.failed };
  }

  /** Runs rounds until none moves anything. */
  async settle(): Promise<void> {
    for (let before = -1; before !== this.moves.length; ) {
      before = this.moves.length;
      await this.steward.runRound();
    }
  }

  #change(file: FileId, members: readonly ServerId[]): MoveAnswer {
    try {
      this.onMove(file);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return { code: error.code, message: error.message };
    }
    this.moves.push([file, [...members]]);
    return { view: this.place(file, members) };
  }

  /** @returns the number of the file's view with these members */
  place(file: number, members: readonly string[]): number {
    const view = { number: this.catalog.inode(file).view + 1, members: [...members] };
    this.run({ kind: 'follow-view', inode: file, view });
    return view.number;
  }
}

test('without commands and changes of servers, rounds query nothing', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const asked = async (): Promise<boolean> => {
    world.queries.splice(0);
    await world.steward.runRound();
    return world.queries.length > 0;
  };
  assert.equal(await asked(), true);
  assert.equal(await asked(), false);
  assert.equal(world.announced.length, 2);

  world.file('/new');
  assert.equal(await asked(), true);
  assert.equal(await asked(), false);

  world.away.add('s1');
  assert.equal(await asked(), true);
  assert.equal(await asked(), false);
  world.nowMs += REPLACE_AFTER_MS;
  assert.equal(await asked(), true);
  world.away.delete('s1');
  assert.equal(await asked(), true);
  assert.equal(await asked(), false);
  // As if something had changed that it does not notice.
  world.nowMs += REPLACE_AFTER_MS;
  assert.equal(await asked(), true);

  world.isPrimary = false;
  await world.steward.runRound();
  world.isPrimary = true;
  assert.equal(await asked(), true);
});

test('while all is quiet, servers are examined every few seconds, and when one connects or disconnects', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const examined = async (rounds: number): Promise<number> => {
    world.examinations = 0;
    for (let round = 0; round < rounds; round++, world.nowMs += 1_000) await world.steward.runRound();
    return world.examinations;
  };
  await examined(1);
  assert.equal(await examined(10), 2);
  world.away.add('s5');
  await examined(1);
  assert.equal(await examined(1), 1);
  assert.equal(await examined(4), 0);
});

test('a catalog that could not be moved is moved while all else is quiet', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  world.onCatalogMove = () => {
    throw new ServiceError('no-majority', 'Its members are away');
  };
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  for (let round = 0; round < 2; round++) await world.steward.runRound();
  assert.ok(world.catalogMembers.includes('s1' as ServerId));
  world.onCatalogMove = () => undefined;
  world.queries.length = 0;
  world.nowMs += 1_000;
  await world.steward.runRound();
  assert.ok(!world.catalogMembers.includes('s1' as ServerId));
  assert.deepEqual(world.queries, []);
});

test('in a healthy cluster nothing moves', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  world.file('/a');
  await world.settle();
  assert.deepEqual(world.moves, []);
  assert.deepEqual(world.progress(), { total: 0, done: 0, failed: 0 });
  assert.equal(world.announced.at(-1)?.length, SERVERS.length);
});

test('a draining server is emptied, of files and of the catalog', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const files = Array.from({ length: 30 }, (_, index) => world.file(`/f${index}`));
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  await world.settle();
  for (const inode of files) {
    const members = world.members(inode);
    assert.equal(members.length, 3);
    assert.ok(members.includes('s2') && members.includes('s3') && !members.includes('s1'));
  }
  assert.equal(world.moves.length, files.length, 'Each file was moved once');
  const shares = files.filter((inode) => world.members(inode).includes('s4')).length;
  assert.ok(shares > 5 && shares < 25, `The others share its files: ${shares} of 30`);
  assert.ok(!world.catalogMembers.includes('s1' as ServerId) && world.catalogMembers.length === 3);
  assert.deepEqual(world.progress(), { total: 30, done: 30, failed: 0 });
});

test('a draining server is emptied also if its counted files are wrong', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const file = world.file('/a');
  world.catalog.db.exec('DELETE FROM placement_counts');
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  await world.settle();
  assert.ok(!world.members(file).includes('s1'));
});

test('files that no server can take are looked at again after a while in proportion to their number, or once one can', async (t) => {
  const world = new World(3, SERVERS.slice(0, 3));
  t.after(() => world.steward.close());
  const files = Array.from({ length: 40 }, (_, index) => world.file(`/f${index}`));
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  const isLookedAt = async () => {
    world.queries.length = 0;
    await world.steward.runRound();
    return world.queries.includes('files-on');
  };
  assert.equal(await isLookedAt(), true);
  world.nowMs += 39;
  assert.equal(await isLookedAt(), false);
  world.nowMs += 1;
  assert.equal(await isLookedAt(), true);
  world.register('s4');
  await world.settle();
  assert.equal(world.moves.length, files.length);
});

test('a round in which nothing is to do costs the same with a hundred times as many files', async () => {
  const few = await measureSteward(200);
  const many = await measureSteward(20_000);
  const show = JSON.stringify([few, many]);
  assert.ok(many.idleRoundMs < 3 * few.idleRoundMs, show);
  assert.ok(many.firstRoundMs < 3 * few.firstRoundMs, `The first one, too: ${show}`);
});

test('the catalog shrinks with the cluster, and grows again', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  for (const id of ['s3', 's4', 's5']) world.run({ kind: 'server-remove', id, dead: true });
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s1', 's2']);
  world.run({ kind: 'server-add', id: 's4', url: 'http://s4:1' });
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's4']);
});

test('the catalog leaves a draining server also if no other can take it, as long as three have it', async (t) => {
  const world = new World(5);
  t.after(() => world.steward.close());
  const turn = async (id: string) => {
    world.run({ kind: 'server-state', id, state: 'draining' });
    await world.steward.runRound();
  };
  await turn('s5');
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's3', 's4']);
  await turn('s4');
  await turn('s3');
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's3'], 'Two survive no failure');
  world.run({ kind: 'server-state', id: 's5', state: 'in' });
  await world.steward.runRound();
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's5']);
});

test('the catalog of a cluster that began with one server is on three once there are three, and on five of five', async (t) => {
  const world = new World(1, ['s1', 's2']);
  t.after(() => world.steward.close());
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s1'], 'Two replicas survive no more failures than one does');
  world.register('s3');
  await world.settle();
  assert.deepEqual(world.catalogMembers.toSorted(), ['s1', 's2', 's3']);
  world.away.add('s3');
  await world.settle();
  world.nowMs += REPLACE_AFTER_MS;
  await world.settle();
  assert.deepEqual(
    world.catalogMembers.toSorted(),
    ['s1', 's2', 's3'],
    'A server that is down stays a member',
  );
  world.away.delete('s3');
  world.register('s4');
  await world.settle();
  assert.equal(world.catalogMembers.length, 3, 'Four survive no more failures than three do');
  world.register('s5');
  await world.settle();
  assert.equal(world.catalogMembers.length, 5);
});

test('a failed move is counted, postponed for longer and longer, and done in the end', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const [good, bad] = [world.file('/good'), world.file('/bad')];
  let tried = 0;
  world.onMove = (file) => {
    if (file !== bad) return;
    tried += 1;
    if (tried < 3) throw new ServiceError('no-majority', 'Too few of its servers are there');
  };
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  await world.settle();
  assert.deepEqual(
    world.moves.map(([file]) => file),
    [good],
  );
  assert.equal(tried, 1, 'It is not tried again at once');
  assert.deepEqual(world.progress(), { total: 2, done: 1, failed: 1 });
  world.nowMs += 1_500;
  await world.settle();
  assert.equal(tried, 2);
  world.nowMs += 1_500;
  await world.settle();
  assert.equal(tried, 2, 'The second pause is longer');
  world.nowMs += 1_500;
  await world.settle();
  assert.deepEqual(
    world.moves.map(([file]) => file),
    [good, bad],
  );
  assert.deepEqual(world.progress(), { total: 2, done: 2, failed: 2 });
});

test('an unreachable server is replaced after a while, which starts again with another primary', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const file = world.file('/a');
  world.away.add('s2');
  await world.settle();
  world.nowMs += REPLACE_AFTER_MS - 1;
  await world.settle();
  assert.deepEqual(world.moves, []);
  world.isPrimary = false;
  await world.steward.runRound();
  assert.equal(world.steward.moving(), null);
  world.isPrimary = true;
  await world.steward.runRound();
  world.nowMs += REPLACE_AFTER_MS - 1;
  await world.settle();
  assert.deepEqual(world.moves, [], 'This primary has not known it as down for long enough');
  world.nowMs += 1;
  await world.settle();
  assert.ok(!world.members(file).includes('s2'));
  assert.equal(world.members(file).length, 3);
});

test('the catalog of three is on five of five servers, and on as many as the setting says', async (t) => {
  const world = new World(3, ['s1', 's2', 's3', 's4']);
  t.after(() => world.steward.close());
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's3'], 'Four survive no more failures than three do');
  world.away.add('s5');
  world.register('s5');
  await world.settle();
  assert.equal(world.catalogMembers.length, 3, 'The fifth server is not connected');
  world.away.delete('s5');
  await world.settle();
  assert.deepEqual(world.catalogMembers.toSorted(), SERVERS);
  world.run({ kind: 'cluster-set', catalogReplicas: 3 });
  await world.settle();
  assert.equal(world.catalogMembers.length, 3);
  world.run({ kind: 'cluster-set', catalogReplicas: 7 });
  await world.settle();
  assert.equal(world.catalogMembers.length, 5, 'As many as there are servers for');
  for (const id of ['s6', 's7']) world.register(id);
  await world.settle();
  assert.equal(world.catalogMembers.length, 7);
});

test('the catalog does not grow to servers of an earlier release, and leaves none that are members', async (t) => {
  const world = new World(3);
  t.after(() => world.steward.close());
  for (const id of ['s3', 's4', 's5']) world.earlier.add(id);
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s1', 's2', 's3']);
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  world.earlier.delete('s5');
  await world.settle();
  assert.deepEqual(world.catalogMembers, ['s2', 's3', 's5'], 'Not s4');
  world.run({ kind: 'server-state', id: 's1', state: 'in' });
  world.earlier.clear();
  await world.settle();
  assert.deepEqual(world.catalogMembers.toSorted(), SERVERS, 'All are upgraded');
});

test('catalog replicas are added in zones that have none', async (t) => {
  const world = new World(3, []);
  t.after(() => world.steward.close());
  const zones = { s1: 'a', s2: 'b', s3: 'c', s4: 'a', s5: 'd', s6: 'e' };
  for (const [id, zone] of Object.entries(zones)) {
    world.register(id);
    world.run({ kind: 'server-zone', id, zone });
  }
  await world.settle();
  assert.deepEqual(world.catalogMembers.toSorted(), ['s1', 's2', 's3', 's5', 's6']);
});

test('a server in maintenance is not replaced, and only after its end is it away for --replace-after', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const file = world.file('/a');
  await world.settle();
  const begin = { kind: 'server-maintenance', id: 's2', forMs: 3 * REPLACE_AFTER_MS } as const;
  world.run(begin);
  world.away.add('s2');
  const passes = async (ms: number) => {
    world.nowMs += ms;
    await world.settle();
  };
  await passes(2 * REPLACE_AFTER_MS);
  assert.deepEqual(world.moves, []);
  // The next primary knows it, too.
  world.isPrimary = false;
  await world.steward.runRound();
  world.isPrimary = true;
  await passes(0);
  await passes(REPLACE_AFTER_MS - 1);
  assert.deepEqual(world.moves, []);
  await passes(REPLACE_AFTER_MS);
  assert.deepEqual(world.moves, [], 'It has ended, and the server has not been away for long since');
  await passes(1);
  assert.ok(!world.members(file).includes('s2'));
});

test('files follow the number of replicas of their volume, and their own', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const [a, b] = [world.file('/a'), world.file('/b')];
  await world.settle();
  world.run({ kind: 'set-replicas', inode: b, count: 1 });
  world.run({ kind: 'volume-set', name: 'main', replicas: 5 });
  await world.settle();
  assert.deepEqual([world.members(a).length, world.members(b).length], [5, 1]);
  world.run({ kind: 'volume-set', name: 'main', replicas: 2 });
  await world.settle();
  assert.deepEqual([world.members(a).length, world.members(b).length], [2, 1]);
  world.run({ kind: 'set-replicas', inode: a, count: 4 });
  await world.settle();
  assert.equal(world.members(a).length, 4, 'In the next round');
});

test('if more replicas are wanted than there are servers, as many as possible are kept, and completed with a new server', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  for (const id of ['s4', 's5']) world.run({ kind: 'server-remove', id, dead: true });
  const file = world.file('/a');
  world.run({ kind: 'volume-set', name: 'main', replicas: 4 });
  await world.settle();
  assert.equal(world.members(file).length, 3);
  world.run({ kind: 'server-add', id: 's4', url: 'http://s4:1' });
  await world.settle();
  assert.deepEqual(world.members(file).toSorted(), ['s1', 's2', 's3', 's4']);
});

test('the fullest disk gives to the emptiest, at most as much as was measured, and only if nothing else is to be moved', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const files = Array.from({ length: 8 }, (_, index) => world.file(`/f${index}`, 2 * GIB));
  world.register('s1', 10 * GIB);
  world.register('s5', 90 * GIB);
  await world.settle();
  const moved = files.filter((inode) => world.members(inode).includes('s5'));
  assert.ok(moved.length > 0 && world.moves.every(([, members]) => !members.includes('s1')));
  assert.equal(moved.length, world.moves.length);
  assert.ok(moved.length <= 8, 'A quarter of 80 GiB is ten files of two');
  await world.settle();
  assert.equal(world.moves.length, moved.length, 'Until servers have reported their free space again');
});

test('several catalogs together even out a difference between disks: each moves as much as it has of the fuller one', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  // 18 of the 90 GiB on the fullest disk are of this catalog: it moves a fifth of 20 GiB, one file of three GiB.
  const files = Array.from({ length: 6 }, (_, index) => world.file(`/f${index}`, 3 * GIB));
  const parts: number[] = [];
  world.partToBalance = (own) => {
    parts.push(own);
    return own;
  };
  world.register('s1', 10 * GIB);
  world.register('s5', 90 * GIB);
  await world.settle();
  assert.equal(files.filter((inode) => world.members(inode).includes('s5')).length, 1);
  assert.deepEqual([world.moves.length, parts[0]], [1, 0.2]);
  world.nowMs += REBALANCE_MS;
  await world.settle();
  assert.equal(world.moves.length, 2);
});

test('a file that is removed meanwhile is no failure', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  world.file('/a');
  world.onMove = (file) => {
    if (world.catalog.query({ kind: 'placed', inodes: [file] }).files.length > 0)
      world.run({ kind: 'unlink', place: main('/a') });
    throw new ServiceError('not-found', 'There is no such file');
  };
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  await world.steward.runRound();
  assert.equal(world.steward.moving()?.failed, 0);
});

test('a plan without progress is continued after a while: at once if its server leaves', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const [a, b] = [world.file('/a'), world.file('/b')];
  const plan = (inode: number, server: string) =>
    world.run({ kind: 'plan-members', inode, view: 1, mark: { epoch: 1, turn: 1 }, members: [server] });
  plan(a, 's4');
  plan(b, 's5');
  await world.settle();
  world.run({ kind: 'server-state', id: 's5', state: 'draining' });
  await world.settle();
  assert.deepEqual(world.moves, [], 'Their changes may be under way');
  world.nowMs += 5_000;
  await world.settle();
  assert.deepEqual(world.moves, [[b, world.members(b)]]);
  world.nowMs += 120_000;
  await world.settle();
  assert.deepEqual(world.moves.slice(1), [[a, world.members(a)]]);
});

test('replicas that were placed together while a zone was away are spread again once it has been back for long', async (t) => {
  const world = new World(3, ['s1', 's2', 's3']);
  t.after(() => world.steward.close());
  for (const [id, zone] of [
    ['s1', 'x'],
    ['s2', 'x'],
    ['s3', 'y'],
  ] as const)
    world.run({ kind: 'server-zone', id, zone });
  const files = Array.from({ length: 5 }, (_, index) => world.file(`/f${index}`));
  await world.settle();
  world.register('s4');
  world.run({ kind: 'server-zone', id: 's4', zone: 'z' });
  await world.settle();
  world.nowMs += STEADY_MS - 1;
  await world.settle();
  assert.deepEqual(world.moves, [], 'It may be away again soon');
  world.nowMs += 1;
  await world.settle();
  for (const inode of files) {
    const members = world.members(inode);
    assert.ok(members.includes('s3') && members.includes('s4'), `${members}`);
  }
  assert.equal(world.moves.length, files.length);
  world.away.add('s4');
  await world.settle();
  world.away.delete('s4');
  world.nowMs += STEADY_MS;
  await world.settle();
  assert.equal(world.moves.length, files.length, 'Nothing oscillates');
});

test('a new server gets its share of files, of empty ones too, until the numbers are even', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  for (const id of ['s4', 's5']) world.run({ kind: 'server-remove', id, dead: true });
  const files = Array.from({ length: 400 }, (_, index) => world.file(`/f${index}`));
  await world.settle();
  assert.deepEqual(world.moves, []);
  world.run({ kind: 'server-add', id: 's4', url: 'http://s4:1' });
  world.register('s4');
  await world.settle();
  const counts = ['s1', 's2', 's3', 's4'].map(
    (id) => files.filter((inode) => world.members(inode).includes(id)).length,
  );
  assert.equal(world.moves.length, counts[3]);
  assert.ok(
    counts.every((count) => count >= 297 && count <= 303),
    `${counts}`,
  );
  await world.settle();
  assert.equal(world.moves.length, counts[3]);
});

test('a pass that takes too long continues where it ended, also behind files that cannot be moved', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const files = Array.from({ length: 1_050 }, (_, index) => world.file(`/f${index}`));
  const good = new Set(files.slice(-50));
  world.onMove = (file) => {
    if (!good.has(file)) throw new ServiceError('no-majority', 'Too few of its servers are there');
  };
  world.run({ kind: 'server-state', id: 's1', state: 'draining' });
  world.pageMs = 40_000;
  for (let round = 0; round < 3; round++) {
    await world.steward.runRound();
    world.nowMs += 1_000;
  }
  assert.equal(world.moves.length, good.size, 'The third part has the last 50 files');
  world.pageMs = 0;
  world.onMove = () => undefined;
  world.nowMs += 120_000;
  await world.steward.runRound();
  assert.ok(
    files.every((inode) => !world.members(inode).includes('s1')),
    'Then the list begins again',
  );
});

test('replicas are spread over zones in several parts, each of which examines the files that follow', async (t) => {
  const world = new World(3, ['s1', 's2', 's3', 's4']);
  t.after(() => world.steward.close());
  const zones = { s1: 'x', s2: 'x', s3: 'y', s4: 'z' };
  for (const [id, zone] of Object.entries(zones)) world.run({ kind: 'server-zone', id, zone });
  const files = Array.from({ length: 1_050 }, (_, index) => world.file(`/f${index}`));
  for (const inode of files.slice(0, -50)) world.place(inode, [inode % 2 === 0 ? 's1' : 's2', 's3', 's4']);
  // Half of the space for half of the files: nothing is to be balanced.
  for (const id of ['s1', 's2']) world.register(id, 25 * GIB, 50 * GIB);
  await world.settle();
  world.pageMs = 25_000;
  world.nowMs += STEADY_MS;
  await world.steward.runRound();
  assert.equal(world.moves.length, 0, 'Its time is over after the first pages');
  world.nowMs += 2_000;
  await world.steward.runRound();
  for (const inode of files.slice(-50)) assert.ok(world.members(inode).includes('s4'));
  assert.equal(world.moves.length, 50);
  world.queries.length = 0;
  world.nowMs += 1_000;
  await world.steward.runRound();
  assert.ok(!world.queries.includes('files-on'), 'The pass is complete');
});

test('files follow the labels and zones of their volume, and of servers', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const files = Array.from({ length: 12 }, (_, index) => world.file(`/f${index}`));
  const label = (...ids: string[]) => {
    for (const id of ids) world.run({ kind: 'server-label', id, labels: ['ssd'] });
  };
  const areOn = (...ids: string[]) =>
    assert.ok(files.every((inode) => world.members(inode).toSorted().join() === ids.join()));
  label('s3', 's4', 's5');
  await world.settle();
  assert.deepEqual(world.moves, []);
  world.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  await world.settle();
  areOn('s3', 's4', 's5');
  assert.equal(world.moves.length, files.length, 'Each at once');
  world.run({ kind: 'server-label', id: 's3', labels: [] });
  label('s1');
  await world.settle();
  areOn('s1', 's4', 's5');
  for (const id of ['s1', 's2', 's3']) world.run({ kind: 'server-zone', id, zone: 'a' });
  world.run({ kind: 'volume-set', name: 'main', labels: [], zones: ['a'] });
  await world.settle();
  areOn('s1', 's2', 's3');
  assert.deepEqual(world.steward.shortages, []);
  assert.deepEqual(world.catalogMembers.toSorted(), SERVERS, 'Names are on any server');
});

test('replicas stay where they are while too few servers are allowed, which is reported', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const file = world.file('/a');
  world.run({ kind: 'volume-set', name: 'main', labels: ['ssd'], force: true });
  await world.settle();
  assert.deepEqual(world.moves, []);
  const shortage = (there: string) =>
    `Volume "main" lacks servers for 3 replicas of its files: there ${there} with label ssd`;
  assert.deepEqual(world.steward.shortages, [shortage('are 0 servers')]);
  world.run({ kind: 'server-label', id: 's5', labels: ['ssd'] });
  await world.settle();
  assert.equal(world.members(file).length, 3);
  assert.ok(world.members(file).includes('s5'));
  assert.deepEqual(world.steward.shortages, [shortage('is 1 server')]);
  for (const id of ['s3', 's4']) world.run({ kind: 'server-label', id, labels: ['ssd'] });
  await world.settle();
  assert.deepEqual(world.members(file).toSorted(), ['s3', 's4', 's5']);
  assert.deepEqual(world.steward.shortages, []);
  world.away.add('s3');
  await world.settle();
  world.nowMs += REPLACE_AFTER_MS;
  await world.settle();
  assert.deepEqual(world.members(file).toSorted(), ['s3', 's4', 's5'], 'Not to one without the label');
  assert.deepEqual(world.steward.shortages, [shortage('are 2 servers')]);
  world.run({ kind: 'server-label', id: 's1', labels: ['ssd'] });
  await world.settle();
  assert.deepEqual(world.members(file).toSorted(), ['s1', 's4', 's5']);
  world.isPrimary = false;
  await world.steward.runRound();
  assert.deepEqual(world.steward.shortages, []);
});

test('files that are allowed nowhere else cost no more rounds than others', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  for (let index = 0; index < 20; index++) world.file(`/f${index}`);
  world.run({ kind: 'volume-set', name: 'main', labels: ['ssd'], force: true });
  await world.settle();
  world.queries.length = 0;
  world.commands += 1;
  await world.steward.runRound();
  assert.deepEqual(world.queries, [
    'servers',
    'volumes',
    'placement-classes',
    'plans',
    'files-miscounted',
    'files-misplaced',
  ]);
  assert.deepEqual(world.progress(), { total: 0, done: 0, failed: 0 });
});

test('files follow the class of their directory', async (t) => {
  const world = new World();
  t.after(() => world.steward.close());
  const fast = world.catalog.directory('/fast').inode;
  const set = (labels: string[], replicas: number | null = null) =>
    world.run({ kind: 'set-placement', inode: fast, class: { labels, zones: [], replicas }, force: true });
  for (const id of ['s3', 's4']) world.run({ kind: 'server-label', id, labels: ['ssd'] });
  set([]);
  const [inside, outside] = [world.file('/fast/a'), world.file('/b')];
  const before = world.members(outside);
  await world.settle();
  assert.deepEqual(world.moves, []);
  set(['ssd'], 2);
  await world.settle();
  assert.deepEqual(world.members(inside).toSorted(), ['s3', 's4']);
  set(['ssd'], 3);
  await world.settle();
  assert.deepEqual(world.members(inside).toSorted(), ['s3', 's4'], 'Not elsewhere');
  assert.deepEqual(world.steward.shortages, [
    `Directory ${fast} of volume "main" (see "leasehold placement ls") lacks servers for 3 replicas of its files: there are 2 servers with label ssd`,
  ]);
  world.run({ kind: 'server-label', id: 's5', labels: ['ssd'] });
  await world.settle();
  assert.deepEqual(world.members(inside).toSorted(), ['s3', 's4', 's5']);
  assert.deepEqual(world.steward.shortages, []);
  assert.deepEqual(world.members(outside), before);
});

test('replicas are spread to a zone once a server there is allowed', async (t) => {
  const world = new World(3, []);
  t.after(() => world.steward.close());
  const zones = { s1: 'x', s2: 'x', s3: 'y', s4: 'y' };
  for (const [id, zone] of Object.entries(zones)) {
    world.register(id);
    world.run({ kind: 'server-zone', id, zone });
    if (zone === 'x') world.run({ kind: 'server-label', id, labels: ['ssd'] });
  }
  world.run({ kind: 'volume-set', name: 'main', labels: ['ssd'], replicas: 2 });
  const file = world.file('/a');
  world.place(file, ['s1', 's2']);
  await world.settle();
  world.nowMs += STEADY_MS;
  await world.settle();
  assert.deepEqual(world.moves, []);
  world.run({ kind: 'server-label', id: 's4', labels: ['ssd'] });
  await world.settle();
  assert.ok(world.members(file).includes('s4'), `${world.members(file)}`);
});
