/** Goal: votes by a view are counted right, and majorities of two neighbouring views always have a common member. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { View } from '../../replica/view.ts';
import {
  sameServers,
  viewHasMajority,
  viewIsAt,
  viewJoint,
  viewReachedByMajority,
  viewSettled,
  viewSides,
  viewVoters,
} from '../../replica/view.ts';

const SERVERS = ['a', 'b', 'c', 'd', 'e', 'f'] as ServerId[];
const [a, b, c, d] = SERVERS as [ServerId, ServerId, ServerId, ServerId];

const members = fc.subarray(SERVERS, { minLength: 1, maxLength: 5 });
const view: fc.Arbitrary<View> = fc
  .tuple(members, fc.option(members, { nil: undefined }))
  .map(([old, joint]) => ({ number: 1, members: old, ...(joint === undefined ? {} : { joint }) }));

/** All sets of servers in which every side of the view has a majority. */
function majorities(of: View): Set<ServerId>[] {
  const sets: Set<ServerId>[] = [];
  for (let bits = 0; bits < 2 ** SERVERS.length; bits++) {
    const set = new Set(SERVERS.filter((_, index) => (bits & (2 ** index)) !== 0));
    const sides = [of.members, of.joint ?? of.members];
    if (sides.every((side) => side.filter((server) => set.has(server)).length * 2 > side.length)) {
      sets.push(set);
    }
  }
  return sets;
}

test('a majority is more than half of each side', () => {
  fc.assert(
    fc.property(view, fc.subarray(SERVERS), (of, some) => {
      const expected = majorities(of).some(
        (set) => set.size === some.length && some.every((server) => set.has(server)),
      );
      assert.equal(
        viewHasMajority(of, (server) => some.includes(server)),
        expected,
      );
    }),
  );
});

test('the position of a majority is the largest number that all of one majority have', () => {
  const numbers = fc.tuple(...SERVERS.map(() => fc.integer({ min: -5, max: 20 })));
  fc.assert(
    fc.property(view, numbers, (of, reached) => {
      const at = (server: ServerId): number => reached[SERVERS.indexOf(server)] as number;
      const best = Math.max(...majorities(of).map((set) => Math.min(...[...set].map(at))));
      assert.equal(viewReachedByMajority(of, at), best);
      assert.equal(viewReachedByMajority(of, at, true), Math.min(...viewVoters(of).map(at)));
    }),
  );
});

test('majorities of a view, and of neighbouring views, have a common member', () => {
  fc.assert(
    fc.property(members, members, (old, target) => {
      const before: View = { number: 1, members: old };
      const joint = viewJoint(before, target, 3);
      const after = viewSettled(joint);
      for (const [one, other] of [
        [before, before],
        [before, joint],
        [joint, joint],
        [joint, after],
        [after, after],
      ] as const) {
        for (const set of majorities(one)) {
          for (const peer of majorities(other)) assert.ok([...set].some((server) => peer.has(server)));
        }
      }
    }),
    { numRuns: 40 },
  );
});

test('a change passes through both sets, by numbers that grow, and keeps its policy', () => {
  const first: View = { number: 4, members: [a, b, c], policy: 'all' };
  const joint = viewJoint(first, [c, d], 1);
  assert.deepEqual(joint, { number: 5, members: [a, b, c], joint: [c, d], policy: 'all' });
  assert.deepEqual(viewVoters(joint), [a, b, c, d]);
  assert.deepEqual(viewSides(joint), [
    [a, b, c],
    [c, d],
  ]);
  const settled = viewSettled(joint);
  assert.deepEqual(settled, { number: 6, members: [c, d], policy: 'all' });
  assert.throws(() => viewSettled(settled));
  assert.deepEqual(viewJoint({ number: 1, members: [a] }, [b], 1), { number: 2, members: [a], joint: [b] });
});

test('views ordered by different epochs have different numbers, whatever view they begin with', () => {
  const orders = fc.tuple(
    fc.integer({ min: 1, max: 40 }),
    fc.integer({ min: 1, max: 1_000_000 }),
    fc.integer({ min: 0, max: 9 }),
  );
  fc.assert(
    fc.property(orders, ([earlier, more, changes]) => {
      // The later epoch begins with the view before all changes of the earlier one, or after some.
      let view: View = { number: 1, members: [a] };
      const begun = [view];
      const numbers = new Set<number>();
      for (let change = 0; change <= changes; change++) {
        const joint = viewJoint(view, [b], earlier);
        view = viewSettled(joint);
        numbers.add(joint.number).add(view.number);
        begun.push(view);
      }
      for (const before of begun) assert.ok(!numbers.has(viewJoint(before, [c], earlier + more).number));
    }),
  );
});

test('replicas are in place if they are on the wanted servers in any order and no change is under way', () => {
  assert.ok(viewIsAt({ number: 1, members: [a, b] }, [b, a]));
  assert.ok(!viewIsAt({ number: 1, members: [a, b] }, [a, b, c]));
  assert.ok(!viewIsAt({ number: 1, members: [a, b, c] }, [a, b]));
  assert.ok(!viewIsAt({ number: 2, members: [a, b], joint: [a, b] }, [a, b]));
  assert.ok(!sameServers([a, b], [a, c]));
});

test("the majority's size of different group sizes", () => {
  for (const [count, needed] of [
    [1, 1],
    [2, 2],
    [3, 2],
    [4, 3],
    [5, 3],
  ] as const) {
    assert.equal(majority(count), needed);
    const of: View = { number: 1, members: SERVERS.slice(0, count) };
    assert.equal(Math.min(...majorities(of).map((set) => set.size)), needed);
  }
});
