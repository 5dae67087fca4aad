import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';

/** Voters fit the bits of a tally. */
export const VOTERS_MAX = 30;

/**
 * Who votes on a cell in one view of it. While the members change, there are two sets, and every
 * majority is one of each; so any two majorities, of before, during and after the change, have a
 * server in common.
 */
export interface Group {
  readonly view: number;
  /** All members of either set, each once. */
  readonly voters: readonly ServerId[];
  /** Bits of `voters` that are in the one set and in the other; `joint` is 0 without a change. */
  readonly members: number;
  readonly joint: number;
}

/** A cell that this server was only asked about: the view is known, its members are not. */
export function groupOfStranger(view: number): Group {
  return { view, voters: [], members: 0, joint: 0 };
}

export function groupOf(
  view: number,
  members: readonly ServerId[],
  joint: readonly ServerId[] | undefined,
): Group {
  const voters = joint === undefined ? members : [...new Set([...members, ...joint])];
  assert(members.length > 0 && voters.length <= VOTERS_MAX, 'Voters fit a tally');
  const bits = (ids: readonly ServerId[]): number => ids.reduce((sum, id) => sum | (1 << voters.indexOf(id)), 0);
  return { view, voters, members: bits(members), joint: joint === undefined ? 0 : bits(joint) };
}

/** Whether `bits`, one for each voter, hold a majority of each set. */
export function groupHasMajority(group: Group, bits: number): boolean {
  return setHasMajority(group.members, bits) && (group.joint === 0 || setHasMajority(group.joint, bits));
}

/** Whether too few are left without the voters of `bits` to make a majority. */
export function groupHasVeto(group: Group, bits: number): boolean {
  return setHasVeto(group.members, bits) || (group.joint !== 0 && setHasVeto(group.joint, bits));
}

function setHasMajority(set: number, bits: number): boolean {
  return bitCount(bits & set) >= majority(bitCount(set));
}

function setHasVeto(set: number, bits: number): boolean {
  const size = bitCount(set);
  return bitCount(bits & set) > size - majority(size);
}

function bitCount(bits: number): number {
  let left = bits - ((bits >>> 1) & 0x55555555);
  left = (left & 0x33333333) + ((left >>> 2) & 0x33333333);
  return Math.imul((left + (left >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

interface Counted {
  readonly group: Group;
  readonly key: string;
  rows: number;
}

/** Groups by number: a row holds four bytes, and cells with the same members share one group. */
export class GroupTable {
  readonly #groups: (Counted | null)[] = [];
  readonly #byKey = new Map<string, number>();
  readonly #free: number[] = [];
  /** Cells are mostly opened with the same array of members, one after the other. */
  #lastMembers: readonly ServerId[] | null = null;
  #lastJoint: readonly ServerId[] | undefined;
  #lastView = -1;
  #lastIndex = -1;

  at(index: number): Group {
    const counted = this.#groups[index];
    assert(counted !== undefined && counted !== null, 'A row names a group that the table knows');
    return counted.group;
  }

  /** Counts one row more for the group. @returns its number */
  take(view: number, members: readonly ServerId[], joint: readonly ServerId[] | undefined): number {
    const again = members === this.#lastMembers && joint === this.#lastJoint && view === this.#lastView;
    const last = again ? this.#groups[this.#lastIndex] : null;
    if (last) {
      last.rows++;
      return this.#lastIndex;
    }
    const key = `${view}/${members.join()}/${joint?.join() ?? ''}`;
    const index = this.#take(key, () =>
      members.length === 0 ? groupOfStranger(view) : groupOf(view, members, joint),
    );
    this.#lastMembers = members;
    this.#lastJoint = joint;
    this.#lastView = view;
    this.#lastIndex = index;
    return index;
  }

  /** Counts one row less for the group. */
  leave(index: number): void {
    const counted = this.#groups[index];
    assert(counted !== undefined && counted !== null && counted.rows > 0, 'A group that is left was taken');
    counted.rows--;
    if (counted.rows > 0) return;
    this.#groups[index] = null;
    this.#byKey.delete(counted.key);
    this.#free.push(index);
    if (index === this.#lastIndex) this.#lastMembers = null;
  }

  #take(key: string, make: () => Group): number {
    const known = this.#byKey.get(key);
    if (known !== undefined) {
      const counted = this.#groups[known];
      assert(counted !== undefined && counted !== null, 'A named group is there');
      counted.rows++;
      return known;
    }
    const index = this.#free.pop() ?? this.#groups.length;
    this.#groups[index] = { group: make(), key, rows: 1 };
    this.#byKey.set(key, index);
    return index;
  }
}
