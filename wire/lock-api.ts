import { LOCK_REQUESTS_PENDING_MAX, LOCKS_PER_CLIENT_MAX } from './lock-limits.ts';
import { type Static, Type } from './schema.ts';

/** `posix`: byte ranges of `fcntl`; `flock`: the whole file. They do not interact. */
export type LockKind = 'posix' | 'flock';

const Whole = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** A byte offset: a number, or decimal digits if a number would be inexact. */
const Offset = Type.Union([Whole, Type.String({ pattern: '^[1-9][0-9]{15,18}$' })]);
const Number53 = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

const LockFields = {
  owner: Type.String({ minLength: 1, maxLength: 64 }),
  kind: Type.Union([Type.Literal('posix'), Type.Literal('flock')]),
  start: Offset,
  /** The last byte. The number 2^53 - 1 means the end of the file; the byte at that offset is in digits. */
  end: Offset,
  /** Process id for display; 0 if unknown. */
  pid: Whole,
};

export const WireLock = Type.Object(
  { ...LockFields, type: Type.Union([Type.Literal('shared'), Type.Literal('exclusive')]) },
  { additionalProperties: false },
);
export type WireLock = Static<typeof WireLock>;

/** A lock in calculations: from 0 to `LOCK_END`. */
export interface LockHeld extends Omit<WireLock, 'start' | 'end'> {
  readonly start: bigint;
  readonly end: bigint;
}

export interface LockOfClient extends LockHeld {
  readonly client: number;
}
export interface WireLockOfClient extends WireLock {
  readonly client: number;
}

/** The locks under which a client changes a file. */
export interface LocksHeld {
  readonly client: number;
  /** The client's newest stamp at its first lock, or after a failed change under the locks. */
  readonly stamp: number;
}

/** The requested state of a range: a lock, or none (`unlock`). */
export interface LockChange extends Omit<LockHeld, 'type'> {
  readonly type: 'shared' | 'exclusive' | 'unlock';
}

export interface LockChangeOfClient extends LockChange {
  readonly client: number;
}

/** `stamp` rises with each message about a file. A request below it and not in `pending` is over: copies are void. */
const MomentFields = {
  client: Number53,
  stamp: Number53,
  pending: Type.Array(Number53, { maxItems: LOCK_REQUESTS_PENDING_MAX }),
};

export const LockBody = Type.Object(
  {
    ...MomentFields,
    /** The stamp of the request's first attempt. */
    number: Number53,
    ...LockFields,
    type: Type.Union([Type.Literal('shared'), Type.Literal('exclusive'), Type.Literal('unlock')]),
    waitMs: Type.Number({ minimum: 0 }),
  },
  { additionalProperties: false },
);
export type LockBody = Static<typeof LockBody>;

/** Changes under the client's locks have this stamp (`LocksHeld.stamp`); older ones failed. A query parameter. */
interface SinceField {
  readonly since?: number;
}

/** What the client last received from the primary; epoch 0 before. In the query; absent from earlier releases. */
interface LastReceivedField {
  readonly heard?: LockPrimaryState;
}

/** The primary's epoch in each answer, and its client's in each message. */
export interface LockPrimaryState {
  readonly epoch: number;
  /** How often a client's locks or state lapsed with their lease in this epoch; absent from earlier releases. */
  readonly lapses?: number;
}

/** Sets no lock if the primary changed or the client's lease ended since `heard`: the request may be abandoned. */
export interface LockOrder extends LockBody, SinceField, LastReceivedField {}

export const LockRenewalBody = Type.Object(
  { ...MomentFields, locks: Type.Array(WireLock, { maxItems: LOCKS_PER_CLIENT_MAX }) },
  { additionalProperties: false },
);
export type LockRenewalBody = Static<typeof LockRenewalBody>;

/** A renewal. Without effect in another epoch than `heard`: it may be late and name released locks. */
export interface LockClaim extends LockRenewalBody, SinceField, LastReceivedField {}

export interface LockGrant extends LockPrimaryState {
  readonly primary: string;
  /** Nothing was set: the request is older than this. The client repeats it if it still wants the lock. */
  readonly outdated?: true;
  /** Locks end without a renewal for this long; the client counts from before its request. */
  readonly leaseMs: number;
}

export interface LockRenewal extends LockGrant {
  /** Indexes in `locks` that the client lost. */
  readonly lost: readonly number[];
}

/** Answer of `GET /v1/data/{file}/locks`. */
export interface LockList {
  readonly primary: string;
  readonly epoch: number;
  readonly locks: readonly WireLockOfClient[];
  readonly waiting: number;
  /** Milliseconds left of the grace in which only locks of the previous primary are reclaimed. */
  readonly graceMs: number;
}
