import {
  CacheRequest,
  ChangesRequest,
  CommandRequest,
  FlushRequest,
  QueryRequest,
} from '../../../wire/catalog-api.ts';
import { LateErrorReport } from '../../../wire/late-errors.ts';
import { LockBody, LockRenewalBody } from '../../../wire/lock-api.ts';
import { AcquireBody, KeyBody, RefreshBody } from '../../../wire/named-lease-api.ts';
import { NumbersRequest } from '../../../wire/reserved-numbers.ts';
import { Type } from '../../../wire/schema.ts';
import {
  count,
  done,
  flag,
  json,
  jsonAnswer,
  type Operation,
  type Operations,
  octets,
  text,
} from './operation.ts';

const SESSION = { 'Leasehold-Session': count('The session that holds the lease: its secret') };
const ORDER = {
  session: count('Of the client, for this file'),
  number: count('Of the request in the session, from 1'),
  since: count('The sequence number of the file when the session began'),
  answered: count('No number up to this one is asked for any more'),
  under: text('CLIENT-STAMP of the locks under which it is made: refused where the client has lost them'),
};
const Members = Type.Object({ members: Type.Array(Type.String()) });
const written = { 200: jsonAnswer('The file after it') };
const state = { 200: jsonAnswer('The state of the file') };
const page = (what: string) => ({
  200: { text: what, media: { type: 'text/plain', schema: Type.String() } },
});

const data = (id: string, summary: string, rest: Partial<Operation> = {}): Operation => ({
  id,
  tag: 'data',
  summary,
  answers: state,
  ...rest,
});

const cluster = (id: string, summary: string, rest: Partial<Operation> = {}): Operation => ({
  id,
  tag: 'cluster',
  summary,
  answers: { 200: jsonAnswer(summary) },
  ...rest,
});

