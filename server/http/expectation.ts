import type { IncomingMessage, RequestListener } from 'node:http';
import type { FastifyInstance } from 'fastify';

/** Requests whose client waits for a word before it sends the body. */
const waiting = new WeakSet<IncomingMessage>();

/**
 * For requests with `Expect: 100-continue` (RFC 9110, 10.1.1): the client is asked for the body when somebody begins to read it,
 * which is after its rights and its conditions were judged.
 */
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

/** Whether the client of a request still waits before it sends the body. */
export function isClientWaiting(request: IncomingMessage): boolean {
  return waiting.has(request);
}

/** A client that is answered without having sent its body does not send it: nothing can follow on its connection. */
export function closeAfterUnsent(app: FastifyInstance): void {
  app.addHook('onSend', async ({ raw }, reply) => {
    if (waiting.delete(raw)) reply.header('connection', 'close');
  });
}
