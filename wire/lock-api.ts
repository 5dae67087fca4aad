import { LOCK_REQUESTS_PENDING_MAX, LOCKS_PER_CLIENT_MAX } from './lock-limits.ts';
import { type Static, Type } from './schema.ts';

/** Locks on files, as they travel in JSON. */

/** `posix`: ranges of bytes, of `fcntl`; `flock`: the whole file. The two do not see each other. */
export type LockKind = 'posix' | 'flock';

const Whole = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** Of a byte: a number, or decimal digits where a number would not be exact. */
const Offset = Type.Union([Whole, Type.String({ pattern: '^[1-9][0-9]{15,18}$' })]);
const Number53 = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

const LockFields = {
  /** Whose lock it is, among those of the client: opaque here. */
  owner: Type.String({ minLength: 1, maxLength: 64 }),
  kind: Type.Union([Type.Literal('posix'), Type.Literal('flock')]),
  start: Offset,
  /** The last byte that is in it. The number 2^53 - 1 is the end of the file, wherever that is; the byte of that offset has digits. */
  end: Offset,
  /** Of the process, for whoever asks; 0 where it is not known. */
  pid: Whole,
};

export const WireLock = Type.Object(
  { ...LockFields, type: Type.Union([Type.Literal('shared'), Type.Literal('exclusive')]) },
  { additionalProperties: false },
);
/** A lock of some client. */
export type WireLock = Static<typeof WireLock>;

/** A lock as it is computed with: from 0 to `LOCK_END`. */
export interface LockHeld extends Omit<WireLock, 'start' | 'end'> {
  readonly start: bigint;
  readonly end: bigint;
}

/** A lock, and the client that has it. */
export interface LockOfClient extends LockHeld {
  readonly client: number;
}
export interface WireLockOfClient extends WireLock {
  readonly client: number;
}

/** The locks of a file under which a client changes it. */
export interface LocksHeld {
  readonly client: number;
  /** The newest stamp of the client when it got the first of them, or since then a change that was made under them failed. */
  readonly stamp: number;
}

/** What an owner would have on a range: a lock, or (`unlock`) none. */
export interface LockWish extends Omit<LockHeld, 'type'> {
  readonly type: 'shared' | 'exclusive' | 'unlock';
}

/** A wish of some client. */
export interface WishOfClient extends LockWish {
  readonly client: number;
}

/**
 * Which requests of a client count. `stamp` rises with every message about a file. What has a smaller number than the
 * newest stamp and is not in `pending` is over: a copy of it that comes late changes nothing.
 */
const MomentFields = {
  client: Number53,
  stamp: Number53,
  pending: Type.Array(Number53, { maxItems: LOCK_REQUESTS_PENDING_MAX }),
};

export const LockBody = Type.Object(
  {
    ...MomentFields,
    /** The same in all attempts of one request; the stamp of the first. */
    number: Number53,
    ...LockFields,
    type: Type.Union([Type.Literal('shared'), Type.Literal('exclusive'), Type.Literal('unlock')]),
    waitMs: Type.Number({ minimum: 0 }),
  },
  { additionalProperties: false },
);
export type LockBody = Static<typeof LockBody>;

/**
 * Changes under the client's locks name this stamp (`LocksHeld.stamp`), and none before it: those have failed, or their locks are gone. In the
 * query, because servers of earlier releases refuse a body with it; absent from clients of earlier releases.
 */
interface SinceField {
  readonly since?: number;
}

/**
 * What the client has heard last from the file's primary; epoch 0 before it heard from any. In the query, as `since`; absent from clients of
 * earlier releases.
 */
interface HeardField {
  readonly heard?: LockMoment;
}

/** What a primary says of its epoch in each answer, and its client in each message. */
export interface LockMoment {
  readonly epoch: number;
  /** How often locks of a client, or what was known of one, have ended with their lease in this epoch; absent from servers of earlier releases. */
  readonly lapses?: number;
}

/**
 * A lock is asked for, or given back. Where the primary has changed since it was heard, or the client's time was over, no lock is set: the
 * request may be late, and its client not know of it any more.
 */
export interface LockOrder extends LockBody, SinceField, HeardField {}

export const LockRenewalBody = Type.Object(
  { ...MomentFields, locks: Type.Array(WireLock, { maxItems: LOCKS_PER_CLIENT_MAX }) },
  { additionalProperties: false },
);
export type LockRenewalBody = Static<typeof LockRenewalBody>;

/** A renewal. In another epoch than was heard it has no effect: it may be late, and name what was given back since. */
export interface LockClaim extends LockRenewalBody, SinceField, HeardField {}

/** The lock is set, or given back. */
export interface LockGrant extends LockMoment {
  readonly primary: string;
  /** Nothing was set, since the request is of an earlier moment than this. The client asks again if it still wants the lock. */
  readonly outdated?: true;
  /** A client that does not renew for this long has its locks no more; it counts from before it asked. */
  readonly leaseMs: number;
}

export interface LockRenewal extends LockGrant {
  /** Places in `locks` of what the client does not have any more. */
  readonly lost: readonly number[];
}

/** Answer of `GET /v1/data/{file}/locks`. */
export interface LockList {
  readonly primary: string;
  readonly epoch: number;
  readonly locks: readonly WireLockOfClient[];
  /** Requests that wait. */
  readonly waiting: number;
  /** For how long still no new lock is given, because those of the primary before are claimed. */
  readonly graceMs: number;
}
