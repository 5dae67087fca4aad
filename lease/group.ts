import { assert } from '../base/assert.ts';
import { bitCount } from '../base/bits.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';

/** Voters fit the bits of a tally. */
export const VOTERS_MAX = 30;

/** Stands for unknown members: another server's request named the cell, and this server has no view of it. */
export const NO_MEMBERS: readonly ServerId[] = [];

/** The voters of a cell in one view. A majority needs both sets of a joint view: neighbouring views intersect. */
export interface Group {
  readonly view: number;
  readonly voters: readonly ServerId[];
  /** Each set as bits of `voters`; `joint` is 0 without a change. */
  readonly members: number;
  readonly joint: number;
}

/** The voters of a cell as the layer above has them on disk. */
export interface KnownView {
  readonly view: number;
  readonly members: readonly ServerId[];
  readonly joint?: readonly ServerId[];
}

function groupOfUnknownMembers(view: number): Group {
  return { view, voters: NO_MEMBERS, members: 0, joint: 0 };
}

function groupOf(view: number, members: readonly ServerId[], joint: readonly ServerId[] | undefined): Group {
  const voters = joint === undefined ? members : [...new Set([...members, ...joint])];
  assert(members.length > 0 && voters.length <= VOTERS_MAX, 'Voters fit a tally');
  const bits = (ids: readonly ServerId[]): number =>
    ids.reduce((sum, id) => sum | (1 << voters.indexOf(id)), 0);
  return { view, voters, members: bits(members), joint: joint === undefined ? 0 : bits(joint) };
}

/** Whether `bits`, one per voter, contain a majority of each set. */
export function groupHasMajority(group: Group, bits: number): boolean {
  return setHasMajority(group.members, bits) && (group.joint === 0 || setHasMajority(group.joint, bits));
}

/** Whether the voters outside `bits` are too few for a majority. */
export function groupHasVeto(group: Group, bits: number): boolean {
  return setHasVeto(group.members, bits) || (group.joint !== 0 && setHasVeto(group.joint, bits));
}

export function groupAll(group: Group): number {
  return group.members | group.joint;
}

/**
 * Just enough voters for a majority: `self`, and present voters that follow it by name. The same order for all cells
 * lets requests share frames and spreads load. @returns their bits; all voters if too few are present
 */
export function groupMajority(
  group: Group,
  self: ServerId,
  isPresent: (server: ServerId) => boolean,
): number {
  const { voters } = group;
  if (group.joint !== 0) return groupAll(group);
  let bits = 0;
  let missing = majority(voters.length);
  const own = voters.indexOf(self);
  if (own >= 0) {
    bits = 1 << own;
    missing--;
  }
  for (; missing > 0; missing--) {
    let first = -1;
    for (let index = 0; index < voters.length; index++) {
      const voter = voters[index] as ServerId;
      if ((bits & (1 << index)) !== 0 || voter === self) continue;
      if (first >= 0 && !comesFirst(self, voter, voters[first] as ServerId)) continue;
      if (isPresent(voter)) first = index;
    }
    if (first < 0) return groupAll(group);
    bits |= 1 << first;
  }
  return bits;
}

/** Whether `a` comes before `b` in the order of names that begins after `self` and wraps around. */
function comesFirst(self: ServerId, a: ServerId, b: ServerId): boolean {
  const isAfterSelf = a > self;
  return isAfterSelf === b > self ? a < b : isAfterSelf;
}

function setHasMajority(set: number, bits: number): boolean {
  return bitCount(bits & set) >= majority(bitCount(set));
}

function setHasVeto(set: number, bits: number): boolean {
  const size = bitCount(set);
  return bitCount(bits & set) > size - majority(size);
}

function membersEqual(a: readonly ServerId[], b: readonly ServerId[]): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let at = 0; at < a.length; at++) if (a[at] !== b[at]) return false;
  return true;
}

interface CountedGroup {
  readonly group: Group;
  readonly key: string;
  rows: number;
}

/** A recent request: cells are mostly opened in series with the same members. */
interface Recent {
  readonly view: number;
  readonly members: readonly ServerId[];
  readonly joint: readonly ServerId[] | undefined;
  readonly index: number;
}

const RECENT_MAX = 4;

/** Numbered groups: a row holds four bytes, and cells with the same members share a group. */
export class GroupTable {
  readonly #groups: (CountedGroup | null)[] = [];
  readonly #byKey = new Map<string, number>();
  readonly #free: number[] = [];
  #recent: Recent[] = [];

  constructor() {
    // Every row starts with this group, so it is never dropped.
    this.addReference(0, NO_MEMBERS, undefined);
  }

  at(index: number): Group {
    return this.#counted(index).group;
  }

  /** Adds a reference to the group. @returns its number */
  addReference(view: number, members: readonly ServerId[], joint: readonly ServerId[] | undefined): number {
    for (const recent of this.#recent) {
      if (recent.view !== view || recent.joint !== joint || !membersEqual(recent.members, members)) continue;
      this.#counted(recent.index).rows++;
      return recent.index;
    }
    const index = this.#findOrAdd(view, members, joint);
    this.#counted(index).rows++;
    this.#recent = [{ view, members, joint, index }, ...this.#recent.slice(0, RECENT_MAX - 1)];
    return index;
  }

  removeReference(index: number): void {
    const counted = this.#counted(index);
    assert(counted.rows > 0, 'A removed reference was added');
    counted.rows--;
    if (counted.rows > 0) return;
    this.#groups[index] = null;
    this.#byKey.delete(counted.key);
    this.#free.push(index);
    this.#recent = this.#recent.filter((recent) => recent.index !== index);
  }

  #counted(index: number): CountedGroup {
    const counted = this.#groups[index];
    assert(counted !== undefined && counted !== null, 'A row refers to a group of the table');
    return counted;
  }

  #findOrAdd(view: number, members: readonly ServerId[], joint: readonly ServerId[] | undefined): number {
    const key = `${view}/${members.join()}/${joint?.join() ?? ''}`;
    const known = this.#byKey.get(key);
    if (known !== undefined) return known;
    const index = this.#free.pop() ?? this.#groups.length;
    const group = members.length === 0 ? groupOfUnknownMembers(view) : groupOf(view, members, joint);
    this.#groups[index] = { group, key, rows: 0 };
    this.#byKey.set(key, index);
    return index;
  }
}
