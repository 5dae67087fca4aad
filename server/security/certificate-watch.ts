import { X509Certificate } from 'node:crypto';
import type { Timer, World } from '../../base/world.ts';
import type { TlsMaterial } from './tls-material.ts';

const DAY_MS = 86_400_000;
/** A certificate that ends sooner than this is told of, once a day. */
export const ENDS_SOON_MS = 14 * DAY_MS;

/** A certificate on which this server depends. */
export interface OwnCertificate {
  readonly whose: 'server' | 'authority';
  /** Wall clock, in milliseconds since 1970. */
  readonly untilMs: number;
}

/** @returns this server's certificate and those of the authorities that it believes */
export function ownCertificates(tls: TlsMaterial): OwnCertificate[] {
  const authorities = tls.current.ca.map((text) => new X509Certificate(text).validToDate.getTime());
  return [
    { whose: 'server', untilMs: tls.expiresAtMs },
    // While authorities change, the one that goes may end as it likes.
    { whose: 'authority', untilMs: Math.max(...authorities) },
  ];
}

/** Tells every day of certificates that end soon, until they are replaced. */
export class CertificateWatch {
  readonly #tls: TlsMaterial;
  readonly #tell: (certificate: OwnCertificate, leftMs: number) => void;
  readonly #world: World;
  readonly #timer: Timer;

  /** @param tell called at once and every day for each that ends within `ENDS_SOON_MS` */
  constructor(world: World, tls: TlsMaterial, tell: (certificate: OwnCertificate, leftMs: number) => void) {
    this.#tls = tls;
    this.#tell = tell;
    this.#world = world;
    this.#timer = world.every(DAY_MS, () => this.look()).unref();
    tls.onChange(() => this.look());
    this.look();
  }

  look(): void {
    for (const certificate of ownCertificates(this.#tls)) {
      const leftMs = certificate.untilMs - this.#world.wallMs();
      if (leftMs <= ENDS_SOON_MS) this.#tell(certificate, leftMs);
    }
  }

  close(): void {
    this.#timer.cancel();
  }
}
