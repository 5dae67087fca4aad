import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { missingGuards, type NetworkGuards } from '../config-network.ts';
import { ConfigurationError } from '../configuration-error.ts';
import { PeerTls } from './peer-tls.ts';
import { TlsMaterial } from './tls-material.ts';
import { TokenBook } from './token-book.ts';

/** A certificate that ends sooner than this is worth a line in the log. */
const EXPIRES_SOON_MS = 14 * 86_400_000;

/** What guards a server: read from files when it starts, and again when it is told to. */
export class Security {
  readonly tls: TlsMaterial | null;
  /** Null where servers speak in the clear. */
  readonly peers: PeerTls | null;
  /** Null where nobody is asked who he is. */
  readonly tokens: TokenBook | null;
  readonly #log: Logger;

  /** @throws ConfigurationError where a file is no good */
  constructor(self: ServerId, guards: NetworkGuards, log: Logger) {
    this.#log = log;
    this.tls = guards.tls === null ? null : new TlsMaterial(guards.tls, self);
    this.peers = this.tls === null ? null : new PeerTls(this.tls);
    this.tokens = guards.tokens === null ? null : new TokenBook(guards.tokens);
    this.#warn(guards);
  }

  /**
   * Reads the files again. Connections that are there stay as they are; what is no good is logged, and what was in force
   * stays in force.
   *
   * @returns whether all was good
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
        'the certificate is not reloaded: it stays as it was',
      );
      return false;
    }
    if (this.tls !== null) this.#log.info({ audit: true, ...this.#facts() }, 'the certificate is reloaded');
    this.#warnOfEnd();
    return true;
  }

  #reloadTokens(): boolean {
    try {
      this.tokens?.reload();
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      this.#log.error(
        { audit: true, reason: error.message },
        'the tokens are not reloaded: they stay as they were',
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
        `INSECURE: --insecure-network is given and there is no ${missing.join(' and no ')}: ` +
          'whoever reaches this server can read and change everything in it',
      );
    }
    if (this.tls?.isKeyExposed === true) {
      this.#log.warn(
        { file: this.tls.files.key },
        'others than its owner may read the key of this server: chmod 600',
      );
    }
    this.#warnOfEnd();
  }

  #warnOfEnd(): void {
    if (this.tls === null || this.tls.expiresAtMs - Date.now() > EXPIRES_SOON_MS) return;
    this.#log.warn(this.#facts(), 'the certificate of this server ends soon: make another, and send SIGHUP');
  }

  #facts(): { readonly certificateUntil?: string } {
    return this.tls === null ? {} : { certificateUntil: new Date(this.tls.expiresAtMs).toISOString() };
  }
}
