import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import type { World } from '../../base/world.ts';
import { serialText } from '../../wire/tokens.ts';
import { identityOf } from './certified.ts';

const TIMER_MS_MAX = 2 ** 31 - 1;

/** Revoked certificates, and the open connections by certificate. */
export class Revocations {
  readonly #world: World;
  #serials: ReadonlySet<string> = new Set();
  readonly #sockets = new Map<TLSSocket, X509Certificate>();

  constructor(world: World) {
    this.#world = world;
  }

  isRevoked(certificate: X509Certificate): boolean {
    return this.#serials.has(serialText(certificate.serialNumber));
  }

  /** Replaces the revoked serial numbers; ends and counts the connections that used them. */
  replace(serials: readonly string[]): number {
    this.#serials = new Set(serials);
    const ended = [...this.#sockets].filter(([, certificate]) => this.isRevoked(certificate));
    for (const [socket] of ended) socket.destroy();
    return ended.length;
  }

  /**
   * Ends the connection at revocation, and a client's when its certificate ends. A server's connection outlives its
   * certificate: a late renewal must not end leases.
   */
  track(socket: TLSSocket): void {
    const certificate = socket.getPeerX509Certificate();
    if (certificate === undefined) return;
    this.#sockets.set(socket, certificate);
    const validMs = certificate.validToDate.getTime() - this.#world.wallMs();
    const end =
      identityOf(certificate)?.kind === 'client' && validMs < TIMER_MS_MAX
        ? this.#world.after(Math.max(0, validMs), () => socket.destroy()).unref()
        : undefined;
    socket.once('close', () => {
      end?.cancel();
      this.#sockets.delete(socket);
    });
  }
}
