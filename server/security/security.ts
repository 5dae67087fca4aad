import { X509Certificate } from 'node:crypto';
import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { missingGuards, type NetworkGuards } from '../config/config-network.ts';
import { ConfigurationError } from '../config/configuration-error.ts';
import { CertificateWatch, type OwnCertificate } from './certificate-watch.ts';
import { PeerTls } from './peer-tls.ts';
import { TlsMaterial } from './tls-material.ts';
import { TokenStore } from './token-file.ts';

/** Certificates and tokens of a server, read at start and again at `reload`. */
export class Security {
  readonly tls: TlsMaterial | null;
  /** Null if servers connect without TLS. */
  readonly peers: PeerTls | null;
  /** Null if the server authenticates no client. */
  readonly tokens: TokenStore | null;
  readonly #world: World;
  readonly #log: Logger;
  #watch: CertificateWatch | null = null;

  /** @throws ConfigurationError if a file is invalid */
  constructor(world: World, self: ServerId, guards: NetworkGuards, log: Logger) {
    this.#world = world;
    this.#log = log;
    this.tls = guards.tls === null ? null : new TlsMaterial(world, guards.tls, self);
    this.peers = this.tls === null ? null : new PeerTls(this.tls);
    this.tokens = guards.tokens === null ? null : new TokenStore(world, guards.tokens);
    this.#applyRevocations();
    this.tokens?.onChange(() => this.#applyRevocations());
    this.#warn(guards);
  }

  /**
   * Reads the files again. Only connections of revoked certificates and tokens end.
   * @returns false if a file is invalid: it is logged, and the previous one stays in force
   */
  reload(): boolean {
    const isCertificateGood = this.#reloadCertificate();
    return this.#reloadTokens() && isCertificateGood;
  }

  #reloadCertificate(): boolean {
    try {
      this.tls?.reload();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      this.#log.error(
        { audit: true, reason: error.message },
        'cannot reload the certificate: the previous one stays in use',
      );
      return false;
    }
    if (this.tls !== null)
      this.#log.info({ audit: true, ...this.#certificateFields() }, 'the certificate is reloaded');
    return true;
  }

  #reloadTokens(): boolean {
    try {
      this.tokens?.reload();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      this.#log.error(
        { audit: true, reason: error.message },
        'cannot reload the tokens: the previous ones stay in use',
      );
      return false;
    }
    if (this.tokens !== null)
      this.#log.info({ audit: true, tokens: this.tokens.count }, 'the tokens are reloaded');
    return true;
  }

  #warn(guards: NetworkGuards): void {
    const missing = missingGuards(guards);
    if (guards.insecureNetwork && missing.length > 0) {
      this.#log.warn(
        { audit: true, missing },
        `INSECURE: no ${missing.join(' and no ')} (--insecure-network): every ` +
          'host on the network can read and change all data',
      );
    }
    if (this.tls?.isKeyExposed === true) {
      this.#log.warn(
        { file: this.tls.files.key },
        'other users may read the private key of this server: run chmod 600 on the file',
      );
    }
  }

  watchExpiry(report: (certificate: OwnCertificate, remainingMs: number) => void): void {
    if (this.tls === null || this.#watch !== null) return;
    this.#watch = new CertificateWatch(this.#world, this.tls, (certificate, remainingMs) => {
      const until = new Date(certificate.untilMs).toISOString();
      const whose = certificate.whose === 'server' ? 'of this server' : 'of the authority';
      this.#log.warn({ until }, `the certificate ${whose} expires soon: create a new one, and send SIGHUP`);
      report(certificate, remainingMs);
    });
  }

  close(): void {
    this.#watch?.close();
  }

  /** Called at the start and after the token file changes: closes the connections of certificates that it revokes. */
  #applyRevocations(): void {
    if (this.tls === null) return;
    const ended = this.tls.revocations.replace(this.tokens?.revoked ?? []);
    const own = new X509Certificate(this.tls.current.cert);
    if (this.tls.revocations.isRevoked(own)) {
      const serial = own.serialNumber;
      this.#log.error(
        { audit: true, serial },
        'the certificate of this server is revoked, and other servers refuse it: create a new one with ' +
          '"leasehold cert create-node", and send SIGHUP',
      );
    }
    if (ended > 0) this.#log.warn({ audit: true, ended }, 'closed connections with revoked certificates');
  }

  #certificateFields(): { readonly certificateUntil?: string } {
    return this.tls === null ? {} : { certificateUntil: new Date(this.tls.expiresAtMs).toISOString() };
  }
}
