import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { MoveLimits } from '../../server/membership/move-limits.ts';
import type { MoveAnswer, MoveOrder } from '../../server/membership/move-orders.ts';
import { type Move, type MoveOutcome, Mover } from '../../server/membership/mover.ts';
import { systemWorld } from '../../world/system-world.ts';

const ids = (...names: string[]) => names as ServerId[];
const UNBOUNDED = { filesPerS: Infinity, bytesPerS: Infinity };

interface Ordered {
  readonly server: ServerId;
  readonly orders: readonly MoveOrder[];
  answer(answers: readonly MoveAnswer[] | null): void;
}

/** A mover whose orders wait until the test answers them. */
class Moves {
  readonly ordered: Ordered[] = [];
  readonly single: FileId[] = [];
  readonly deleted = new Set<number>();
  readonly away = new Set<ServerId>();
  readonly primaries = new Map<FileId, ServerId>();
  readonly outcomes = new Map<FileId, MoveOutcome>();
  isPrimary = true;
  nowMs = 0;
  readonly mover: Mover;

  constructor(moveRates = UNBOUNDED) {
    this.mover = new Mover({
      world: { ...systemWorld, nowMs: () => this.nowMs },
      log: pino({ level: 'silent' }),
      moveLimits: new MoveLimits({ nowMs: () => this.nowMs }, moveRates),
      isCatalogPrimary: () => this.isPrimary,
      isConnected: (server) => !this.away.has(server),
      knownPrimary: (file) => this.primaries.get(file) ?? null,
      order: (server, orders) =>
        new Promise((answer) => {
          this.ordered.push({ server, orders, answer });
        }),
      changeMembers: async ({ file }) => {
        this.single.push(file);
        if (this.deleted.has(file)) throw new ServiceError('not-found', 'It is deleted');
      },
    });
  }

  moveAll(moves: readonly Move[], untilMs?: number): Promise<number> {
    const generator = async function* (): AsyncGenerator<Move> {
      yield* moves;
    };
    return this.mover.moveAll(generator(), ({ file }, outcome) => this.outcomes.set(file, outcome), untilMs);
  }

  /** Waits until the mover has given the orders that it can give now. */
  async whenOrdered(): Promise<Ordered[]> {
    for (let ticks = 0; ticks < 20; ticks++) await systemWorld.nextTick();
    return this.ordered.splice(0);
  }
}

function move(file: number, from: ServerId[], members: ServerId[], sizeBytes = 0): Move {
  return { file: file as FileId, from, members, decidedBy: 2, sizeBytes };
}

function moves(count: number, from: ServerId[], members: ServerId[], first = 1, sizeBytes = 0): Move[] {
  return Array.from({ length: count }, (_, place) => move(first + place, from, members, sizeBytes));
}

function done({ orders, answer }: Ordered): void {
  answer(orders.map(() => ({ view: 3 })));
}

function countAt(ordered: readonly Ordered[], server: string, all: readonly Move[]): number {
  const files = new Set(ordered.flatMap(({ orders }) => orders.map(({ file }) => file)));
  return all.filter(
    ({ file, from, members }) => files.has(file) && [...from, ...members].includes(server as ServerId),
  ).length;
}

test('many files are ordered together from members that stay, and each of those gets a share', async () => {
  const world = new Moves();
  const all = moves(60, ids('a', 'b', 'c'), ids('b', 'c', 'd'));
  const moving = world.moveAll(all);
  const ordered = await world.whenOrdered();
  assert.deepEqual(ordered.map(({ server }) => server).toSorted(), ['b', 'c']);
  assert.ok(ordered.every(({ orders }) => orders.length === 30));
  assert.ok(ordered.every(({ orders }) => orders.every(({ decidedBy }) => decidedBy === 2)));
  assert.equal(world.mover.moving.length, 60);
  for (const one of ordered) done(one);
  assert.equal(await moving, 60);
  assert.deepEqual([world.mover.progress.movedCount, world.mover.moving.length], [60, 0]);
});

test('the limit is that of each server: moves of other servers do not wait', async () => {
  const world = new Moves();
  const first = moves(150, ids('a', 'b', 'c'), ids('b', 'c', 'd'));
  const others = moves(50, ids('e', 'f', 'g'), ids('f', 'g', 'h'), 1_000);
  const moving = world.moveAll([...first, ...others]);
  const ordered = await world.whenOrdered();
  assert.equal(countAt(ordered, 'a', first), 96);
  assert.equal(countAt(ordered, 'e', others), 50);
  for (const one of ordered) done(one);
  for (const one of await world.whenOrdered()) done(one);
  assert.equal(await moving, 200);
});

