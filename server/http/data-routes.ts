import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { releaseMemory } from '../../base/releasable-memory.ts';
import { MalformedError } from '../../wire/bytes.ts';
import {
  decodeWriteParts,
  FILE_BYTES_MAX,
  WRITE_BYTES_MAX,
  WRITE_PARTS_BYTES_MAX,
  type WritePart,
} from '../../wire/file-operation.ts';
import {
  type AcknowledgedRequest,
  type CopyOrder,
  type FileState,
  UNSYNCED_REQUESTS_MAX,
  type WriteGuard,
} from '../../wire/http-api.ts';
import { HEADER_LOCAL_MISS } from '../../wire/locations.ts';
import type { SnapshotReadOptions } from '../routing/file-gateway.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { ChangeRequest } from '../routing/service-interfaces.ts';
import { headersOfRead, headersOfState } from '../routing/state-headers.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { bufferOf, setFileHeaders } from './answers.ts';
import { callOptionsOf, fileIdOf, integerOf } from './input.ts';
import { readOctets } from './octets.ts';
import { READ, WRITE } from './roles.ts';

type Parameters = Readonly<Record<string, unknown>>;

const OCTETS = 'application/octet-stream';

/** Contents of files by number, `/v1/data/{file}`: for the client library, the mount and forwarding servers. */
export function dataRoutes(app: FastifyInstance, gateway: Gateway, metrics: MetricsRegistry): void {
  const misses = metrics.counter(
    'leasehold_local_misses_total',
    'Short-circuit reads that failed at the client and were repeated over the network',
    ['why'],
  );
  // A body is bytes, whatever its Content-Type says.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', readOctets);

  app.get('/v1/data/:file', READ, async (request, reply) => {
    const file = fileOf(request);
    const query = request.query as Parameters;
    const offset = integerOf(query.offset ?? '0', 'offset');
    const length = integerOf(query.length, 'length', 0, WRITE_BYTES_MAX);
    const stale = query.consistency === 'stale';
    const options = { ...callOptionsOf(request.headers), ...shownOptionsOf(query), stale };
    const missed = request.headers[HEADER_LOCAL_MISS];
    if (missed !== undefined) misses.add(1, { why: missed === 'late' ? 'late' : 'other' });
    const read = await gateway.files.read(file, offset, length, options);
    const { bytes, state } = read;
    setFileHeaders(reply, gateway, state.file as FileId, state);
    reply.headers({ ...headersOfState(state), ...headersOfRead(read, stale) });
    // The system has all bytes by then. After an answer that breaks off the garbage collector frees them.
    reply.raw.once('finish', () => releaseMemory(bytes));
    return reply.type(OCTETS).header('content-length', String(bytes.length)).send(bufferOf(bytes));
  });

  app.put('/v1/data/:file', { ...WRITE, bodyLimit: WRITE_BYTES_MAX }, async (request, reply) => {
    const file = fileOf(request);
    const query = request.query as Parameters;
    const bytes = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
    if (bytes.length === 0) throw new ServiceError('bad-request', 'The write has an empty body');
    const offset =
      query.offset === 'append'
        ? 'append'
        : integerOf(query.offset, 'offset', 0, FILE_BYTES_MAX - bytes.length);
    const options = { ...callOptionsOf(request.headers), guard: guardOf(query) };
    return answer(reply, file, await gateway.files.write(file, requestIdOf(query), offset, bytes, options));
  });

  app.put('/v1/data/:file/parts', { ...WRITE, bodyLimit: WRITE_PARTS_BYTES_MAX }, async (request, reply) => {
    const file = fileOf(request);
    const parts = writePartsOf(request.body);
    const options = callOptionsOf(request.headers);
    const requestId = requestIdOf(request.query as Parameters);
    return answer(reply, file, await gateway.files.writeParts(file, requestId, parts, options));
  });

  app.post('/v1/data/:file/truncate', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const query = request.query as Parameters;
    const size = integerOf(query.size, 'size', 0, FILE_BYTES_MAX);
    const options = callOptionsOf(request.headers);
    return answer(reply, file, await gateway.files.truncate(file, requestIdOf(query), size, options));
  });

  app.post('/v1/data/:file/punch', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const query = request.query as Parameters;
    const from = integerOf(query.from, 'from', 0, FILE_BYTES_MAX);
    const to = integerOf(query.to, 'to', from, FILE_BYTES_MAX);
    const grows = query.grows === 'true';
    const options = callOptionsOf(request.headers);
    const hole = { from, to, grows };
    return answer(reply, file, await gateway.files.punch(file, requestIdOf(query), hole, options));
  });

  app.get('/v1/data/:file/extents', READ, async (request, reply) => {
    const file = fileOf(request);
    const query = request.query as Parameters;
    const offset = integerOf(query.offset ?? '0', 'offset');
    const { whence } = query;
    if (whence !== 'data' && whence !== 'hole') {
      throw new ServiceError('bad-request', '"whence" is "data" or "hole"');
    }
    const options = { ...callOptionsOf(request.headers), ...shownOptionsOf(query) };
    return answer(reply, file, await gateway.files.extent(file, offset, whence, options));
  });

  app.post('/v1/data/:file/copy', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const order = copyOrderOf(request.body);
    const requestId = requestIdOf(request.query as Parameters);
    const options = callOptionsOf(request.headers);
    return answer(reply, file, await gateway.files.copy(file, requestId, order, options));
  });

  app.post('/v1/data/:file/flush', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const { unsynced } = request.query as Parameters;
    const requests = unsynced === undefined ? [] : unsyncedOf(String(unsynced));
    return answer(reply, file, await gateway.files.flush(file, callOptionsOf(request.headers), requests));
  });

  app.post('/v1/data/:file/seal', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const { contents } = guardOf(request.query as Parameters);
    return answer(reply, file, await gateway.files.seal(file, callOptionsOf(request.headers), contents));
  });

  app.post('/v1/data/:file/settle', WRITE, async (request, reply) => {
    const file = fileOf(request);
    return answer(reply, file, await gateway.files.settle(file, callOptionsOf(request.headers)));
  });

  app.get('/v1/data/:file/state', READ, async (request, reply) => {
    const file = fileOf(request);
    const options = { ...callOptionsOf(request.headers), ...shownOptionsOf(request.query as Parameters) };
    return answer(reply, file, await gateway.files.state(file, options));
  });

  app.get('/v1/data/:file/standing', READ, async (request, reply) => {
    const file = fileOf(request);
    const leaseStatus = await gateway.files.leaseStatus(file, callOptionsOf(request.headers));
    setFileHeaders(reply, gateway, file, null);
    return leaseStatus;
  });

  function answer(reply: FastifyReply, file: FileId, state: FileState): FileState {
    setFileHeaders(reply, gateway, file, state);
    return state;
  }
}

