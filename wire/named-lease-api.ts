import { LEASE_EVENTS } from './lease-events.ts';
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

const RemainingMs = Type.Number({
  minimum: 0,
  description:
    'Milliseconds from the arrival of the request; a holder counts from before it sent the request',
});
const Token = Type.Integer({
  minimum: 1,
  description: 'Fencing token: larger than that of each earlier holder of the name; a renewal keeps it',
});
const Owner = Type.String({ description: 'Name of the holder for people' });
const Name = Type.String({ description: 'Name of the lease' });

export const GrantedLease = Type.Object({
  name: Name,
  owner: Owner,
  session: Type.Integer({ minimum: 1, description: 'Secret of the holder' }),
  token: Token,
  ttlMs: Type.Number({ description: 'Length requested at the acquisition' }),
  remainingMs: RemainingMs,
  keys: Keys,
});
export type GrantedLease = Static<typeof GrantedLease>;

const STATE = {
  held: Type.Boolean(),
  owner: Type.Union([Type.String(), Type.Null()]),
  token: Type.Integer({ minimum: 0, description: "The present holder's; else the last known one, or 0" }),
  remainingMs: RemainingMs,
  keys: Keys,
};

/** The public state of a lease. */
export const LeaseState = Type.Object(STATE);
export type LeaseState = Static<typeof LeaseState>;

export const LeaseQueryAnswer = Type.Object({
  name: Name,
  ...STATE,
  consistency: Type.Union([Type.Literal('majority'), Type.Literal('member')], {
    description:
      'majority: true at some moment after the request arrived; member: known to one server, maybe outdated',
  }),
});
export type LeaseQueryAnswer = Static<typeof LeaseQueryAnswer>;

export const LeaseKeyValue = Type.Object({
  name: Name,
  key: Type.String(),
  value: Type.String(),
  token: Token,
});
export type LeaseKeyValue = Static<typeof LeaseKeyValue>;

export const LeaseListEntry = Type.Object({
  name: Name,
  owner: Owner,
  token: Token,
  remainingMs: RemainingMs,
});
export type LeaseListEntry = Static<typeof LeaseListEntry>;

/** A hint, combined from single servers' knowledge. */
export const LeaseList = Type.Object({
  leases: Type.Array(LeaseListEntry),
  more: Type.Boolean(),
  unreachable: Type.Array(Type.String({ description: 'Id of a server without an answer' })),
});
export type LeaseList = Static<typeof LeaseList>;

/** Data of a server-sent event of a watch, whose type is the kind. */
export const LeaseEventData = Type.Object({ name: Name, ...STATE });

/** An event of a watch, with the state after it. */
export const LeaseEvent = Type.Object({
  kind: Type.Union(LEASE_EVENTS.map((kind) => Type.Literal(kind))),
  name: Name,
  ...STATE,
});
export type LeaseEvent = Static<typeof LeaseEvent>;
