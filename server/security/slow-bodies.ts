import type { FastifyInstance } from 'fastify';

/** What is read as a whole before it is looked at, a few MiB at the most, is there within this time or not at all. */
const BODY_MS_MAX = 60_000;
/** Bodies of any length: their handlers look after those who fall silent. */
const STREAMS = /^\/v1\/(?:files|uploads)\b/;

/** Ends requests whose body drips in: each holds a connection and what has come of it. */
export function limitSlowBodies(app: FastifyInstance, bodyMsMax: number = BODY_MS_MAX): void {
  app.addHook('onRequest', async ({ raw, headers, routeOptions }, reply) => {
    const hasBody = Number(headers['content-length'] ?? 0) > 0 || headers['transfer-encoding'] !== undefined;
    if (!hasBody || STREAMS.test(routeOptions.url ?? '')) return;
    const timer = setTimeout(() => raw.destroy(), bodyMsMax);
    // Whoever was answered without being heard out is looked after by the limits of the connection.
    const clear = (): void => clearTimeout(timer);
    raw.once('end', clear).once('close', clear);
    reply.raw.once('close', clear).once('finish', clear);
  });
}
