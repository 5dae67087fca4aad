import type { Incarnation, ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority } from './view.ts';

/**
 * Births: subjects whose first operations are known as a whole before anybody hears of them. They are ordered in the first epoch, by a process that
 * holds no lease and leads nothing: it needs none, because it answers no read, and gives its place up with the last operation. A replica
 * takes `begin` and the operations as one step, or refuses. docs/replication.md.
 */

/** Of the epoch of who has made a subject. Candidates begin with larger ones; see `candidatesFrom`. */
export const FIRST_COUNTER = 1;

/** The epoch in which a process leads what it has made, and bears what nobody knows of. */
export function firstEpoch(server: ServerId, incarnation: Incarnation): Epoch {
  return { counter: FIRST_COUNTER, server, incarnation };
}

/**
 * Whether a subject may be borne at a server: nothing was ever promised or installed there, as with `begin`. A later epoch that was promised
 * refuses the first, whatever was done in it; and a store that may have forgotten a promise may not give another.
 *
 * @param here the replica that is there; null where there is none
 * @param trust of a replica that is made there now
 */
export function mayBeBorne(self: ServerId, view: View, here: ReplicaRecord | null, trust: Trust): boolean {
  return here === null && trust === 'intact' && view.joint === undefined && view.members.includes(self);
}

/** Subjects that are borne together, and who holds which of them. */
export class Birth {
  readonly #view: View;
  /** For each subject, by its place. */
  readonly #holders: readonly Set<ServerId>[];

  constructor(view: View, count: number) {
    this.#view = view;
    this.#holders = Array.from({ length: count }, () => new Set<ServerId>());
  }

  /** The server has stored the subjects at these places so that they survive as a promise does. */
  holds(server: ServerId, places: Iterable<number>): void {
    for (const place of places) this.#holders[place]?.add(server);
  }

  /** Whether a majority has the subject, so that every later epoch begins with it: it may get its name. */
  isBorne(place: number): boolean {
    const holders = this.#holders[place];
    return holders !== undefined && viewHasMajority(this.#view, (server) => holders.has(server));
  }

  get areAllBorne(): boolean {
    return this.#holders.every((_, place) => this.isBorne(place));
  }
}

/** Where files with reserved numbers go. */
export interface NumberPlace {
  /** The only members of the first view. */
  readonly members: readonly ServerId[];
  /** How many replicas were wanted when the members were chosen. */
  readonly replicas: number;
}

interface NumberRange extends NumberPlace {
  readonly owner: number;
  readonly first: number;
  readonly last: number;
  readonly untilMs: number;
}

/**
 * Numbers by which this process, and no other, may use the first epoch. They were given to it, in this life, and each is good
 * for one birth: two different operations at one place of one epoch would be two files that are taken for one.
 */
export class BirthNumbers {
  #ranges: NumberRange[] = [];

  /** @param range only its `owner` may use the numbers, until `untilMs` by the caller's clock */
  reserved(range: NumberRange): void {
    this.#ranges.push(range);
  }

  /** Uses the number up. @returns where its file goes; null where the number is not this owner's, or not any more */
  take(owner: number, number: number, nowMs: number): NumberPlace | null {
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
