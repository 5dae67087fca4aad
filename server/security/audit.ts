import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { World } from '../../base/world.ts';
import { HEADER_FORWARDED } from '../../wire/http-api.ts';
import { commandRole, describeCommand } from './catalog-rules.ts';
import { certifiedBy } from './certified.ts';
import { principalName } from './principal.ts';

/** Logs every change of the cluster by an administrator, and every request refused with 401 or 403. */
export function installAudit(app: FastifyInstance, world: World): void {
  app.addHook('onResponse', async (request, reply) => {
    const isRefusal = reply.statusCode === 401 || reply.statusCode === 403;
    if (!isRefusal && !isAdministrative(request)) return;
    // The server that forwarded the request has logged it.
    if (request.principal?.kind === 'server' && request.headers[HEADER_FORWARDED] !== undefined) return;
    const [path] = request.originalUrl.split('?');
    request.log.info(
      {
        audit: true,
        who: principalName(request.principal),
        serial: certifiedBy(request.raw.socket, world.wallMs())?.serial,
        address: request.raw.socket.remoteAddress,
        what: `${request.method} ${path}`,
        ...describeCommand(request.body),
        status: reply.statusCode,
      },
      isRefusal
        ? 'request refused'
        : reply.statusCode < 400
          ? 'administrative request succeeded'
          : 'administrative request failed',
    );
  });
}

function isAdministrative(request: FastifyRequest): boolean {
  const { url, config } = request.routeOptions;
  if (url === '/v1/catalog/commands') return commandRole(request.body) === 'admin';
  return config.role === 'admin' && request.method !== 'GET' && request.method !== 'HEAD';
}