function fileOf(request: FastifyRequest): FileId {
  return fileIdOf((request.params as Parameters).file);
}

function writePartsOf(body: unknown): WritePart[] {
  try {
    return decodeWriteParts(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  } catch (cause) {
    if (!(cause instanceof MalformedError)) throw cause;
    throw new ServiceError(
      'bad-request',
      `The body is not a valid list of parts: ${cause.message}`,
      {},
      { cause },
    );
  }
}

function copyOrderOf(body: unknown): CopyOrder & { readonly from: FileId } {
  let order: unknown;
  try {
    order = JSON.parse(Buffer.isBuffer(body) ? body.toString() : '');
  } catch (cause) {
    throw new ServiceError('bad-request', 'The body is not JSON', {}, { cause });
  }
  const fields = typeof order === 'object' && order !== null ? (order as Parameters) : {};
  const place = (name: keyof CopyOrder): number =>
    integerOf(JSON.stringify(fields[name]), name, 0, FILE_BYTES_MAX);
  return {
    from: fileIdOf(JSON.stringify(fields.from)),
    fromOffset: place('fromOffset'),
    toOffset: place('toOffset'),
    length: place('length'),
    ...(fields.snapshot !== undefined && {
      snapshot: integerOf(JSON.stringify(fields.snapshot), 'snapshot', 1),
    }),
  };
}

function guardOf(query: Parameters): WriteGuard {
  const { 'if-contents': contents, 'if-size': size, 'if-changed': changedNs } = query;
  const [epoch, seq] = String(contents).split('-');
  return {
    ...(contents !== undefined && {
      contents: { epoch: integerOf(epoch, 'if-contents'), seq: integerOf(seq, 'if-contents') },
    }),
    ...(size !== undefined && { sizeBytes: integerOf(size, 'if-size') }),
    ...(changedNs !== undefined && { changedNs: String(changedNs) }),
  };
}

/** Returns the snapshot to read, or the newest version that the read may show. */
export function shownOptionsOf({ snapshot, 'as-of': asOf }: Parameters): SnapshotReadOptions {
  const [epoch, seq] = String(asOf).split('-');
  return {
    ...(snapshot !== undefined && { snapshot: integerOf(snapshot, 'snapshot', 1) }),
    ...(asOf !== undefined && { asOf: { epoch: integerOf(epoch, 'as-of'), seq: integerOf(seq, 'as-of') } }),
  };
}

/** Inverse of `unsyncedText`. */
function unsyncedOf(text: string): AcknowledgedRequest[] {
  const requests = text.split(',');
  if (requests.length > UNSYNCED_REQUESTS_MAX) {
    throw new ServiceError('bad-request', `"unsynced" names at most ${UNSYNCED_REQUESTS_MAX} changes`);
  }
  return requests.map((request) => {
    const [session, number, since] = request.split('-');
    return {
      session: integerOf(session, 'unsynced', 1),
      number: integerOf(number, 'unsynced', 1),
      since: integerOf(since, 'unsynced'),
    };
  });
}

/** Returns session and number of a change. `under`: the client's locks under which it makes the change. */
function requestIdOf(query: Parameters): ChangeRequest {
  const number = integerOf(query.number, 'number', 1);
  const [client, stamp] = String(query.under).split('-');
  return {
    session: integerOf(query.session, 'session', 1),
    number,
    since: integerOf(query.since, 'since'),
    ...(query.under !== undefined && {
      under: { client: integerOf(client, 'under', 1), stamp: integerOf(stamp, 'under') },
    }),
    ...(query.answered !== undefined && { answered: integerOf(query.answered, 'answered', 0, number - 1) }),
  };
}
