import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { FileId } from '../../base/ids.ts';
import { HEADER_EPOCH, HEADER_PRIMARY } from '../../wire/http-api.ts';
import { LockBody, type LockList, type LockOrder, LockRenewalBody } from '../../wire/lock-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { CallOptions } from '../routing/router.ts';
import { bodyReader } from './body.ts';
import { callOptionsOf, fileIdOf, integerOf } from './input.ts';
import { READ, WRITE } from './roles.ts';

const lockBody = bodyReader(LockBody);
const renewalBody = bodyReader(LockRenewalBody);

/** `/v1/data/{file}/locks`: locks of `fcntl` and `flock`, at the file's primary. */
export function lockRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/v1/data/:file/locks', READ, async (request, reply): Promise<LockList> => {
    const file = fileOf(request);
    return answer(reply, await gateway.files.locks(file, callOptionsOf(request.headers)));
  });

  app.post('/v1/data/:file/locks', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const order = { ...lockBody(request), ...sinceOf(request), ...knownPrimaryOf(request) };
    return answer(reply, await gateway.files.lock(file, order, optionsOf(request)));
  });

  app.post('/v1/data/:file/locks/renew', WRITE, async (request, reply) => {
    const file = fileOf(request);
    const claim = { ...renewalBody(request), ...sinceOf(request), ...knownPrimaryOf(request) };
    return answer(reply, await gateway.files.renewLocks(file, claim, optionsOf(request)));
  });
}

function answer<Answer extends { readonly primary: string; readonly epoch: number }>(
  reply: FastifyReply,
  result: Answer,
): Answer {
  reply.header(HEADER_PRIMARY, result.primary).header(HEADER_EPOCH, String(result.epoch));
  return result;
}

function sinceOf({ query }: FastifyRequest): { readonly since?: number } {
  const { since } = query as Readonly<Record<string, unknown>>;
  return since === undefined ? {} : { since: integerOf(since, 'since') };
}

function knownPrimaryOf({ query }: FastifyRequest): Pick<LockOrder, 'heard'> {
  const { epoch, lapses = '0' } = query as Readonly<Record<string, unknown>>;
  if (epoch === undefined) return {};
  return { heard: { epoch: integerOf(epoch, 'epoch'), lapses: integerOf(lapses, 'lapses') } };
}

/** Adds the client to which the locks belong: that of the token, or the one that a forwarding server names. */
function optionsOf({ headers, principal, query }: FastifyRequest): CallOptions {
  const options = callOptionsOf(headers);
  if (principal?.kind === 'client') return { ...options, holder: principal.grant.name };
  const { holder } = query as Readonly<Record<string, unknown>>;
  return principal?.kind === 'server' && typeof holder === 'string' ? { ...options, holder } : options;
}

function fileOf(request: FastifyRequest): FileId {
  return fileIdOf((request.params as Readonly<Record<string, unknown>>).file);
}
