import type { FastifyInstance, FastifyRequest } from 'fastify';
import { principalOf } from './principal.ts';
import type { TokenStore } from './token-file.ts';

/** Ends open requests whose client has lost its rights: an answer can be a stream that lasts for days. */
export function endRefusedRequests(app: FastifyInstance, tokens: TokenStore): void {
  const open = new Set<FastifyRequest>();
  app.addHook('onRequest', async (request, reply) => {
    if (request.principal?.kind !== 'client') return;
    open.add(request);
    reply.raw.once('close', () => open.delete(request));
  });
  tokens.onChange((nowMs) => {
    for (const request of open) {
      const before = request.principal;
      const now = principalOf(request, tokens, nowMs);
      const isSame =
        before?.kind === 'client' &&
        now?.kind === 'client' &&
        now.grant.role === before.grant.role &&
        String(now.grant.volumes) === String(before.grant.volumes);
      if (!isSame) request.raw.socket.destroy();
    }
  });
}
