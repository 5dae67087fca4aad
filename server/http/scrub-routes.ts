import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { isServerId, type ServerId } from '../../base/ids.ts';
import type { ScrubStatus, ScrubStatuses } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { ADMIN, READ } from './roles.ts';

/** The answer has null for a server that takes longer. */
const PEER_SCRUB_MS = 2_000;

export interface Scrubbing {
  start(): void;
  status(): Promise<ScrubStatus>;
}

/** Starts and reports the search for damaged objects, on one server or on all. */
export function scrubRoutes(app: FastifyInstance, gateway: Gateway, scrubber: Scrubbing): void {
  const { status } = gateway.services;

  app.get('/v1/scrub/self', READ, () => scrubber.status());

  app.post('/v1/scrub/self', ADMIN, () => {
    scrubber.start();
    return scrubber.status();
  });

  app.get('/v1/scrub', READ, (request) => ofAll('GET', request.query));
  app.post('/v1/scrub', ADMIN, (request) => ofAll('POST', request.query));

  async function ofAll(method: 'GET' | 'POST', query: unknown): Promise<ScrubStatuses> {
    const { server } = query as { server?: unknown };
    const known = [...status.urls.keys()];
    const wanted = server === undefined ? known : known.filter((id) => id === server);
    if (wanted.length === 0) {
      const name = typeof server === 'string' && isServerId(server) ? ` "${server}"` : '';
      throw new ServiceError('not-found', `Unknown server${name}: the servers are ${known.join(', ')}`);
    }
    return Object.fromEntries(await Promise.all(wanted.map(async (id) => [id, await of(method, id)])));
  }

  async function of(method: 'GET' | 'POST', id: ServerId): Promise<ScrubStatus | null> {
    if (id === status.id) {
      if (method === 'POST') scrubber.start();
      return scrubber.status();
    }
    try {
      const { bytes } = await gateway.peers.exchange(id, { method, path: '/v1/scrub/self' }, PEER_SCRUB_MS);
      return JSON.parse(Buffer.from(bytes).toString('utf8')) as ScrubStatus;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return null;
    }
  }
}
