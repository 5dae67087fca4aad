import { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { checkServerIdentity, type PeerCertificate, type SecureVersion, TLSSocket } from 'node:tls';
import type { ServerId } from '../../base/ids.ts';
import { buildConnector, type Connector } from '../../platform/undici.ts';
import { identityOf } from './certified.ts';
import type { TlsMaterial, TlsTexts } from './tls-material.ts';

export const TLS_VERSION_MIN: SecureVersion = 'TLSv1.3';

export interface DialOptions extends TlsTexts {
  readonly minVersion: SecureVersion;
  readonly checkServerIdentity: (host: string, certificate: PeerCertificate) => Error | undefined;
}

/** TLS between servers, with proof of the identity of both. */
export class PeerTls {
  readonly #material: TlsMaterial;

  constructor(material: TlsMaterial) {
    this.#material = material;
  }

  /** Options of a connection to `server`. Its certificate must name it: the address may be that of a forwarder. */
  dialOptions(server: ServerId): DialOptions {
    return this.#options((_host, certificate) => {
      const identity = identityOf(new X509Certificate(certificate.raw));
      if (identity?.kind === 'server' && identity.id === server) return undefined;
      const whose = identity?.kind === 'server' ? `for ${identity.id}` : 'not a server certificate';
      return new Error(
        `The certificate at the address of ${server} is ${whose}: correct the address or the certificate`,
      );
    });
  }

  connectorTo(server: ServerId, timeoutMs: number): Connector {
    return this.#connector(() => this.dialOptions(server), timeoutMs);
  }

  /** Connects to a server of which only the address is known: its certificate must contain the address. */
  connectorByHost(timeoutMs: number): Connector {
    return this.#connector(
      () =>
        this.#options((host, certificate) => {
          const identity = identityOf(new X509Certificate(certificate.raw));
          if (identity?.kind !== 'server')
            return new Error(`The certificate of ${host} is not a server certificate`);
          return checkServerIdentity(host, certificate);
        }),
      timeoutMs,
    );
  }

  #connector(options: () => DialOptions, timeout: number): Connector {
    return (target, callback) =>
      buildConnector({ ...options(), timeout, maxCachedSessions: 0 })(target, (...outcome) => {
        if (outcome[1] !== null) this.track(outcome[1]);
        callback(...outcome);
      });
  }

  track(socket: Socket): void {
    if (socket instanceof TLSSocket) this.#material.revocations.track(socket);
  }

  #options(check: DialOptions['checkServerIdentity']): DialOptions {
    const { current, revocations } = this.#material;
    const { cert, key, ca } = current;
    return {
      ...{ cert, key, ca, minVersion: TLS_VERSION_MIN },
      checkServerIdentity: (host, certificate) => {
        const { serialNumber } = certificate;
        return revocations.isRevoked(new X509Certificate(certificate.raw))
          ? new Error(`The certificate at ${host} is revoked (${serialNumber})`)
          : check(host, certificate);
      },
    };
  }
}
