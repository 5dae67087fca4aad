/** Goal: a reset chooses the base that has every committed operation, and serves only after a majority has it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { Trust } from '../../replica/record.ts';
import { authoritativeState, type Promised, promisesSuffice, Reset } from '../../replica/reset.ts';
import type { View } from '../../replica/view.ts';

const [a, b, c] = ['a', 'b', 'c'] as ServerId[] as [ServerId, ServerId, ServerId];
const VIEW = { number: 1, members: [a, b, c] };

const epoch = (counter: number): Epoch => ({ counter, server: a, incarnation: 1 as Incarnation });
const at = (counter: number, seq: number): Position => ({ epoch: epoch(counter), seq });
const promised = (position: Position, view: View = VIEW, trust: Trust = 'intact'): Promised => {
  return { position, view, trust };
};

test('the base is the largest position: the later epoch first, then the longer sequence', () => {
  const cases: [Record<string, Position>, ServerId][] = [
    [{ a: at(1, 5), b: at(1, 5) }, a],
    [{ a: at(1, 5), b: at(1, 6) }, b],
    [{ a: at(1, 15), b: at(2, 12) }, b],
    [{ a: at(2, 12), b: at(1, 15) }, a],
    [{ b: at(3, 1), a: at(2, 9), c: at(3, 2) }, c],
  ];
  for (const [promises, holder] of cases) {
    const map = new Map(Object.entries(promises).map(([of, position]) => [of as ServerId, { position }]));
    assert.equal(authoritativeState(map, a).holder, holder);
  }
});

test('every committed operation is in the base, whichever majority answers', () => {
  // Positions of all replicas after any history in which a majority acknowledged (e, s) in e.
  const positions = [at(1, 0), at(1, 1), at(1, 2), at(2, 0), at(2, 1), at(2, 2)];
  const members = [a, b, c];
  for (const first of positions) {
    for (const second of positions) {
      for (const third of positions) {
        const all = [first, second, third];
        for (const counter of [1, 2]) {
          const holders = all.filter(({ epoch: of, seq }) => of.counter === counter && seq >= 1).length;
          // (counter, 1) is committed; in epoch 2 only histories in which its base has it are real.
          if (holders < majority(3)) continue;
          for (const left of members) {
            if (left === a) continue;
            const promises = new Map(
              members
                .map((member, index) => [member, { position: all[index] as Position }] as const)
                .filter(([m]) => m !== left),
            );
            const { position } = authoritativeState(promises, a);
            const later = position.epoch.counter > counter;
            assert.ok(later || position.seq >= 1, 'The base has it, or is of an epoch whose base had it');
          }
        }
      }
    }
  }
});

test("the candidate's own promise and own installation are needed", () => {
  const reset = new Reset(epoch(9), VIEW, a, false, 0);
  reset.addPromise(b, promised(at(1, 1)));
  reset.addPromise(c, promised(at(1, 2)));
  assert.equal(reset.choose(0), null);
  reset.addPromise(a, promised(at(1, 1)));
  assert.equal(reset.choose(0)?.holder, c);
  reset.noteInstalled(b, 2);
  reset.noteInstalled(c, 2);
  assert.equal(reset.isComplete(), false);
  reset.noteInstalled(a, 2);
  assert.equal(reset.isComplete(), true);
});

test('one server has one vote, and the first answer counts', () => {
  const reset = new Reset(epoch(9), VIEW, a, false, 0);
  reset.addPromise(a, promised(at(1, 1)));
  reset.addPromise(a, promised(at(1, 1)));
  assert.equal(reset.choose(0), null);
  reset.addPromise(b, promised(at(1, 1)));
  reset.addPromise(b, promised(at(5, 5)));
  assert.equal(reset.choose(0)?.holder, a);
});

/** Each row: the members' answers, in their order, and whether they suffice. */
const SUFFICE: readonly [string, string, boolean][] = [
  ['a majority of intact stores', 'intact intact -', true],
  ['two of four are none', 'intact intact - -', false],
  ['one alone', 'intact', true],
  ['one that lost power has what was synced, and no other has more', 'suspect', true],
  ['the only disk was replaced: nothing is left', 'lost', false],
  ['what the second acknowledged may be gone', 'intact suspect -', false],
  ['all have reported what is left', 'intact suspect intact', true],
  ['everybody, though only one is intact', 'suspect intact lost', true],
  ['a majority lost power: only what was synced must survive', 'suspect suspect -', true],
  ['two kinds of doubt make no majority', 'suspect lost -', false],
  ['lost stores vote for nothing', 'lost lost -', false],
  ['lost stores and one that is left', 'lost lost intact', true],
  ['lost stores and one that lost power', 'lost lost suspect', true],
  ['all disks were replaced', 'lost lost lost', false],
  ['three of five are intact', 'intact intact intact lost -', true],
  ['two of five are intact', 'intact intact suspect lost -', false],
  ['both of two', 'intact intact', true],
  ['one of two', 'intact -', false],
  ['both of two, one lost', 'intact lost', true],
];

