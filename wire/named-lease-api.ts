import type { LeaseEventKind } from './lease-events.ts';
import type { LeaseKeys } from './named-lease.ts';
import { type Static, Type } from './schema.ts';

/** Leases under names, as they travel in JSON. All spans are in milliseconds. */

const SpanMs = Type.Number({ exclusiveMinimum: 0 });
/** Form and number are checked by the service, whose messages say more than a pattern. */
const Keys = Type.Record(Type.String());

export const AcquireBody = Type.Object(
  { owner: Type.String(), ttlMs: SpanMs, keys: Type.Optional(Keys) },
  { additionalProperties: false },
);
export type AcquireBody = Static<typeof AcquireBody>;

/** `keys`, where given, replace all that were there. */
export const RefreshBody = Type.Object(
  { ttlMs: Type.Optional(SpanMs), keys: Type.Optional(Keys) },
  { additionalProperties: false },
);
export type RefreshBody = Static<typeof RefreshBody>;

export const KeyBody = Type.Object({ value: Type.String() }, { additionalProperties: false });
export type KeyBody = Static<typeof KeyBody>;

/** What a holder is told of its own lease. */
export interface GrantedLease {
  readonly name: string;
  readonly owner: string;
  readonly session: number;
  readonly token: number;
  /** Length asked for when it was acquired. */
  readonly ttlMs: number;
  /** Counted from the moment the request arrived: a holder counts from before it sent it. */
  readonly remainingMs: number;
  readonly keys: LeaseKeys;
}

/** What everybody may know of a lease. */
export interface LeaseState {
  readonly held: boolean;
  readonly owner: string | null;
  /** Of the present holder; where nobody holds it, of the last one that is still known, or 0. */
  readonly token: number;
  readonly remainingMs: number;
  readonly keys: LeaseKeys;
}

export interface LeaseLook extends LeaseState {
  readonly name: string;
  /** `majority`: it was so at a moment between question and answer. `member`: what one server believes; it may be wrong. */
  readonly consistency: 'majority' | 'member';
}

/** One pair of a lease. */
export interface LeaseKeyValue {
  readonly name: string;
  readonly key: string;
  readonly value: string;
  readonly token: number;
}

export interface LeaseListEntry {
  readonly name: string;
  readonly owner: string;
  readonly token: number;
  readonly remainingMs: number;
}

/** A hint: put together from what single servers believe at about the same time. */
export interface LeaseList {
  readonly leases: readonly LeaseListEntry[];
  /** Further names begin with the prefix. */
  readonly more: boolean;
  /** Servers that were not heard; what only they know is missing. */
  readonly unreachable: readonly string[];
}

/** An event of a watch. The state is that after the event. */
export interface LeaseEvent extends LeaseState {
  readonly kind: LeaseEventKind;
  readonly name: string;
}