test('servers get and give no more files and bytes per second than their rates permit', async () => {
  for (const [rates, sizeBytes] of [
    [{ filesPerS: 40, bytesPerS: Infinity }, 1],
    [{ filesPerS: Infinity, bytesPerS: 40_000 }, 1_000],
  ] as const) {
    const world = new Moves(rates);
    const all = moves(30, ids('a', 'b'), ids('b', 'c'), 1, sizeBytes);
    const moving = world.moveAll(all);
    const burst = await world.whenOrdered();
    assert.equal(countAt(burst, 'a', all), 11, 'A quarter of a second, and the file that exceeds it');
    for (const one of burst) done(one);
    assert.equal((await world.whenOrdered()).length, 0);
    world.nowMs += 250;
    await systemWorld.sleep(60);
    const second = await world.whenOrdered();
    assert.equal(countAt(second, 'a', all), 10);
    for (const one of second) done(one);
    world.nowMs += 1_000;
    await systemWorld.sleep(60);
    for (const one of await world.whenOrdered()) done(one);
    assert.equal(await moving, 30);
  }
});

test('only what the answer says was moved counts as moved; other files are tried again after a pause', async () => {
  const world = new Moves();
  const all = moves(5, ids('a', 'b', 'c'), ids('b', 'c', 'd'));
  world.deleted.add(3);
  for (const { file } of all) world.primaries.set(file, 'b' as ServerId);
  const moving = world.moveAll(all);
  const [order] = await world.whenOrdered();
  order?.answer([
    { view: 3 },
    { code: 'no-majority', message: 'No majority' },
    { code: 'not-found', message: 'It is deleted' },
    { code: 'busy', message: 'Its members have just changed' },
    { code: 'not-found', message: 'Its replica here is being removed' },
  ]);
  assert.equal(await moving, 2);
  const outcomes = all.map(({ file }) => world.outcomes.get(file));
  assert.deepEqual(outcomes, ['moved', 'put-off', 'gone', 'put-off', 'moved']);
  assert.deepEqual(world.single, [3, 5], 'Whether these files are deleted is not for one server to say');
  assert.deepEqual([world.mover.progress.movedCount, world.mover.progress.failedCount], [2, 1]);
  assert.equal(await world.moveAll(all.slice(1, 2)), 0, 'It is paused');
  world.nowMs += 1_001;
  const again = world.moveAll(all.slice(1, 2));
  for (const one of await world.whenOrdered()) done(one);
  assert.equal(await again, 1);
});

test('a file without a reachable majority waits, and the others are moved', async () => {
  const world = new Moves();
  for (const server of ids('x', 'y')) world.away.add(server);
  const moving = world.moveAll([
    move(1, ids('a', 'x', 'y'), ids('a', 'b', 'c')),
    move(2, ids('a', 'b', 'x'), ids('a', 'b', 'c')),
  ]);
  const ordered = await world.whenOrdered();
  assert.deepEqual(
    ordered.flatMap(({ orders }) => orders.map(({ file }) => file)),
    [2],
  );
  for (const one of ordered) done(one);
  assert.equal(await moving, 1);
  assert.equal(world.outcomes.get(1 as FileId), 'put-off');
});

test('the primary of a file gets its order; a file of another primary, one that moves long, and those of an earlier release are moved singly', async () => {
  const world = new Moves();
  world.primaries.set(1 as FileId, 'c' as ServerId).set(2 as FileId, 'c' as ServerId);
  world.primaries.set(3 as FileId, 'b' as ServerId).set(4 as FileId, 'c' as ServerId);
  const moving = world.moveAll(moves(4, ids('a', 'b', 'c'), ids('b', 'c', 'd')));
  const ordered = await world.whenOrdered();
  const filesOf = (server: string) =>
    ordered.find((one) => one.server === server)?.orders.map(({ file }) => file as number);
  assert.deepEqual([filesOf('b'), filesOf('c')], [[3], [1, 2, 4]]);
  const [toB, toC] = ['b', 'c'].map((server) => ordered.find((one) => one.server === server));
  toB?.answer(null);
  toC?.answer([
    { code: 'not-primary', message: 'Server b is', primary: 'b' },
    { view: 3 },
    { code: 'unknown', message: 'It is still moving' },
  ]);
  assert.equal(await moving, 4);
  assert.deepEqual(world.single.toSorted(), [1, 3, 4]);
});

