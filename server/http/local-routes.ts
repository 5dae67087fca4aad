import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import {
  encodeLocations,
  HEADER_LOCAL_PROOF,
  LOCATIONS_BYTES_MAX,
  type LocalAnswer,
} from '../../wire/locations.ts';
import type { Gateway } from '../routing/gateway.ts';
import { headersOfState } from '../routing/state-headers.ts';
import type { LocalProof } from '../storage/local-proof.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { bufferOf, setFileHeaders } from './answers.ts';
import { shownOptionsOf } from './data-routes.ts';
import { callOptionsOf, fileIdOf, integerOf } from './input.ts';
import { READ } from './roles.ts';

/**
 * For clients on this machine that read this server's disk directly (decision 0051): the data folder, and the positions
 * of a file's bytes in it, for clients that prove that they can read the folder.
 */
export function localRoutes(
  app: FastifyInstance,
  gateway: Gateway,
  proof: LocalProof,
  metrics: MetricsRegistry,
): void {
  const located = metrics.counter('leasehold_located_bytes_total', 'Bytes served by short-circuit reads');

  app.get('/v1/local', READ, async (request): Promise<LocalAnswer> => {
    assertSameMachine(request);
    return { folder: proof.folder };
  });

  app.get('/v1/data/:file/locations', READ, async (request, reply) => {
    assertSameMachine(request);
    if (!proof.isValid(request.headers[HEADER_LOCAL_PROOF])) {
      throw new ServiceError(
        'forbidden',
        'The header Leasehold-Local-Proof is missing or wrong: read the proof in the folder that /v1/local names',
      );
    }
    const query = request.query as Readonly<Record<string, unknown>>;
    const file = fileIdOf((request.params as { readonly file?: unknown }).file);
    const offset = integerOf(query.offset, 'offset');
    const length = integerOf(query.length, 'length', 1, LOCATIONS_BYTES_MAX);
    const options = { ...callOptionsOf(request.headers), ...shownOptionsOf(query) };
    const { locations, state } = await gateway.files.locate(file, offset, length, options);
    if (locations === null)
      throw new ServiceError('not-found', 'This server has no data folder to read from');
    located.add(Math.max(0, locations.end - offset));
    setFileHeaders(reply, gateway, state.file as FileId, state);
    reply.headers(headersOfState(state));
    return reply.type('application/octet-stream').send(bufferOf(encodeLocations(locations)));
  });
}

/** @throws ServiceError unless the client is on this machine: the connection has the same address at both ends then */
function assertSameMachine({ raw: { socket } }: FastifyRequest): void {
  if (socket.remoteAddress !== undefined && socket.remoteAddress === socket.localAddress) return;
  throw new ServiceError('not-found', "Short-circuit reads work only on the server's machine");
}
