import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LOCK_END } from '../../base/lock-end.ts';
import { LockTable } from '../../server/file/lock-table.ts';
import type { LockChangeOfClient } from '../../wire/lock-api.ts';

function wish(
  client: number,
  type: LockChangeOfClient['type'],
  start: number | bigint = 0,
  end: number | bigint = LOCK_END,
  owner = 'o',
): LockChangeOfClient {
  return { client, owner, kind: 'posix', type, start: BigInt(start), end: BigInt(end), pid: client };
}

function ranges(table: LockTable, client: number): string[] {
  return table.list(client).map(({ type, start, end }) => `${type} ${start}-${end}`);
}

test('releasing a part leaves what is before and after it', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 99));
  table.set(wish(1, 'unlock', 40, 59));
  assert.deepEqual(ranges(table, 1), ['exclusive 0-39', 'exclusive 60-99']);
  assert.equal(table.conflict(wish(2, 'exclusive', 40, 59)), null);
  assert.equal(table.conflict(wish(2, 'shared', 39, 40))?.client, 1);
  assert.equal(table.size, 2);
});

test('a part changes its type separately, and adjacent ranges of one type are merged', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 99));
  table.set(wish(1, 'shared', 50, LOCK_END));
  assert.deepEqual(ranges(table, 1), ['exclusive 0-49', `shared 50-${LOCK_END}`]);
  table.set(wish(2, 'shared', 60, 70));
  assert.notEqual(table.conflict(wish(1, 'exclusive', 0, 99)), null, 'Another client reads there');
  table.set(wish(1, 'shared', 0, 49));
  assert.deepEqual(ranges(table, 1), [`shared 0-${LOCK_END}`]);
});

test('owners of one client conflict with each other, and kinds do not', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 9, 'a'));
  assert.equal(table.conflict(wish(1, 'shared', 5, 5, 'b'))?.owner, 'a');
  assert.equal(table.conflict({ ...wish(2, 'exclusive'), kind: 'flock' }), null);
});

test('a lock of the whole file is released before it changes its type', () => {
  const table = new LockTable();
  const flock = (client: number, type: LockChangeOfClient['type']): LockChangeOfClient => ({
    ...wish(client, type),
    kind: 'flock',
  });
  table.set(flock(1, 'shared'));
  table.set(flock(2, 'shared'));
  table.beginFlock(flock(1, 'exclusive'));
  assert.deepEqual(ranges(table, 1), [], 'As flock(2) says, even if the new type is not granted');
  assert.notEqual(table.conflict(flock(1, 'exclusive')), null);
});

test('requests are served in their order, and a disconnected client keeps its place', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 9));
  const places = [2, 3, 4].map((client) => table.addWaiter(wish(client, 'exclusive', 0, 9), null));
  table.set(wish(1, 'unlock'));
  const [away, next] = places as [number, number];
  assert.deepEqual(
    table.grantWaiting(({ place }) => place !== away).map(({ place }) => place),
    [next],
  );
  table.set(wish(3, 'unlock'));
  assert.deepEqual(
    table.grantWaiting(() => true).map(({ place }) => place),
    [away],
  );
  assert.equal(table.waiterCount, 1);
});

test('all that wait for a shared lock are woken together', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 9));
  for (const client of [2, 3]) table.addWaiter(wish(client, 'shared', 0, 9), null);
  table.set(wish(1, 'shared', 0, 9));
  assert.equal(table.grantWaiting(() => true).length, 2);
});

test('a request that would wait for itself is refused, over any number of others', () => {
  const table = new LockTable();
  for (const client of [1, 2, 3]) table.set(wish(client, 'exclusive', client, client));
  table.addWaiter(wish(1, 'exclusive', 2, 2), null);
  table.addWaiter(wish(2, 'exclusive', 3, 3), null);
  assert.equal(table.wouldDeadlock(wish(3, 'exclusive', 1, 1)), true);
  assert.equal(table.wouldDeadlock(wish(4, 'exclusive', 1, 1)), false);
  assert.equal(table.wouldDeadlock({ ...wish(3, 'exclusive', 1, 1), kind: 'flock' }), false);
});

test('a removed client leaves nothing', () => {
  const table = new LockTable();
  table.set(wish(1, 'exclusive', 0, 9, 'a'));
  table.set(wish(1, 'exclusive', 10, 19, 'b'));
  table.addWaiter(wish(1, 'exclusive', 0, 9, 'b'), null);
  table.set(wish(2, 'shared', 30, 39));
  table.removeClient(1);
  assert.deepEqual([table.size, table.waiterCount, table.list().length], [1, 0, 1]);
});

const BYTES = 24;
const OWNERS = ['1/a', '1/b', '2/a'];
type Cell = 'shared' | 'exclusive';

/** One letter per byte and owner: what the ranges mean, without ranges. */
class Bytes {
  readonly #cells = new Map(
    OWNERS.map((owner) => [owner, new Array<Cell | undefined>(BYTES).fill(undefined)]),
  );

  set(owner: string, type: LockChangeOfClient['type'], start: number, end: number): boolean {
    if (type !== 'unlock' && this.blocks(owner, type, start, end)) return false;
    for (let at = start; at <= end; at++) this.of(owner)[at] = type === 'unlock' ? undefined : type;
    return true;
  }

  blocks(owner: string, type: Cell, start: number, end: number): boolean {
    return OWNERS.some(
      (other) =>
        other !== owner &&
        this.of(other)
          .slice(start, end + 1)
          .some((cell) => cell !== undefined && (cell === 'exclusive' || type === 'exclusive')),
    );
  }

  of(owner: string): (Cell | undefined)[] {
    return this.#cells.get(owner) as (Cell | undefined)[];
  }
}

test('ranges mean the same as a letter for each byte would', () => {
  const step = fc.record({
    owner: fc.constantFrom(...OWNERS),
    type: fc.constantFrom('shared', 'exclusive', 'unlock') as fc.Arbitrary<LockChangeOfClient['type']>,
    from: fc.nat(BYTES - 1),
    length: fc.nat(BYTES),
  });
  let refused = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const table = new LockTable();
      const bytes = new Bytes();
      for (const { owner: name, type, from, length } of steps) {
        const [client, owner] = name.split('/') as [string, string];
        const end = Math.min(BYTES - 1, from + length);
        const asked = wish(Number(client), type, from, end, owner);
        const free = table.conflict(asked) === null;
        if (free) table.set(asked);
        else refused++;
        assert.equal(bytes.set(name, type, from, end), free);
        for (const each of OWNERS) {
          const [whose, own] = each.split('/') as [string, string];
          const cells = new Array<Cell | undefined>(BYTES).fill(undefined);
          let last = -2;
          let lastType: Cell | undefined;
          for (const lock of table.list(Number(whose)).filter((one) => one.owner === own)) {
            assert.ok(lock.start <= lock.end && lock.start > last, 'Sorted and disjoint');
            assert.ok(
              lock.start > last + 1 || lock.type !== lastType,
              'Adjacent ranges of one type are merged',
            );
            cells.fill(lock.type, Number(lock.start), Number(lock.end) + 1);
            last = Number(lock.end);
            lastType = lock.type;
            assert.ok(table.covers({ ...lock }), 'It has what it was granted');
          }
          assert.deepEqual(cells, bytes.of(each));
        }
        assert.equal(table.size, table.list().length);
      }
    }),
    { numRuns: 300 },
  );
  assert.ok(refused > 100, 'Some requests conflicted');
});