export const OTHER_OPERATIONS: Operations = {
  'GET /v1/leases': {
    id: 'listLeases',
    tag: 'leases',
    summary: 'Leases under names',
    query: { prefix: text('Of the names'), limit: count('Leases at the most') },
    answers: { 200: jsonAnswer('Leases') },
  },
  'POST /v1/leases/:name': {
    id: 'acquireLease',
    tag: 'leases',
    summary: 'Acquires a lease',
    headers: SESSION,
    body: json(AcquireBody),
    answers: { 201: jsonAnswer('The lease') },
  },
  'PATCH /v1/leases/:name': {
    id: 'refreshLease',
    tag: 'leases',
    summary: 'Makes a lease last longer',
    headers: SESSION,
    body: json(RefreshBody),
    answers: { 200: jsonAnswer('The lease') },
  },
  'DELETE /v1/leases/:name': {
    id: 'releaseLease',
    tag: 'leases',
    summary: 'Gives a lease back',
    headers: SESSION,
    answers: { 204: done },
  },
  'GET /v1/leases/:name': {
    id: 'lookAtLease',
    tag: 'leases',
    summary: 'Who holds a lease',
    query: { consistency: text('majority or stale') },
    answers: { 200: jsonAnswer('The lease') },
  },
  'GET /v1/leases/:name/keys/:key': {
    id: 'readKey',
    tag: 'leases',
    summary: 'A value that a lease carries',
    answers: { 200: jsonAnswer('The value') },
  },
  'PUT /v1/leases/:name/keys/:key': {
    id: 'writeKey',
    tag: 'leases',
    summary: 'Changes a value that a lease carries',
    headers: SESSION,
    body: json(KeyBody),
    answers: { 200: jsonAnswer('The lease') },
  },
  'DELETE /v1/leases/:name/keys/:key': {
    id: 'removeKey',
    tag: 'leases',
    summary: 'Removes a value that a lease carries',
    headers: SESSION,
    answers: { 200: jsonAnswer('The lease') },
  },
  'GET /v1/leases/:name/watch': {
    id: 'watchLease',
    tag: 'leases',
    summary: 'Server-sent events of a lease',
    answers: { 200: { text: 'Events', media: { type: 'text/event-stream', schema: Type.String() } } },
  },
  'GET /v1/events': cluster(
    'watchCluster',
    'Server-sent events: the cluster as it is, and what happens in it',
    {
      query: {
        watch: text('volume:/path of a file to be shown as well'),
        kept: text('Volume of which it is told that its trash or its snapshots have changed'),
      },
      answers: { 200: { text: 'Events', media: { type: 'text/event-stream', schema: Type.String() } } },
    },
  ),
  'GET /v1/events/self': cluster('eventsOfServer', 'What happened at this server', {
    query: { after: count('Events behind this one'), files: text('Numbers of files, separated by commas') },
  }),
  'GET /v1/status': cluster('status', 'The cluster, with a verdict'),
  'GET /v1/status/self': cluster('statusOfServer', 'The server that is asked'),
  'GET /v1/servers': cluster('servers', 'What the server knows of the others'),
  'GET /v1/check': cluster('check', 'Compares the replicas of all servers with the catalog', {
    query: { after: count('Files with larger numbers') },
  }),
  'GET /v1/check/self': cluster('checkServer', 'Compares the replicas of this server with the catalog', {
    query: { after: count('Files with larger numbers') },
  }),
  'GET /v1/certificates/revoked': cluster(
    'revokedCertificates',
    'Certificates that are not believed any more',
  ),
  'GET /v1/scrub': cluster('scrubState', 'How far the servers are with reading their disks', {
    query: { server: text('Only this one') },
  }),
  'POST /v1/scrub': cluster('scrub', 'Makes the servers read their disks', {
    query: { server: text('Only this one') },
  }),
  'GET /v1/scrub/self': cluster('scrubStateOfServer', 'How far this server is with reading its disk'),
  'POST /v1/scrub/self': cluster('scrubServer', 'Makes this server read its disk'),
  'GET /livez': cluster('livez', 'Whether the process answers', { answers: page('It does') }),
  'GET /readyz': cluster('readyz', 'Whether this server serves', { answers: page('It does') }),
  'GET /metrics': cluster('metrics', 'What the server counts, for Prometheus', { answers: page('Counts') }),
  'POST /v1/data/:file/members': cluster('moveReplicas', 'Moves the replicas of a file', {
    body: json(Members),
  }),
  'POST /v1/catalog/members': cluster('moveCatalog', 'Moves the catalog', { body: json(Members) }),
  'POST /v1/catalog/commands': {
    id: 'command',
    tag: 'catalog',
    summary: 'Executes a command of the catalog',
    body: json(CommandRequest),
    answers: { 200: jsonAnswer('The result') },
  },
  'POST /v1/catalog/queries': {
    id: 'query',
    tag: 'catalog',
    summary: 'Answers a query of the catalog',
    body: json(QueryRequest),
    answers: { 200: jsonAnswer('The result') },
  },
  'POST /v1/catalog/capabilities': {
    id: 'capabilities',
    tag: 'catalog',
    summary: 'What it takes to touch the contents of files by number, where servers ask who does',
    body: json(Type.Object({ files: Type.Array(Type.Integer()) })),
    answers: { 200: jsonAnswer('A capability for each file') },
  },
  'POST /v1/catalog/cache': {
    id: 'renewCache',
    tag: 'catalog',
    summary: 'Renews what a client remembers',
    body: json(CacheRequest),
    answers: { 200: jsonAnswer('What to forget') },
  },
  'POST /v1/catalog/changes': {
    id: 'changes',
    tag: 'catalog',
    summary: 'What was changed below a directory',
    body: json(ChangesRequest),
    answers: { 200: jsonAnswer('The changes') },
  },
  'POST /v1/catalog/flush': {
    id: 'flushCatalog',
    tag: 'catalog',
    summary: 'Commands answered so far survive power loss',
    body: json(FlushRequest),
    answers: { 200: jsonAnswer('Which of the commands that were named are missing'), 204: done },
  },
  'GET /v1/data/:file': data('readData', 'Bytes of one state of a file', {
    query: {
      offset: count('From here'),
      length: count('Up to 4 MiB'),
      consistency: text('stale: from any replica'),
    },
    answers: {
      200: {
        text: 'Bytes',
        media: octets,
        headers: ['Leasehold-Size', 'Leasehold-Contents', 'Leasehold-Seq'],
      },
    },
  }),
  'PUT /v1/data/:file': data('writeData', 'Writes up to 4 MiB', {
    query: {
      offset: text('A number, or append'),
      ...ORDER,
      'if-contents': text('EPOCH-SEQ of the contents that are expected'),
      'if-size': count('The size that is expected'),
      'if-changed': text('The changedNs of the inode in the catalog that is expected'),
    },
    body: octets,
    answers: written,
  }),
  'PUT /v1/data/:file/parts': data('writeDataParts', 'Writes at up to 256 places, as one operation', {
    query: ORDER,
    body: octets,
    answers: written,
  }),
  'POST /v1/data/:file/truncate': data('truncate', 'Sets the size', {
    query: { size: count('In bytes'), ...ORDER },
    answers: written,
  }),
  'POST /v1/data/:file/punch': data('punch', 'Makes a hole', {
    query: {
      from: count('First byte'),
      to: count('Behind the last byte'),
      grows: flag('The file reaches to the end of the hole'),
      ...ORDER,
    },
    answers: written,
  }),
  'GET /v1/data/:file/extents': data('extents', 'Where data, or a hole, begins', {
    query: { offset: count('Not before'), whence: text('data or hole') },
  }),
  'GET /v1/data/:file/locations': data(
    'locations',
    'Where bytes lie on the disk of the server that is asked',
    {
      query: { offset: count('First byte'), length: count('Bytes, at most 16 MiB') },
      headers: { 'Leasehold-Local-Proof': text('Shows that the data folder can be read') },
      answers: { 200: { text: 'Objects and their places', media: octets } },
    },
  ),
  'GET /v1/local': data('localFolder', "The server's data folder, for those on its machine", {
    answers: { 200: jsonAnswer('The folder', Type.Object({ folder: Type.String() })) },
  }),
  'POST /v1/data/:file/copy': data('copyData', 'Copies bytes of another file', {
    query: ORDER,
    body: json(),
    answers: written,
  }),
  'POST /v1/data/:file/flush': data('flush', 'What was acknowledged survives power loss', {
    query: {
      unsynced: text(
        'SESSION-NUMBER-SINCE of changes, with commas between; `lost` says that one of them is gone',
      ),
    },
  }),
  'POST /v1/data/:file/seal': data('seal', 'The file changes no more', {
    query: { 'if-contents': text('EPOCH-SEQ of the contents that are expected') },
  }),
  'POST /v1/data/:file/settle': data('settle', 'The catalog has size and time'),
  'POST /v1/data/settle': data('settleMany', 'The catalog has size and time of many files', {
    body: json(Type.Object({ files: Type.Array(Type.Integer()) })),
  }),
  'POST /v1/mounts/late-errors': data('reportLateError', 'An acknowledged operation was dropped', {
    body: json(LateErrorReport),
    answers: { 204: done },
  }),
  'POST /v1/births/numbers': data('reserveNumbers', 'Numbers for files that come as a whole', {
    body: json(NumbersRequest),
    answers: { 200: jsonAnswer('The numbers, and who bears files by them') },
  }),
  'POST /v1/births': data('bearFiles', 'New files as a whole, many in one request', {
    body: octets,
    answers: { 200: jsonAnswer('What became of each') },
  }),
  'GET /v1/data/:file/state': data('state', 'Size, time and version'),
  'GET /v1/data/:file/standing': data('standing', 'Lease and replicas'),
  'GET /v1/data/:file/locks': data('locks', 'Locks on a file'),
  'POST /v1/data/:file/locks': data('lock', 'Sets a lock, or gives it back', { body: json(LockBody) }),
  'POST /v1/data/:file/locks/renew': data('renewLocks', 'A client lives, and has these locks', {
    body: json(LockRenewalBody),
  }),
};
