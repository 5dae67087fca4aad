import type { IncomingMessage, RequestListener } from 'node:http';
import type { FastifyInstance } from 'fastify';

/** Requests whose client waits for `100 Continue`. */
const waiting = new WeakSet<IncomingMessage>();

/** Handles `Expect: 100-continue` (RFC 9110, 10.1.1): asks for the body when a handler reads it, after all checks. */
export function continueWhenRead(handler: RequestListener): RequestListener {
  return (request, response) => {
    waiting.add(request);
    const read = request._read;
    request._read = (bytes) => {
      if (waiting.delete(request) && !response.headersSent) response.writeContinue();
      read.call(request, bytes);
    };
    handler(request, response);
  };
}

export function isClientWaiting(request: IncomingMessage): boolean {
  return waiting.has(request);
}

/** Closes the connection of a client that is answered before its body, which it then does not send. */
export function closeAfterUnsent(app: FastifyInstance): void {
  app.addHook('onSend', async ({ raw }, reply) => {
    if (waiting.delete(raw)) reply.header('connection', 'close');
  });
}
