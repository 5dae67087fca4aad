import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import type { World } from '../../base/world.ts';
import { serialText } from '../../wire/tokens.ts';
import { identityOf } from './certified.ts';

/** A timer waits no longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Certificates that are not believed any more before they end, and the connections of those who showed one. */
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

  /**
   * From now on this is what is revoked: connections of whoever has shown such a certificate end.
   *
   * @returns how many connections ended
   */
  become(serials: readonly string[]): number {
    this.#serials = new Set(serials);
    const ended = [...this.#sockets].filter(([, certificate]) => this.isRevoked(certificate));
    for (const [socket] of ended) socket.destroy();
    return ended.length;
  }

  /**
   * The connection ends when the certificate of its other side is revoked, and a client's when its certificate ends. Servers keep theirs: no
   * lease is to end because a certificate was not renewed in time.
   */
  attend(socket: TLSSocket): void {
    const certificate = socket.getPeerX509Certificate();
    if (certificate === undefined) return;
    this.#sockets.set(socket, certificate);
    const leftMs = certificate.validToDate.getTime() - this.#world.wallMs();
    const end =
      identityOf(certificate)?.kind === 'client' && leftMs < TIMER_MS_MAX
        ? this.#world.after(Math.max(0, leftMs), () => socket.destroy()).unref()
        : undefined;
    socket.once('close', () => {
      end?.cancel();
      this.#sockets.delete(socket);
    });
  }
}
