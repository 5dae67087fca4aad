import { constants } from 'node:crypto';
import type { RequestListener, Server, ServerOptions } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { FastifyBaseLogger } from 'fastify';
import { createServer } from '../../http-parts/node-http.ts';
import { continueWhenRead } from '../http/expectation.ts';
import type { Connections } from './connections.ts';
import { TLS_VERSION_MIN } from './peer-tls.ts';
import type { TlsMaterial, TlsTexts } from './tls-material.ts';

/** How much of a server those who connect to it may take before anybody knows what they want. */
export interface ListenerLimits {
  /** Of a head: room for a path of many names, each percent-encoded. */
  readonly headerBytes: number;
  /** From the first byte of a head to its end. */
  readonly headersMs: number;
  readonly handshakeMs: number;
  /** Longer than clients and peers keep an idle connection, so that it is them who close it. */
  readonly keepAliveMs: number;
  /**
   * A connection on which neither side has moved a byte for so long is ended: a client that does not read its answer must
   * not keep it in memory. Longer than any request waits without a word.
   */
  readonly silentMs: number;
  /** Each costs a descriptor and some ten KiB; a mount has up to 128. */
  readonly connections: number;
}

export const LISTENER_LIMITS: ListenerLimits = {
  headerBytes: 64 * 1024,
  headersMs: 30_000,
  handshakeMs: 10_000,
  keepAliveMs: 75_000,
  silentMs: 180_000,
  connections: 8_192,
};

/** How often limits of time are looked at, in parts of the shortest. */
const CHECKS = 4;

/**
 * What accepts connections: plain, or with TLS where there is a certificate. A client need not show a certificate,
 * since it may have a token; one that shows a certificate which is not good is not let in, whatever else it has.
 */
export function createListener(
  handler: RequestListener,
  tls: TlsMaterial | null,
  log: FastifyBaseLogger,
  limits: ListenerLimits = LISTENER_LIMITS,
  connections: Connections | null = null,
): Server {
  const options: ServerOptions = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersMs,
    connectionsCheckingInterval: limits.headersMs / CHECKS,
    // An upload takes as long as it takes; a client that stops sending is noticed by the upload itself.
    requestTimeout: 0,
    keepAliveTimeout: limits.keepAliveMs,
  };
  const server =
    tls === null
      ? createServer(options, handler)
      : secureServer(handler, tls, log, connections, { ...options, handshakeTimeout: limits.handshakeMs });
  server.on('checkContinue', continueWhenRead(handler));
  server.maxConnections = connections?.bounds.all ?? limits.connections;
  server.timeout = limits.silentMs;
  connections?.attend(server);
  return server;
}

function secureServer(
  handler: RequestListener,
  tls: TlsMaterial,
  log: FastifyBaseLogger,
  connections: Connections | null,
  options: ServerOptions & { readonly handshakeTimeout: number },
): Server {
  const context = (texts: TlsTexts) => ({
    ...texts,
    minVersion: TLS_VERSION_MIN,
    // A resumed session would not be asked for its certificate again, which may have ended meanwhile.
    secureOptions: constants.SSL_OP_NO_TICKET,
  });
  const server = createTlsServer(
    {
      ...options,
      ...context(tls.current),
      requestCert: true,
      rejectUnauthorized: false,
    },
    handler,
  );
  // Nothing can be written before the handshake is done: without an end by force its socket would wait for that for ever.
  server.prependListener('tlsClientError', (_error, socket) => socket.destroy());
  server.on('secureConnection', (socket) => {
    const certificate = socket.getPeerX509Certificate();
    if (certificate === undefined) return;
    const isRevoked = tls.revocations.isRevoked(certificate);
    if (socket.authorized && !isRevoked) {
      connections?.prove(socket);
      return tls.revocations.attend(socket);
    }
    const { remoteAddress: address, authorizationError } = socket;
    const reason = isRevoked
      ? `certificate ${certificate.serialNumber} is revoked`
      : String(authorizationError);
    log.warn({ address, reason }, 'connection refused: its certificate is not good');
    socket.destroy();
  });
  tls.onChange((texts) => server.setSecureContext(context(texts)));
  return server;
}
