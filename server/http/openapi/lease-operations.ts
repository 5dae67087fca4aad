import type { ErrorCode } from '../../../base/errors.ts';
import {
  LEASE_KEY_FORM,
  LEASE_KEYS_MAX,
  LEASE_NAME_FORM,
  LEASE_OWNER_FORM,
  LEASE_VALUE_MAX,
} from '../../../wire/named-lease.ts';
import {
  AcquireBody,
  GrantedLease,
  KeyBody,
  LeaseEventData,
  LeaseKeyValue,
  LeaseList,
  LeaseQueryAnswer,
  RefreshBody,
} from '../../../wire/named-lease-api.ts';
import { Type } from '../../../wire/schema.ts';
import { LIST_COUNT_MAX } from '../../named/lease-directory.ts';
import { HEARTBEAT_MS } from '../../named/named-leases.ts';
import { done, json, jsonAnswer, type Operation, type Operations, text } from './operation.ts';

/** What all routes of named leases have in common, in Markdown. */
export const LEASES_TAG = `A named lease is held by at most one session at any moment, until it ends or is released.

Any server takes any request. \`{name}\` is one segment of the path: slashes are written \`%2F\`.

**Session.** The holder's secret: a random integer from 1 to 2^53 - 1, drawn anew for each acquisition.

**End.** \`remainingMs\` counts from the arrival of the request. A holder counts it from before it sent the request, on a
clock that also advances while the machine sleeps, and stops before the end.

**Fencing token.** Each later holder of a name gets a larger \`token\`. The resource that a lease protects stores the
largest token that it has seen, and refuses requests with a smaller one.

**Waiting.** No request waits for a lease to become free: \`acquireLease\` answers \`lease-taken\` at once. To wait,
watch the lease (\`watchLease\`) until \`released\` or \`expired\`, at most for the holder's \`remainingMs\`, and try again.

**Repeating.** After a 503, or without an answer, the request may have been executed. Repeat it at another server with
the same session: \`acquireLease\` grants a session what it already has. A change of keys also repeats its
\`Leasehold-Change\`.`;

const session = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "The holder's secret: a random integer from 1 to 2^53 - 1",
});
const SESSION = { 'Leasehold-Session': session };
const CHANGE = {
  ...SESSION,
  'Leasehold-Change': Type.Integer({
    minimum: 1,
    maximum: Number.MAX_SAFE_INTEGER,
    description:
      'Number of this change of keys, larger for each change of the session. The number of the last change changes ' +
      'nothing (a repetition); a smaller one is refused (precondition-failed)',
  }),
};
const TOKEN = {
  'Leasehold-Token': Type.Integer({ minimum: 0, description: 'The fencing token, as in the body' }),
};
const KEYS_TEXT =
  `At most ${LEASE_KEYS_MAX} keys. A key has ${LEASE_KEY_FORM}; a value at most ${LEASE_VALUE_MAX} UTF-16 code units. ` +
  'Keys end with the lease; every client may read them.';

const granted = jsonAnswer('The lease', GrantedLease);
const GRANTED = { ...granted, headers: TOKEN };

type Errors = Readonly<Partial<Record<ErrorCode, string>>>;

/** Of each route. */
const GENERAL: Errors = {
  'bad-request': 'name, key, header, query or body is malformed; `detail` says which',
  unauthorized: 'the servers have tokens, and the request has none, or an invalid one',
  forbidden: 'the token has a smaller role than this route needs',
  busy: 'the server has reached a limit of requests or watches',
  recovering: 'the server started a short time ago, or its clock was set back, and does not vote yet',
  'clock-fault': 'the clock of the server is out of bounds; use another server',
  internal: 'a failure that the log of the server describes',
};
const COLLISION: Errors = {
  'lease-taken': 'another name with the same hash is held; `holder` is absent',
};
const UNKNOWN: Errors = {
  unknown: 'no majority of the voters answered: the outcome is unknown; repeat with the same session',
};
const QUERIED: Errors = { 'no-majority': 'no majority of the voters answered; nothing is known' };
const LOST: Errors = {
  'lease-lost':
    'the session does not hold the lease (any more): stop what it protects; `holder` is the present one, if any',
};
const CHANGED: Errors = {
  ...COLLISION,
  ...LOST,
  'precondition-failed': 'a larger `Leasehold-Change` of the session was executed before',
  ...QUERIED,
  ...UNKNOWN,
};
const TOO_LARGE: Errors = {
  'too-large': 'too many keys, or too long a value or too many characters together',
};

const lease = (
  id: string,
  summary: string,
  errors: Errors,
  rest: Omit<Operation, 'id' | 'tag' | 'summary' | 'errors'>,
): Operation => ({
  id,
  tag: 'leases',
  summary,
  errors: { ...GENERAL, ...errors },
  parameters: {
    name: Type.String({ description: `Name of the lease: ${LEASE_NAME_FORM}. Slashes are written %2F` }),
    key: Type.String({ description: `A key has ${LEASE_KEY_FORM}. Slashes are written %2F` }),
  },
  ...rest,
});

