import { X509Certificate } from 'node:crypto';
import type { Timer, World } from '../../base/world.ts';
import type { TlsMaterial } from './tls-material.ts';

const DAY_MS = 86_400_000;
/** Certificates that end within this time are reported once a day. */
export const EXPIRY_WARNING_MS = 14 * DAY_MS;

export interface OwnCertificate {
  readonly whose: 'server' | 'authority';
  /** Wall clock, in milliseconds since 1970. */
  readonly untilMs: number;
}

/** Returns this server's certificate and the trusted authority that ends last. */
export function ownCertificates(tls: TlsMaterial): OwnCertificate[] {
  const authorities = tls.current.ca.map((text) => new X509Certificate(text).validToDate.getTime());
  return [
    { whose: 'server', untilMs: tls.expiresAtMs },
    { whose: 'authority', untilMs: Math.max(...authorities) },
  ];
}

/** Reports certificates that end soon, until they are replaced. */
export class CertificateWatch {
  readonly #tls: TlsMaterial;
  readonly #report: (certificate: OwnCertificate, remainingMs: number) => void;
  readonly #world: World;
  readonly #timer: Timer;

  constructor(
    world: World,
    tls: TlsMaterial,
    report: (certificate: OwnCertificate, remainingMs: number) => void,
  ) {
    this.#tls = tls;
    this.#report = report;
    this.#world = world;
    this.#timer = world.every(DAY_MS, () => this.check()).unref();
    tls.onChange(() => this.check());
    this.check();
  }

  check(): void {
    for (const certificate of ownCertificates(this.#tls)) {
      const remainingMs = certificate.untilMs - this.#world.wallMs();
      if (remainingMs <= EXPIRY_WARNING_MS) this.#report(certificate, remainingMs);
    }
  }

  close(): void {
    this.#timer.cancel();
  }
}