for (const [name, answers, enough] of SUFFICE) {
  test(`promises: ${name} (${answers})`, () => {
    const words = answers.split(' ');
    const members = words.map((_, index) => `s${index}` as ServerId);
    const view: View = { number: 1, members };
    const promises = new Map<ServerId, Promised>();
    for (const [index, word] of words.entries()) {
      if (word !== '-') promises.set(members[index] as ServerId, promised(at(1, 1), view, word as Trust));
    }
    assert.equal(promisesSuffice(view, promises, { mayBeginLost: false, mayLose: true }), enough);
    // A subject that may start empty does so only when all members report that they have nothing.
    const allLost = words.every((word) => word === 'lost');
    assert.equal(promisesSuffice(view, promises, { mayBeginLost: true, mayLose: true }), enough || allLost);
  });
}

test('a choice that may lose acknowledged operations is made only once others had time to answer', () => {
  const view: View = { number: 1, members: [a, b, c] };
  const promises = new Map([
    [a, promised(at(1, 1), view, 'suspect')],
    [b, promised(at(1, 1), view, 'suspect')],
  ]);
  const hasty = { mayBeginLost: false, mayLose: false };
  assert.equal(promisesSuffice(view, promises, hasty), false);
  promises.set(c, promised(at(1, 1), view, 'lost'));
  assert.equal(promisesSuffice(view, promises, hasty), true, 'No member is left that could answer');

  const reset = new Reset(epoch(9), view, a, false, 500);
  reset.addPromise(a, promised(at(1, 1), view, 'suspect'));
  reset.addPromise(b, promised(at(1, 1), view, 'suspect'));
  assert.equal(reset.choose(499), null);
  assert.equal(reset.choose(500)?.holder, a);
});

test('while members change, the promises of each side must suffice', () => {
  const joint: View = { number: 2, members: [a, b], joint: [b, c] };
  const promises = new Map([
    [a, promised(at(1, 1), joint)],
    [b, promised(at(1, 1), joint)],
  ]);
  assert.equal(promisesSuffice(joint, promises, { mayBeginLost: false, mayLose: true }), false);
  promises.set(c, promised(at(1, 1), joint, 'suspect'));
  assert.equal(
    promisesSuffice(joint, promises, { mayBeginLost: false, mayLose: true }),
    true,
    'all of the new side have answered',
  );
  promises.delete(a);
  assert.equal(promisesSuffice(joint, promises, { mayBeginLost: false, mayLose: true }), false);
});

test('a candidate with an old view needs the promises of the newer one, too', () => {
  const d = 'd' as ServerId;
  const newer: View = { number: 2, members: [a, b, c], joint: [c, d] };
  const reset = new Reset(epoch(9), VIEW, a, false, 0);
  reset.addPromise(a, promised(at(1, 1)));
  reset.addPromise(b, promised(at(1, 2), newer));
  assert.equal(reset.choose(0), null, 'Nothing of the new side but c and d, which have not answered');
  assert.deepEqual([...reset.voters], [a, b, c, d]);
  reset.addPromise(c, promised(at(1, 2), newer));
  assert.equal(reset.choose(0), null);
  reset.addPromise(d, promised(at(1, 1), newer));
  assert.equal(reset.choose(0)?.holder, b);
  assert.deepEqual(reset.view, newer);
  // And the base has to be on a majority of both.
  for (const server of [a, b, c]) reset.noteInstalled(server, 2);
  assert.equal(reset.isComplete(), false);
  reset.noteInstalled(d, 2);
  assert.equal(reset.isComplete(), true);
});

test('a server that restarts is asked again', () => {
  const reset = new Reset(epoch(9), VIEW, a, false, 0);
  reset.addPromise(a, promised(at(1, 1)));
  reset.addPromise(b, promised(at(1, 1)));
  reset.forget(b);
  assert.equal(reset.choose(0), null);
  assert.equal(reset.hasPromised(b), false);
});