export const LEASE_OPERATIONS: Operations = {
  'GET /v1/leases': lease(
    'listLeases',
    'Lists named leases',
    {},
    {
      description:
        'Combines what single servers know as held: a hint, which may be outdated. What only an unreachable server ' +
        'knows is missing.',
      query: {
        prefix: text('Only names with this prefix'),
        limit: Type.Integer({ minimum: 1, maximum: LIST_COUNT_MAX, description: 'Maximum number of leases' }),
      },
      answers: {
        200: jsonAnswer('Leases by name; `more`: others have the prefix, too', LeaseList),
      },
    },
  ),
  'POST /v1/leases/:name': lease(
    'acquireLease',
    'Acquires a lease',
    {
      'lease-taken': 'another session has it until its end: `holder` says which, and for how long at least',
      ...TOO_LARGE,
      ...UNKNOWN,
    },
    {
      description:
        'Does not wait for the holder. The session that has the lease is granted it again, with its token and keys, ' +
        `which makes the request repeatable. \`owner\` has ${LEASE_OWNER_FORM}. \`ttlMs\` is at least 4 clock skews ` +
        `and at most \`--named-lease-max\` of the servers. ${KEYS_TEXT}`,
      headers: {
        'Leasehold-Session': {
          ...session,
          description: `${session.description}. Without it, the server draws one`,
        },
      },
      body: json(AcquireBody),
      answers: { 201: GRANTED },
    },
  ),
  'PATCH /v1/leases/:name': lease(
    'refreshLease',
    'Renews a lease',
    { ...CHANGED, ...TOO_LARGE },
    {
      description:
        'The lease ends `ttlMs` from now (default: the length of the acquisition), never earlier than before. `keys` ' +
        `replace all keys. The token stays. Renew at half of the length. ${KEYS_TEXT}`,
      headers: CHANGE,
      required: ['Leasehold-Session'],
      body: json(RefreshBody),
      answers: { 200: GRANTED },
    },
  ),
  'DELETE /v1/leases/:name': lease(
    'releaseLease',
    'Releases a lease',
    { ...COLLISION, ...LOST, ...UNKNOWN },
    {
      description: 'Also answers 204 if the lease is over and no other session has it.',
      headers: SESSION,
      required: ['Leasehold-Session'],
      answers: { 204: done },
    },
  ),
  'GET /v1/leases/:name': lease(
    'leaseStatus',
    'State of a lease',
    { ...COLLISION, ...QUERIED },
    {
      description:
        'By default from a majority of the voters, true at some moment after the request arrived.\n\n`stale`: what the ' +
        'server itself knows, at once; only a server that votes on the name has such knowledge, others ask a majority.',
      query: {
        consistency: Type.Union([Type.Literal('majority'), Type.Literal('stale')], {
          description: 'majority (default) or stale',
        }),
      },
      answers: { 200: { ...jsonAnswer('The state', LeaseQueryAnswer), headers: TOKEN } },
    },
  ),
  'GET /v1/leases/:name/keys/:key': lease(
    'readKey',
    'Reads a key of a lease',
    { ...COLLISION, 'not-found': 'the holder has not set the key, or the lease has no holder', ...QUERIED },
    { answers: { 200: { ...jsonAnswer('The value', LeaseKeyValue), headers: TOKEN } } },
  ),
  'PUT /v1/leases/:name/keys/:key': lease(
    'writeKey',
    'Sets a key of a lease, and renews it',
    { ...CHANGED, ...TOO_LARGE },
    {
      description: KEYS_TEXT,
      headers: CHANGE,
      required: ['Leasehold-Session'],
      body: json(KeyBody),
      answers: { 200: GRANTED },
    },
  ),
  'DELETE /v1/leases/:name/keys/:key': lease(
    'removeKey',
    'Removes a key of a lease, and renews it',
    CHANGED,
    {
      headers: CHANGE,
      required: ['Leasehold-Session'],
      answers: { 200: GRANTED },
    },
  ),
  'GET /v1/leases/:name/watch': lease(
    'watchLease',
    'Server-sent events of a lease',
    {},
    {
      description:
        'A stream (WHATWG server-sent events) without an end. First the event `state`, from a majority; then a change ' +
        'each: `acquired`, `refreshed`, `keys`, `released` (before its end), `expired` (after its end and the clock ' +
        'skew). The type of an event is in `event:`, `data:` is one JSON object with the state after it.\n\n' +
        `The server sends an event or a comment (a line that starts with a colon) at least every ${HEARTBEAT_MS} ms. ` +
        'Events have no id: a client whose stream ends opens another one, at any server, and begins with `state`. A slow ' +
        'reader gets only the newest state: tokens show that holders were missed.',
      answers: {
        200: {
          text: 'Events; the schema is that of their `data`',
          media: { type: 'text/event-stream', schema: LeaseEventData },
        },
      },
    },
  ),
};
