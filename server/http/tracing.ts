import type { FastifyInstance } from 'fastify';
import type { World } from '../../base/world.ts';
import { currentTrace, traceOf, withinTrace } from '../telemetry/trace-context.ts';

/**
 * Adds each request to the trace that it brings. A sampled one is logged at its end: the lines of all servers, joined
 * by `trace_id` and `parent_id`, are the trace.
 */
export function installTracing(app: FastifyInstance, world: World): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const trace = traceOf(request.headers, world);
    if (trace === null) done();
    else withinTrace(trace, done);
  });
  app.addHook('onResponse', async (request, reply) => {
    if (currentTrace()?.sampled !== true) return;
    const { method, routeOptions } = request;
    request.log.info(
      {
        method,
        route: routeOptions.url ?? 'none',
        status: reply.statusCode,
        durationMs: Math.round(reply.elapsedTime),
      },
      'request (sampled trace)',
    );
  });
}
