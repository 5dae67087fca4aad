import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { type Epoch, epochEqual } from './epoch.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority } from './view.ts';

/**
 * Create with contents: subjects whose first operations are all known before any other server knows the subject. The
 * creating server orders them in the first epoch without a lease: it answers no reads, and stops ordering after the
 * last operation. A replica takes `begin` and the operations as one step, or refuses. docs/replication.md.
 */

/** Counter of a creating server's epoch. Candidates use larger ones; see `candidatesFrom`. */
export const FIRST_COUNTER = 1;

/** The epoch in which a process orders the first operations of a subject that it creates. */
export function firstEpoch(server: ServerId, incarnation: Incarnation): Epoch {
  return { counter: FIRST_COUNTER, server, incarnation };
}

/**
 * Whether a server may store a subject created with contents: nothing was ever promised or installed there. A later
 * promised epoch refuses the first one, and a store that may have lost a promise may not give another.
 * @param here the replica that exists there; null if none
 * @param trust of a replica that is created there now
 */
export function mayCreateWithContents(
  self: ServerId,
  view: View,
  here: ReplicaRecord | null,
  trust: Trust,
): boolean {
  return here === null && trust === 'intact' && view.joint === undefined && view.members.includes(self);
}

/**
 * The epoch of a first state that each of a subject's servers makes by itself, equal at all of them. Processes have
 * larger incarnations.
 */
export function copyEpoch({ members: [server] }: View): Epoch {
  assert(server !== undefined, 'A view has members');
  return { counter: FIRST_COUNTER, server, incarnation: 0 as Incarnation };
}

/** Whether the replica has such a state, and nothing was ever promised or changed there. */
export function isUnusedCopy({ view, promised, installed, seq }: ReplicaRecord): boolean {
  const epoch = copyEpoch(view);
  return seq === 1 && epochEqual(promised, epoch) && epochEqual(installed, epoch);
}

/** Counts which servers have stored each of several subjects that are created together. */
export class CreationQuorum {
  readonly #view: View;
  readonly #holders: readonly Set<ServerId>[];

  constructor(view: View, count: number) {
    this.#view = view;
    this.#holders = Array.from({ length: count }, () => new Set<ServerId>());
  }

  /** The server stored the subjects at these indexes as durably as a promise. */
  stored(server: ServerId, indexes: Iterable<number>): void {
    for (const index of indexes) this.#holders[index]?.add(server);
  }

  /** Whether a majority has the subject, so that every later epoch begins with it: the catalog may name it. */
  isOnMajority(index: number): boolean {
    const holders = this.#holders[index];
    return holders !== undefined && viewHasMajority(this.#view, (server) => holders.has(server));
  }

  get areAllOnMajority(): boolean {
    return this.#holders.every((_, index) => this.isOnMajority(index));
  }
}

/** The placement of files with reserved numbers. */
export interface NumberPlacement {
  /** The only members of the first view. */
  readonly members: readonly ServerId[];
  /** Wanted replicas when the members were chosen. */
  readonly replicas: number;
  /** The directory by whose placement class they were chosen; 0: by the volume's. */
  readonly placement: number;
}

interface NumberRange extends NumberPlacement {
  readonly owner: number;
  readonly first: number;
  readonly last: number;
  readonly untilMs: number;
}

/** Reserved inode numbers that a client may use at this server, each once: a first epoch must not exist twice. */
export class NumberReservations {
  #ranges: NumberRange[] = [];

  /** @param range only its `owner` may use the numbers, until `untilMs` by the caller's clock */
  add(range: NumberRange): void {
    this.#ranges.push(range);
  }

  /** Uses up a number. @returns the file's placement; null if the number is not, or no longer, this owner's */
  take(owner: number, number: number, nowMs: number): NumberPlacement | null {
    this.#ranges = this.#ranges.filter(({ untilMs }) => nowMs < untilMs);
    const range = this.#ranges.find(({ first, last }) => first <= number && number <= last);
    if (range === undefined || range.owner !== owner) return null;
    const left = [
      { ...range, last: number - 1 },
      { ...range, first: number + 1 },
    ].filter((part) => part.first <= part.last);
    this.#ranges.splice(this.#ranges.indexOf(range), 1, ...left);
    return range;
  }
}
