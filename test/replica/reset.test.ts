/**
 * Goal: a reset chooses the base that has every committed operation, and serves no earlier than a
 * majority has it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { Epoch, Position } from '../../replica/actions.ts';
import { authoritative, Reset } from '../../replica/reset.ts';

const [a, b, c] = ['a', 'b', 'c'] as ServerId[] as [ServerId, ServerId, ServerId];
const VIEW = { number: 1, members: [a, b, c] };

const epoch = (counter: number): Epoch => ({ counter, server: a, incarnation: 1 as Incarnation });
const at = (counter: number, seq: number): Position => ({ epoch: epoch(counter), seq });

test('the base is the furthest position: the later epoch first, then the longer sequence', () => {
  const cases: [Record<string, Position>, ServerId][] = [
    [{ a: at(1, 5), b: at(1, 5) }, a],
    [{ a: at(1, 5), b: at(1, 6) }, b],
    [{ a: at(1, 15), b: at(2, 12) }, b],
    [{ a: at(2, 12), b: at(1, 15) }, a],
    [{ b: at(3, 1), a: at(2, 9), c: at(3, 2) }, c],
  ];
  for (const [promises, holder] of cases) {
    const map = new Map(Object.entries(promises)) as Map<ServerId, Position>;
    assert.equal(authoritative(map, a).holder, holder);
  }
});

test('every committed operation is in the base, whichever majority answers', () => {
  // Positions of all replicas after any history in which (e, s) was acknowledged by a majority in e.
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
                .map((member, index) => [member, all[index] as Position] as const)
                .filter(([m]) => m !== left),
            );
            const { position } = authoritative(promises, a);
            const later = position.epoch.counter > counter;
            assert.ok(later || position.seq >= 1, 'The base has it, or is of an epoch whose base had it');
          }
        }
      }
    }
  }
});

test('the own promise and the own installation are needed', () => {
  const reset = new Reset(epoch(9), VIEW, a);
  reset.promise(b, at(1, 1));
  reset.promise(c, at(1, 2));
  assert.equal(reset.choose(), null);
  reset.promise(a, at(1, 1));
  assert.equal(reset.choose()?.holder, c);
  reset.install(b, 2);
  reset.install(c, 2);
  assert.equal(reset.isComplete(), false);
  reset.install(a, 2);
  assert.equal(reset.isComplete(), true);
});

test('one server has one vote, and the first answer counts', () => {
  const reset = new Reset(epoch(9), VIEW, a);
  reset.promise(a, at(1, 1));
  reset.promise(a, at(1, 1));
  assert.equal(reset.choose(), null);
  reset.promise(b, at(1, 1));
  reset.promise(b, at(5, 5));
  assert.equal(reset.choose()?.holder, a);
});

test('a server that restarts is asked again', () => {
  const reset = new Reset(epoch(9), VIEW, a);
  reset.promise(a, at(1, 1));
  reset.promise(b, at(1, 1));
  reset.forget(b);
  assert.equal(reset.choose(), null);
  assert.equal(reset.hasPromised(b), false);
});
