import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ServerId } from '../../base/ids.ts';
import {
  GroupTable,
  groupAll,
  groupHasMajority,
  groupHasVeto,
  groupMajority,
  NO_MEMBERS,
} from '../../lease/group.ts';

const IDS = [...'abcdefgh'] as ServerId[];
const members = fc.subarray(IDS, { minLength: 1 });

function bitsOf(voters: readonly ServerId[], chosen: readonly ServerId[]): number {
  return chosen.reduce((bits, id) => (voters.includes(id) ? bits | (1 << voters.indexOf(id)) : bits), 0);
}

test('a majority is more than half of each set, and two majorities always share a server', () => {
  const chosen = fc.subarray(IDS);
  fc.assert(
    fc.property(members, fc.option(members, { nil: undefined }), chosen, chosen, (one, other, acks, also) => {
      const table = new GroupTable();
      const group = table.at(table.addReference(7, one, other));
      const isMost = (set: readonly ServerId[], of: readonly ServerId[]): boolean =>
        2 * set.filter((id) => of.includes(id)).length > of.length;
      const expected = isMost(acks, one) && (other === undefined || isMost(acks, other));
      assert.equal(groupHasMajority(group, bitsOf(group.voters, acks)), expected);
      // A set without a veto leaves a majority to the others.
      const rest = IDS.filter((id) => !acks.includes(id));
      assert.equal(
        groupHasVeto(group, bitsOf(group.voters, acks)),
        !groupHasMajority(group, bitsOf(group.voters, rest)),
      );
      const both = bitsOf(group.voters, acks) & bitsOf(group.voters, also);
      if (expected && groupHasMajority(group, bitsOf(group.voters, also))) assert.notEqual(both, 0);
    }),
    { numRuns: 1000 },
  );
});

test('majorities before, during and after a change share a server', () => {
  fc.assert(
    fc.property(members, members, fc.subarray(IDS), fc.subarray(IDS), (before, after, acks, also) => {
      const table = new GroupTable();
      const old = table.at(table.addReference(1, before, undefined));
      const joint = table.at(table.addReference(2, after, before));
      const next = table.at(table.addReference(3, after, undefined));
      if (!groupHasMajority(joint, bitsOf(joint.voters, acks))) return;
      for (const group of [old, next]) {
        if (!groupHasMajority(group, bitsOf(group.voters, also))) continue;
        assert.ok(acks.some((id) => also.includes(id) && group.voters.includes(id)));
      }
    }),
    { numRuns: 1000 },
  );
});

test('the voters asked first are this server and the present ones that follow it by name', () => {
  fc.assert(
    fc.property(members, fc.constantFrom(...IDS), fc.subarray(IDS), (voters, self, present) => {
      const table = new GroupTable();
      const group = table.at(table.addReference(1, voters, undefined));
      const others = voters.filter((id) => id !== self && present.includes(id)).sort();
      const inOrder = [...others.filter((id) => id > self), ...others.filter((id) => id < self)];
      const asked = [...voters.filter((id) => id === self), ...inOrder];
      const count = Math.floor(voters.length / 2) + 1;
      const expected = asked.length < count ? groupAll(group) : bitsOf(group.voters, asked.slice(0, count));
      assert.equal(
        groupMajority(group, self, (id) => present.includes(id)),
        expected,
      );
    }),
    { numRuns: 1000 },
  );
});

test('rows share a group, and its number is free when the last row has left', () => {
  const table = new GroupTable();
  const one = table.addReference(1, IDS, undefined);
  assert.equal(table.addReference(1, [...IDS], undefined), one);
  assert.notEqual(table.addReference(2, IDS, undefined), one);
  table.removeReference(one);
  assert.equal(table.at(one).view, 1);
  table.removeReference(one);
  assert.throws(() => table.at(one), /a group of the table/);
  assert.equal(table.addReference(3, NO_MEMBERS, undefined), one);
  assert.equal(table.at(one).voters.length, 0);
});
