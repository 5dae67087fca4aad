import {
  CacheRequest,
  ChangesRequest,
  CommandRequest,
  FlushRequest,
  QueryRequest,
} from '../../../wire/catalog-api.ts';
import { LateErrorReport } from '../../../wire/late-errors.ts';
import { LockBody, LockRenewalBody } from '../../../wire/lock-api.ts';
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

const ORDER = {
  session: count('Of the client, for this file'),
  number: count('Of the request in the session, from 1'),
  since: count('The sequence number of the file when the session began'),
  answered: count('Answers up to this number are no longer needed'),
  under: text('CLIENT-STAMP of the locks that protect the change: refused if the client has lost them'),
};
const Members = Type.Object({ members: Type.Array(Type.String()) });
const written = { 200: jsonAnswer('State of the file after the change') };
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
  'GET /v1/events': cluster('watchCluster', 'Server-sent events: cluster state and events', {
    query: {
      watch: text('volume:/path of a file whose state is included'),
      kept: text('Volume whose trash and snapshot changes are reported'),
    },
    answers: { 200: { text: 'Events', media: { type: 'text/event-stream', schema: Type.String() } } },
  }),
  'GET /v1/events/self': cluster('eventsOfServer', 'Events of this server', {
    query: { after: count('Events after this number'), files: text('Numbers of files, separated by commas') },
  }),
  'GET /v1/status': cluster('status', 'Status of the cluster'),
  'GET /v1/status/self': cluster('statusOfServer', 'Status of this server'),
  'GET /v1/servers': cluster('servers', 'Known servers'),
  'GET /v1/servers/:id/ok-to-stop': cluster('okToStop', 'Whether a server can be stopped now'),
  'GET /v1/check': cluster('check', 'Compares the replicas of all servers with the catalog', {
    query: { after: count('Only files with larger numbers') },
  }),
  'GET /v1/check/self': cluster('checkServer', 'Compares the replicas of this server with the catalog', {
    query: { after: count('Only files with larger numbers') },
  }),
  'GET /v1/certificates/revoked': cluster('revokedCertificates', 'Revoked certificates'),
  'GET /v1/scrub': cluster('scrubState', 'Progress of the scrubbers', {
    query: { server: text('Only this one') },
  }),
  'POST /v1/scrub': cluster('scrub', 'Starts the scrubbers', {
    query: { server: text('Only this one') },
  }),
  'GET /v1/scrub/self': cluster('scrubStateOfServer', "Progress of this server's scrubber"),
  'POST /v1/scrub/self': cluster('scrubServer', "Starts this server's scrubber"),
  'GET /livez': cluster('livez', 'Liveness probe', { answers: page('Yes') }),
  'GET /readyz': cluster('readyz', 'Readiness probe', { answers: page('Yes') }),
  'GET /metrics': cluster('metrics', 'Metrics in the Prometheus format', { answers: page('Metrics') }),
  'POST /v1/data/:file/members': cluster('moveReplicas', 'Moves the replicas of a file', {
    body: json(
      Type.Object({
        ...Members.properties,
        decidedBy: Type.Optional(
          Type.Integer({ description: 'The view by which they were chosen: a later view stays as it is' }),
        ),
      }),
    ),
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
    summary: 'Issues capabilities for the contents of files by number',
    body: json(Type.Object({ files: Type.Array(Type.Integer()) })),
    answers: { 200: jsonAnswer('A capability for each file') },
  },
  'POST /v1/catalog/cache': {
    id: 'renewCache',
    tag: 'catalog',
    summary: "Renews a client's cache session",
    body: json(CacheRequest),
    answers: { 200: jsonAnswer('Cache entries to invalidate') },
  },
  'POST /v1/catalog/changes': {
    id: 'changes',
    tag: 'catalog',
    summary: 'Changes in a directory tree',
    body: json(ChangesRequest),
    answers: { 200: jsonAnswer('The changes') },
  },
  'POST /v1/catalog/flush': {
    id: 'flushCatalog',
    tag: 'catalog',
    summary: 'Makes all answered commands durable',
    body: json(FlushRequest),
    answers: { 200: jsonAnswer('The named commands that were lost'), 204: done },
  },
  'GET /v1/data/:file': data('readData', 'Reads bytes of one version of a file', {
    query: {
      offset: count('Offset of the first byte'),
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
  'PUT /v1/data/:file/parts': data('writeDataParts', 'Writes up to 256 ranges as one operation', {
    query: ORDER,
    body: octets,
    answers: written,
  }),
  'POST /v1/data/:file/truncate': data('truncate', 'Sets the size', {
    query: { size: count('In bytes'), ...ORDER },
    answers: written,
  }),
  'POST /v1/data/:file/punch': data('punch', 'Punches a hole', {
    query: {
      from: count('First byte'),
      to: count('End of the range, exclusive'),
      grows: flag('Extends the file to the end of the hole'),
      ...ORDER,
    },
    answers: written,
  }),
  'GET /v1/data/:file/extents': data('extents', 'Finds the next data or hole', {
    query: { offset: count('Start of the search'), whence: text('data or hole') },
  }),
  'GET /v1/data/:file/locations': data(
    'locations',
    'Locations of bytes on the disk of this server, for short-circuit reads',
    {
      query: { offset: count('First byte'), length: count('Bytes, at most 16 MiB') },
      headers: { 'Leasehold-Local-Proof': text('Proof that the client can read the data folder') },
      answers: { 200: { text: 'Objects and their places', media: octets } },
    },
  ),
  'GET /v1/local': data('localFolder', "The server's data folder, for clients on the same machine", {
    answers: { 200: jsonAnswer('The folder', Type.Object({ folder: Type.String() })) },
  }),
  'POST /v1/data/:file/copy': data('copyData', 'Copies bytes of another file', {
    query: ORDER,
    body: json(),
    answers: written,
  }),
  'POST /v1/data/:file/flush': data('flush', 'Makes acknowledged changes durable', {
    query: {
      unsynced: text(
        'SESSION-NUMBER-SINCE of changes, comma-separated; `lost` in the answer says that one of them was lost',
      ),
    },
  }),
  'POST /v1/data/:file/seal': data('seal', 'Seals a file', {
    query: { 'if-contents': text('EPOCH-SEQ of the contents that are expected') },
  }),
  'POST /v1/data/:file/settle': data('settle', 'Settles a file: reports its size and time to the catalog'),
  'POST /v1/data/settle': data('settleMany', 'Settles many files', {
    body: json(Type.Object({ files: Type.Array(Type.Integer()) })),
  }),
  'POST /v1/mounts/late-errors': data('reportLateError', 'A mount reports a dropped acknowledged operation', {
    body: json(LateErrorReport),
    answers: { 204: done },
  }),
  'POST /v1/births/numbers': data('reserveNumbers', 'Reserves numbers for files created with contents', {
    body: json(NumbersRequest),
    answers: { 200: jsonAnswer('The numbers, and the creating server') },
  }),
  'POST /v1/births': data('createFiles', 'Creates files with contents, many in one request', {
    body: octets,
    answers: { 200: jsonAnswer('Outcome of each file') },
  }),
  'GET /v1/data/:file/state': data('state', 'Size, time and version'),
  'GET /v1/data/:file/standing': data('replicas', 'Lease and replicas'),
  'GET /v1/data/:file/locks': data('locks', 'Locks on a file'),
  'POST /v1/data/:file/locks': data('lock', 'Sets or releases a lock', { body: json(LockBody) }),
  'POST /v1/data/:file/locks/renew': data('renewLocks', "Renews a client's locks", {
    body: json(LockRenewalBody),
  }),
};
