import { type Static, Type } from './schema.ts';

/** Reserved numbers for files to create with contents: `POST /v1/births/numbers`. */

/** Most numbers of one reservation. */
export const RESERVED_NUMBERS_MAX = 4_096;

/** Consecutive numbers with the same servers: new files spread, while those of one request seldom differ. */
export const NUMBERS_PER_SET = 64;
export const RESERVED_SETS_MAX = RESERVED_NUMBERS_MAX / NUMBERS_PER_SET;

/** Consecutive reserved numbers, and the only members of their files' first view. */
export interface NumberRun {
  readonly first: number;
  readonly last: number;
  readonly members: readonly string[];
}

/** @returns the set of each number: sets in order, each with equally many numbers, the last with the remainder */
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

export const NumbersRequest = Type.Object({
  /** The client's random number, which its numbers require. */
  owner: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  count: Type.Integer({ minimum: 1, maximum: RESERVED_NUMBERS_MAX }),
  /** Volume of the files, which gives the replica count; absent, as in earlier releases: three. */
  volume: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
  /** The directory of the volume whose placement class the files will have; absent: the volume's. */
  placement: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
});
export type NumbersRequest = Static<typeof NumbersRequest>;

/** Numbers of one owner, for create with contents at one server, and for `create-file` anywhere. */
export interface ReservedNumbers {
  readonly first: number;
  readonly count: number;
  /** Servers of the files, see `numberRuns`; absent from earlier releases, whose numbers fork files. */
  readonly sets?: readonly (readonly string[])[];
  /** The creating server: it creates files with these numbers, as long as its present process runs. */
  readonly creatingServer: string;
  /** As requested; absent from earlier releases, which choose servers of the volume. */
  readonly placement?: number;
  /** That server also takes contents of files created by `create-file`; absent from earlier releases. */
  readonly named?: true;
  /** Validity in milliseconds, from before the request was sent. */
  readonly validMs: number;
}
