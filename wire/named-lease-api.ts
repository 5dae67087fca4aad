import type { LeaseEventKind } from './lease-events.ts';
import type { LeaseKeys } from './named-lease.ts';
import { type Static, Type } from './schema.ts';

/** Named leases in JSON. All spans are in milliseconds. */

const SpanMs = Type.Number({ exclusiveMinimum: 0 });
/** The service checks form and number, with clearer messages than a pattern's. */
const Keys = Type.Record(Type.String());

export const AcquireBody = Type.Object(
  { owner: Type.String(), ttlMs: SpanMs, keys: Type.Optional(Keys) },
  { additionalProperties: false },
);
export type AcquireBody = Static<typeof AcquireBody>;

/** `keys` replace all earlier ones. */
export const RefreshBody = Type.Object(
  { ttlMs: Type.Optional(SpanMs), keys: Type.Optional(Keys) },
  { additionalProperties: false },
);
export type RefreshBody = Static<typeof RefreshBody>;

export const KeyBody = Type.Object({ value: Type.String() }, { additionalProperties: false });
export type KeyBody = Static<typeof KeyBody>;

export interface GrantedLease {
  readonly name: string;
  readonly owner: string;
  readonly session: number;
  readonly token: number;
  /** Length requested at the acquisition. */
  readonly ttlMs: number;
  /** From the arrival of the request; a holder counts from before sending it. */
  readonly remainingMs: number;
  readonly keys: LeaseKeys;
}

/** The public state of a lease. */
export interface LeaseState {
  readonly held: boolean;
  readonly owner: string | null;
  /** The present holder's; else the last known one, or 0. */
  readonly token: number;
  readonly remainingMs: number;
  readonly keys: LeaseKeys;
}

export interface LeaseQueryAnswer extends LeaseState {
  readonly name: string;
  /** `majority`: true at some moment after the question. `member`: one server's knowledge, which may be wrong. */
  readonly consistency: 'majority' | 'member';
}

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

/** A hint, combined from single servers' knowledge. */
export interface LeaseList {
  readonly leases: readonly LeaseListEntry[];
  /** More names have the prefix. */
  readonly more: boolean;
  /** Servers without an answer; what only they know is missing. */
  readonly unreachable: readonly string[];
}

/** An event of a watch, with the state after it. */
export interface LeaseEvent extends LeaseState {
  readonly kind: LeaseEventKind;
  readonly name: string;
}
