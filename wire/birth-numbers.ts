import { type Static, Type } from './schema.ts';

/** Numbers for new files that are going to be borne: `POST /v1/births/numbers`. */

/** Numbers that are reserved at a time at the most. */
export const RESERVED_NUMBERS_MAX = 4_096;

/** Consecutive numbers whose files are at the same servers: new files spread, and those of one request seldom differ. */
export const NUMBERS_PER_SET = 64;
/** Member sets of one reservation at the most. */
export const RESERVED_SETS_MAX = RESERVED_NUMBERS_MAX / NUMBERS_PER_SET;

/** Consecutive reserved numbers, and the servers that alone hold replicas of their files in the first view. */
export interface NumberRun {
  readonly first: number;
  readonly last: number;
  readonly members: readonly string[];
}

/** @returns which set each number belongs to: the sets in turn, for equally many numbers each, the last for the rest */
export function numberRuns(first: number, count: number, sets: readonly (readonly string[])[]): NumberRun[] {
  const length = Math.ceil(count / sets.length);
  return sets
    .map((members, index) => ({
      first: first + index * length,
      last: Math.min(first + (index + 1) * length, first + count) - 1,
      members,
    }))
    .filter((run) => run.first <= run.last);
}

/** Body of `POST /v1/births/numbers`. */
export const NumbersRequest = Type.Object({
  /** A random number of the client's own, by which alone its numbers can be used. */
  owner: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  count: Type.Integer({ minimum: 1, maximum: RESERVED_NUMBERS_MAX }),
  /** Volume of the files, whose number of replicas they get; three replicas where it is absent, as in earlier releases. */
  volume: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
});
export type NumbersRequest = Static<typeof NumbersRequest>;

/** Numbers for files of one owner, good for births at one server, and for `create-file` everywhere. */
export interface ReservedNumbers {
  /** `first` to before `first + count`. */
  readonly first: number;
  readonly count: number;
  /** Servers that hold the files, see `numberRuns`. Absent from a server of an earlier release: its numbers fork files. */
  readonly sets?: readonly (readonly string[])[];
  /** Id of the server that bears files by these numbers, as long as its process lives. */
  readonly bearer: string;
  /** That server takes contents of files that `create-file` has created by these numbers. Absent from earlier releases. */
  readonly named?: true;
  /** For how long they are good, in milliseconds from before they were asked for. */
  readonly validMs: number;
}
