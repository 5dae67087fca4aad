import { constants } from 'node:crypto';
import type { RequestListener, Server, ServerOptions } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { FastifyBaseLogger } from 'fastify';
import { createServer } from '../../platform/node-http.ts';
import { continueWhenRead } from '../requests/expectation.ts';
import type { Connections } from './connections.ts';
import { TLS_VERSION_MIN } from './peer-tls.ts';
import type { TlsMaterial, TlsTexts } from './tls-material.ts';

export interface ListenerLimits {
  /** Bytes of a request's head: enough for a path of many percent-encoded names. */
  readonly headerBytes: number;
  /** From its first byte to its last. */
  readonly headersMs: number;
  readonly handshakeMs: number;
  /** Longer than clients and peers keep an idle connection, so that they close it first. */
  readonly keepAliveMs: number;
  /** Without a byte either way. Longer than any request waits; a client that does not read its answer costs memory. */
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

/** Checks of time limits within the shortest of them. */
const CHECKS = 4;

/** Creates the HTTP server. With TLS a client needs no certificate (it may have a token); an invalid one is refused. */
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
    // An upload may take any time; the upload itself notices a client that stops sending.
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
  connections?.countOn(server);
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
    // A resumed session would not send its certificate again, which may have ended since.
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
  // Before the handshake is done nothing can be written: a graceful end would wait forever.
  server.prependListener('tlsClientError', (_error, socket) => socket.destroy());
  server.on('secureConnection', (socket) => {
    const certificate = socket.getPeerX509Certificate();
    if (certificate === undefined) return;
    const isRevoked = tls.revocations.isRevoked(certificate);
    if (socket.authorized && !isRevoked) {
      connections?.markProven(socket);
      return tls.revocations.track(socket);
    }
    const { remoteAddress: address, authorizationError } = socket;
    const reason = isRevoked
      ? `certificate ${certificate.serialNumber} is revoked`
      : String(authorizationError);
    log.warn({ address, reason }, 'connection refused: invalid client certificate');
    socket.destroy();
  });
  tls.onChange((texts) => server.setSecureContext(context(texts)));
  return server;
}
