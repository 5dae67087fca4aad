import type { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { checkServerIdentity, type PeerCertificate, TLSSocket } from 'node:tls';
import { ServiceError } from '../../base/errors.ts';
import type { Timer, World } from '../../base/world.ts';
import { parseRevokedList, serialText } from '../../wire/tokens.ts';

/** How soon a replaced list applies in a long-running client, such as a mount. */
const CHECK_PERIOD_MS = 5_000;

/**
 * Server certificates that this client refuses before they expire, listed in a file. A replaced list applies to open
 * connections, too; while the file is unreadable, the previous list applies.
 */
export class RevokedServers {
  readonly #file: string;
  #serials: ReadonlySet<string>;
  readonly #sockets = new Map<TLSSocket, X509Certificate>();
  #timer: Timer | null = null;

  /** @throws ServiceError `bad-request` if the file is invalid: to trust all servers then would be a surprise */
  constructor(file: string) {
    this.#file = file;
    this.#serials = readSerials(file);
  }

  watch(world: World): void {
    this.#timer ??= world.every(CHECK_PERIOD_MS, () => this.#reload()).unref();
  }

  /** Replaces Node's own check of the name, and includes it. */
  readonly check = (host: string, certificate: PeerCertificate): Error | undefined => {
    const wrong = checkServerIdentity(host, certificate);
    if (wrong !== undefined || !this.#serials.has(serialText(certificate.serialNumber))) return wrong;
    return Object.assign(new Error(`the certificate ${serialText(certificate.serialNumber)} is revoked`), {
      code: 'CERT_REVOKED',
    });
  };

  watchSocket(socket: Socket): void {
    const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
    if (certificate === undefined) return;
    this.#sockets.set(socket as TLSSocket, certificate);
    socket.once('close', () => this.#sockets.delete(socket as TLSSocket));
  }

  #reload(): void {
    try {
      this.#serials = readSerials(this.#file);
    } catch (error) {
      // The file may be half replaced: the next check finds it whole.
      if (!(error instanceof ServiceError)) throw error;
      return;
    }
    for (const [socket, { serialNumber }] of this.#sockets)
      if (this.#serials.has(serialText(serialNumber)))
        socket.destroy(new Error(`the certificate of the server is revoked`));
  }
}

function readSerials(file: string): ReadonlySet<string> {
  try {
    return new Set(parseRevokedList(readFileSync(file, 'utf8')).map(({ serial }) => serial));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ServiceError(
      'bad-request',
      `Cannot read the revoked certificates in "${file}": ${why}; "leasehold cert revoked --out FILE" writes such a file`,
      {},
      { cause },
    );
  }
}
