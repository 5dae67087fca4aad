import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { isServerId, type ServerId } from '../../base/ids.ts';
import type { ClusterServers } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { callOptionsOf, fileIdOf } from './input.ts';
import { ADMIN, READ } from './roles.ts';

export interface MembershipView {
  describe(): ClusterServers;
}

/** Moving a large file takes long: a repeated request waits for the same move. */
const CHANGE_MS_MAX = 60_000;

/** Routes about the servers and the placement of replicas. */
export function membershipRoutes(
  app: FastifyInstance,
  gateway: Gateway,
  membership: MembershipView | null,
): void {
  if (membership !== null) app.get('/v1/servers', READ, () => membership.describe());

  app.post('/v1/data/:file/members', ADMIN, async (request) => {
    const file = fileIdOf((request.params as Record<string, unknown>).file);
    const options = { ...callOptionsOf(request.headers), timeoutMs: CHANGE_MS_MAX };
    const decidedBy = decidedByOf(request.body);
    return gateway.files.changeMembers(file, membersOf(request.body), { ...options, decidedBy });
  });

  app.post('/v1/catalog/members', ADMIN, async (request) => {
    const options = { ...callOptionsOf(request.headers), timeoutMs: CHANGE_MS_MAX };
    return gateway.changeCatalogMembers(membersOf(request.body), options);
  });
}

function decidedByOf(body: unknown): number | undefined {
  const { decidedBy } = Object(body) as Record<string, unknown>;
  if (decidedBy === undefined || (typeof decidedBy === 'number' && Number.isSafeInteger(decidedBy)))
    return decidedBy;
  throw new ServiceError('bad-request', '"decidedBy" must be the number of a view');
}

function membersOf(body: unknown): ServerId[] {
  const { members } = typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  if (!Array.isArray(members) || members.length === 0 || new Set(members).size !== members.length) {
    throw new ServiceError('bad-request', '"members" must be a list of distinct server ids');
  }
  return members.map((id: unknown) => {
    if (typeof id !== 'string' || !isServerId(id)) {
      throw new ServiceError(
        'bad-request',
        `"members" contains ${JSON.stringify(id)}, which is not a server id`,
      );
    }
    return id;
  });
}
