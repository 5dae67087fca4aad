import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { CheckPage } from '../../wire/http-api.ts';
import type { CheckedPage, ReplicaCheck } from '../file/replica-check.ts';
import type { Gateway } from '../routing/gateway.ts';
import { integerOf } from './input.ts';
import { ADMIN } from './roles.ts';

/** A server that takes longer for a page is reported as unreachable. */
const PEER_CHECK_MS = 10_000;

/** Compares the replicas of all servers with the catalog, a page of files at a time. */
export function checkRoutes(app: FastifyInstance, gateway: Gateway, check: ReplicaCheck): void {
  const { status } = gateway.services;

  app.get('/v1/check/self', ADMIN, (request) => check.page(afterOf(request.query)));

  app.get('/v1/check', ADMIN, async (request): Promise<CheckPage> => {
    const after = afterOf(request.query);
    const servers = [...status.urls.keys()];
    const pages = await Promise.all(servers.map((server) => pageOf(server, after)));
    const answered = pages.filter((page) => page !== null);
    const ends = answered.flatMap(({ next }) => next ?? []);
    // The next request asks all servers again from the end of the shortest page.
    const through = ends.length === 0 ? null : Math.min(...ends);
    const findings = answered
      .flatMap((page) => page.findings)
      .filter(({ file }) => through === null || file <= through)
      .sort((a, b) => a.file - b.file || (a.server < b.server ? -1 : 1));
    return {
      findings,
      compared: answered.reduce((sum, { compared }) => sum + compared, 0),
      next: through,
      unreachable: servers.filter((_, place) => pages[place] === null),
    };
  });

  async function pageOf(server: ServerId, after: FileId): Promise<CheckedPage | null> {
    if (server === status.id) return check.page(after);
    try {
      const request = { method: 'GET', path: `/v1/check/self?after=${after}` } as const;
      const { bytes } = await gateway.peers.exchange(server, request, PEER_CHECK_MS);
      return JSON.parse(Buffer.from(bytes).toString('utf8')) as CheckedPage;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return null;
    }
  }
}

function afterOf(query: unknown): FileId {
  const { after } = query as { readonly after?: unknown };
  return (after === undefined ? 0 : integerOf(after, 'after')) as FileId;
}
