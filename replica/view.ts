import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';

/**
 * Who must have an operation before it is answered. `quorum`: a majority. `all`: every member, so that a
 * write fails while one is away. `read-only`: a majority until the file is sealed, which never changes again.
 */
export type Policy = 'quorum' | 'all' | 'read-only';

/**
 * The servers that hold a subject's replicas. A change of members passes through a view that has both sets,
 * in which every majority is one of each; numbers grow by one with each, so that the newest is known.
 */
export interface View {
  readonly number: number;
  readonly members: readonly ServerId[];
  /** While the members change: those that are to come. */
  readonly joint?: readonly ServerId[];
  /** `quorum` where absent. */
  readonly policy?: Policy;
}

/** @returns all servers that vote, each once: the members, and while they change also those to come */
export function viewVoters({ members, joint }: View): readonly ServerId[] {
  return joint === undefined ? members : [...new Set([...members, ...joint])];
}

/** @returns the sets of which every majority has to be one: one set, or two while the members change */
export function viewSides({ members, joint }: View): readonly (readonly ServerId[])[] {
  return joint === undefined ? [members] : [members, joint];
}

/** Whether `counts` holds for a majority of each side. */
export function viewHasMajority(view: View, counts: (server: ServerId) => boolean): boolean {
  return viewSides(view).every((side) => side.filter(counts).length >= majority(side.length));
}

/**
 * What a majority of each side has reached, by a number of each voter that only grows.
 *
 * @param everybody whether all of each side are wanted instead of a majority
 * @returns the largest number that so many voters have reached
 */
export function viewReached(
  view: View,
  reached: (server: ServerId) => number,
  everybody: boolean = false,
): number {
  let least = Infinity;
  for (const side of viewSides(view)) {
    const needed = everybody ? side.length : majority(side.length);
    const numbers = side.map(reached).sort((a, b) => b - a);
    least = Math.min(least, numbers[needed - 1] ?? 0);
  }
  return least;
}

/** So many views have numbers of their own in each epoch: twice as many as members may change in it. */
const VIEWS_PER_EPOCH = 65_536;

/**
 * The view in which a change of members begins: both sets vote.
 *
 * Its number is that of no other, also not of one that an earlier epoch ordered, that was never committed and is on some disk still: whoever
 * votes goes by numbers, and would take the one for the other. No two epochs in which somebody led have the same counter.
 *
 * @param counter of the epoch that orders it
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

/** The view in which it ends: by whomever it is ordered, it is the same. */
export function viewSettled({ number, joint, policy }: View): View {
  assert(joint !== undefined, 'A change ends where one began');
  return { number: number + 1, members: joint, ...(policy === undefined ? {} : { policy }) };
}

/** Whether the replicas are at just these servers, in whatever order, and no change is under way. */
export function viewIsAt({ members, joint }: View, servers: readonly ServerId[]): boolean {
  return joint === undefined && sameServers(members, servers);
}

/** Whether two views contradict each other: for one file and one number there is one member set. */
export function viewsConflict(a: View, b: View): boolean {
  if (a.number !== b.number) return false;
  return !sameServers(a.members, b.members) || !sameServers(a.joint ?? [], b.joint ?? []);
}

/** Who votes by the view, for messages; the same for equal sets. */
export function viewMembersFormat({ members, joint }: Pick<View, 'members' | 'joint'>): string {
  const set = (servers: readonly ServerId[]): string => servers.toSorted().join();
  return joint === undefined ? set(members) : `${set(members)} and ${set(joint)}`;
}

export function sameServers(a: readonly ServerId[], b: readonly ServerId[]): boolean {
  return a.length === b.length && a.every((server) => b.includes(server));
}
