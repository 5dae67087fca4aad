import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';

/**
 * How many replicas an answered operation needs. `quorum`: a majority. `all`: every member, so that writes fail while
 * one is unreachable. `read-only`: a majority until the file is sealed; afterwards it never changes.
 */
export type Policy = 'quorum' | 'all' | 'read-only';

/** The servers with a subject's replicas. Members change through a joint view; numbers grow by one with each view. */
export interface View {
  readonly number: number;
  readonly members: readonly ServerId[];
  /** The new members, while members change. */
  readonly joint?: readonly ServerId[];
  /** `quorum` if absent. */
  readonly policy?: Policy;
}

/** @returns all voters, each once: the members, and during a change the new ones too */
export function viewVoters({ members, joint }: View): readonly ServerId[] {
  return joint === undefined ? members : [...new Set([...members, ...joint])];
}

/** @returns the sets that every majority needs one of: one, or two while members change */
export function viewSides({ members, joint }: View): readonly (readonly ServerId[])[] {
  return joint === undefined ? [members] : [members, joint];
}

/** Whether `counts` holds for a majority of each side. */
export function viewHasMajority(view: View, counts: (server: ServerId) => boolean): boolean {
  return viewSides(view).every((side) => side.filter(counts).length >= majority(side.length));
}

/** @returns the largest number that a majority of each side has reached; all voters of each side if `allVoters` */
export function viewReachedByMajority(
  view: View,
  reached: (server: ServerId) => number,
  allVoters: boolean = false,
): number {
  let least = Infinity;
  for (const side of viewSides(view)) {
    const needed = allVoters ? side.length : majority(side.length);
    const numbers = side.map(reached).sort((a, b) => b - a);
    least = Math.min(least, numbers[needed - 1] ?? 0);
  }
  return least;
}

/** View numbers per epoch: two for each change of members. */
const VIEWS_PER_EPOCH = 65_536;

/**
 * The joint view that starts a change of members. Its number is unique, even among views of earlier epochs that were
 * never committed but are still on some disk: voters compare numbers only. No two epochs with a primary have the same
 * counter. @param counter of the epoch that orders the view
 */
export function viewJoint(
  { number: before, members, policy }: View,
  joint: readonly ServerId[],
  counter: number,
): View {
  const number = Math.max(before + 1, (counter - 1) * VIEWS_PER_EPOCH);
  assert(Number.isSafeInteger(number), 'Numbers of views do not run out');
  return { number, members, joint, ...(policy === undefined ? {} : { policy }) };
}

/** The view that ends the change; the same whichever primary orders it. */
export function viewSettled({ number, joint, policy }: View): View {
  assert(joint !== undefined, 'A change ends where one began');
  return { number: number + 1, members: joint, ...(policy === undefined ? {} : { policy }) };
}

/** Whether the replicas are at exactly these servers, and no change is under way. */
export function viewIsAt({ members, joint }: View, servers: readonly ServerId[]): boolean {
  return joint === undefined && sameServers(members, servers);
}

/** Whether two views contradict each other: a file has one member set per number. */
export function viewsConflict(a: View, b: View): boolean {
  if (a.number !== b.number) return false;
  return !sameServers(a.members, b.members) || !sameServers(a.joint ?? [], b.joint ?? []);
}

/** The view's voters for messages; the same text for equal sets. */
export function viewMembersFormat({ members, joint }: Pick<View, 'members' | 'joint'>): string {
  const set = (servers: readonly ServerId[]): string => servers.toSorted().join();
  return joint === undefined ? set(members) : `${set(members)} and ${set(joint)}`;
}

export function sameServers(a: readonly ServerId[], b: readonly ServerId[]): boolean {
  return a.length === b.length && a.every((server) => b.includes(server));
}
