import { type Static, Type } from './schema.ts';

/** Numbers for new files that are going to be borne: `POST /v1/births/numbers`. */

/** Numbers that are reserved at a time at the most. */
export const RESERVED_NUMBERS_MAX = 4_096;

/** Body of `POST /v1/births/numbers`. */
export const NumbersRequest = Type.Object({
  /** A random number of the client's own, by which alone its numbers can be used. */
  owner: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  count: Type.Integer({ minimum: 1, maximum: RESERVED_NUMBERS_MAX }),
});
export type NumbersRequest = Static<typeof NumbersRequest>;

/** Numbers for files of one owner, good for births at one server, and for `create-file` everywhere. */
export interface ReservedNumbers {
  /** `first` to before `first + count`. */
  readonly first: number;
  readonly count: number;
  /** Id of the server that bears files by these numbers, as long as its process lives. */
  readonly bearer: string;
  /** For how long they are good, in milliseconds from before they were asked for. */
  readonly validMs: number;
}