test('a server that is no longer the primary of the catalog begins no more moves', async () => {
  const world = new Moves();
  const moving = world.moveAll(moves(300, ids('a', 'b'), ids('b', 'c')));
  const ordered = await world.whenOrdered();
  world.isPrimary = false;
  for (const one of ordered) done(one);
  assert.equal(await moving, 96);
  assert.equal((await world.whenOrdered()).length, 0);
});

test('a failed request puts its files off', async () => {
  const world = new Moves();
  const mover = new Mover({
    world: systemWorld,
    log: pino({ level: 'silent' }),
    moveLimits: new MoveLimits(systemWorld, UNBOUNDED),
    isCatalogPrimary: () => true,
    isConnected: () => true,
    knownPrimary: () => null,
    order: () => Promise.reject(new ServiceError('unknown', 'The connection was lost')),
    changeMembers: async () => assert.fail('Its outcome is unknown'),
  });
  const outcomes: MoveOutcome[] = [];
  const generator = async function* (): AsyncGenerator<Move> {
    yield* moves(2, ids('a', 'b'), ids('b', 'c'));
  };
  assert.equal(await mover.moveAll(generator(), (_, outcome) => outcomes.push(outcome)), 0);
  assert.deepEqual(outcomes, ['put-off', 'put-off']);
  assert.equal(world.mover.progress.failedCount, 0);
});

const SLOW = { filesPerS: Infinity, bytesPerS: 1_000 };
/** A thousand seconds at the slow rate. */
const HUGE_BYTES = 1_000_000;

test('a move that waits for a limit at the end of its time is put off, and the others end', async () => {
  const world = new Moves(SLOW);
  const moving = world.moveAll(moves(3, ids('a', 'b'), ids('b', 'c'), 1, HUGE_BYTES), 60_000);
  const [first, ...more] = await world.whenOrdered();
  assert.deepEqual([first?.orders.map(({ file }) => file), more], [[1], []]);
  world.nowMs += 60_000;
  if (first !== undefined) done(first);
  await world.whenOrdered();
  assert.deepEqual([...world.outcomes.values()], ['moved', 'put-off', 'put-off']);
  assert.equal(await moving, 1);
});

test('a move that fails at once, or whose file is deleted, uses no bytes of the limits', async () => {
  for (const code of ['not-found', 'no-majority'] as const) {
    const world = new Moves(SLOW);
    world.deleted.add(1);
    const moving = world.moveAll(moves(2, ids('a', 'b'), ids('b', 'c'), 1, HUGE_BYTES));
    const [first] = await world.whenOrdered();
    first?.answer([{ code, message: 'It is not moved' }]);
    const [second] = await world.whenOrdered();
    assert.deepEqual(
      second?.orders.map(({ file }) => file),
      [2],
      code,
    );
    if (second !== undefined) done(second);
    assert.equal(await moving, 1);
  }
});

test('a server that is down limits nothing, nor does a server that neither sends nor receives bytes', async () => {
  const world = new Moves({ ...SLOW, filesPerS: 4 });
  for (const server of ids('x')) world.away.add(server);
  for (const [file, primary] of [
    [1, 'a'],
    [2, 'd'],
    [4, 'a'],
  ] as const)
    world.primaries.set(file as FileId, primary as ServerId);
  // A quarter of a second permits two files.
  const moving = world.moveAll([
    move(1, ids('a', 'b', 'x'), ids('a', 'b', 'c'), HUGE_BYTES),
    move(2, ids('d', 'e', 'x'), ids('d', 'e', 'f'), HUGE_BYTES),
    move(5, ids('g', 'h', 'x'), ids('g', 'h', 'i'), HUGE_BYTES),
    // Server c only deletes its replica.
    move(3, ids('c', 'e'), ids('e'), HUGE_BYTES),
    // Server a sends the first file.
    move(4, ids('a', 'b', 'x'), ids('a', 'b', 'e'), HUGE_BYTES),
  ]);
  const ordered = await world.whenOrdered();
  const files = ordered.flatMap(({ orders }) => orders.map(({ file }) => file as number));
  assert.deepEqual(files.toSorted(), [1, 2, 3, 5]);
  world.isPrimary = false;
  for (const one of ordered) done(one);
  assert.equal(await moving, 4);
});
