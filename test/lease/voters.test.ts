import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import {
  type VoterSet,
  VotersChange,
  type VotersView,
  votersAll,
  votersEqual,
  votersJointMs,
  votersMajorities,
} from '../../lease/voters.ts';

const TIMING = { leaseMs: 1000, clockSkewMaxMs: 50 };
const JOINT_MS = votersJointMs(TIMING);

function set(servers: string, perCell = 3): VoterSet {
  return { servers: [...servers] as ServerId[], perCell };
}

function joint(members: VoterSet, others: VoterSet): VotersView {
  return { number: 2, members, joint: others, clockMs: 0 };
}

function confirm(
  change: VotersChange,
  view: VotersView,
  servers: string,
  clockMs = 1,
  isSilent = false,
): void {
  for (const server of servers) change.confirmed(server as ServerId, view, clockMs, isSilent);
}

test('a change begins if the wanted voters differ', () => {
  const change = new VotersChange(TIMING);
  const first = { number: 1, members: set('a'), clockMs: 7 };
  assert.equal(change.next(first, null, 0), null);
  assert.equal(change.next(first, set('a', 5), 0), null, 'They are the same for each cell');
  assert.equal(change.next(first, set(''), 0), null);
  assert.deepEqual(change.next(first, set('abc'), 0), {
    number: 2,
    members: set('a'),
    joint: set('abc'),
    clockMs: 7,
  });
});

test('it ends once the longest lease has passed since majorities of both sides know of it', () => {
  const change = new VotersChange(TIMING);
  const view = joint(set('abc'), set('cde'));
  confirm(change, view, 'ac');
  assert.equal(change.next(view, null, 0), null);
  confirm(change, view, 'e');
  assert.equal(change.next(view, null, 100), null);
  assert.equal(change.next(view, null, 100 + JOINT_MS - 1), null);
  const settled = change.next(view, null, 100 + JOINT_MS);
  assert.deepEqual(settled, { number: 3, members: set('cde'), clockMs: 1 });
  assert.equal(
    new VotersChange(TIMING).next(view, null, 10 * JOINT_MS),
    null,
    'Another server begins the wait again',
  );
});

test('reports about an earlier view do not count', () => {
  const change = new VotersChange(TIMING);
  const view = joint(set('a'), set('b'));
  const later = { ...view, number: 4 };
  confirm(change, view, 'ab');
  assert.equal(change.next(view, null, 0), null);
  assert.equal(change.next(later, null, JOINT_MS), null);
  assert.equal(change.next(later, null, 2 * JOINT_MS), null);
});

test('a silent voter counts once it takes part', () => {
  const change = new VotersChange(TIMING);
  const view = joint(set('a'), set('b'));
  confirm(change, view, 'b');
  confirm(change, view, 'a', 1, true);
  assert.equal(change.next(view, null, 0), null);
  assert.equal(change.next(view, null, JOINT_MS), null);
  confirm(change, view, 'a');
  assert.equal(change.next(view, null, JOINT_MS), null);
  assert.equal(change.next(view, null, 2 * JOINT_MS)?.number, 3);
});

test('the latest clock of all voters is carried over', () => {
  const change = new VotersChange(TIMING);
  const view = joint(set('a'), set('b'));
  confirm(change, view, 'a', 1234);
  confirm(change, view, 'b', 1200);
  change.next(view, null, 0);
  assert.equal(change.next(view, null, JOINT_MS)?.clockMs, 1234);
});

test('each cell has its majority', () => {
  const has = (servers: string) => (server: ServerId) => servers.includes(server);
  assert.equal(votersMajorities(set('ab'), has('a')), false);
  assert.equal(votersMajorities(set('abc'), has('ab')), true);
  assert.equal(votersMajorities(set('abcde'), has('abc')), false, 'Two of three voters may be the others');
  assert.equal(votersMajorities(set('abcde'), has('abcd')), true);
  assert.equal(votersMajorities(set('abcde', 5), has('abc')), true);
  assert.equal(votersMajorities(set('abcd', 5), has('ab')), false);
});

test('sets and views contain each server once', () => {
  assert.deepEqual(votersAll(joint(set('ab'), set('bc'))), ['a', 'b', 'c']);
  assert.equal(votersEqual(set('ab'), set('ba', 2)), true);
  assert.equal(votersEqual(set('abcd'), set('abcd', 4)), false);
});
