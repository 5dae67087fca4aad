import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { TlsFiles } from '../config/config-network.ts';
import { ConfigurationError } from '../config/configuration-error.ts';
import { identityOf } from './certified.ts';
import { Revocations } from './revocations.ts';

export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  readonly ca: string[];
}

const GROUP_READS = 0o040;
const OTHERS_READ = 0o004;

/** Certificate, key and authorities. `reload` replaces `current`, which new connections use; others are unaffected. */
export class TlsMaterial {
  readonly files: TlsFiles;
  readonly revocations: Revocations;
  readonly #world: World;
  readonly #self: ServerId;
  readonly #listeners = new Set<(texts: TlsTexts) => void>();
  #texts: TlsTexts;
  #expiresAtMs: number;

  constructor(world: World, files: TlsFiles, self: ServerId) {
    this.#world = world;
    this.revocations = new Revocations(world);
    this.files = files;
    this.#self = self;
    const { texts, expiresAtMs } = readMaterial(world, files, self);
    this.#texts = texts;
    this.#expiresAtMs = expiresAtMs;
  }

  get current(): TlsTexts {
    return this.#texts;
  }

  /** Wall clock, in milliseconds since 1970. */
  get expiresAtMs(): number {
    return this.#expiresAtMs;
  }

  /** Whether other users can read the key. Kubernetes gives root's key to a server by its group, which is accepted. */
  get isKeyExposed(): boolean {
    const { mode, uid, gid } = statSync(this.files.key);
    const isGiven = uid === 0 && gid !== 0 && process.getgroups?.().includes(gid) === true;
    return (mode & OTHERS_READ) !== 0 || ((mode & GROUP_READS) !== 0 && !isGiven);
  }

  onChange(listener: (texts: TlsTexts) => void): void {
    this.#listeners.add(listener);
  }

  /** @throws ConfigurationError if a file is invalid; the previous files stay in use */
  reload(): void {
    const { texts, expiresAtMs } = readMaterial(this.#world, this.files, this.#self);
    this.#texts = texts;
    this.#expiresAtMs = expiresAtMs;
    for (const listener of this.#listeners) listener(texts);
  }
}

function readMaterial(
  world: World,
  files: TlsFiles,
  self: ServerId,
): { texts: TlsTexts; expiresAtMs: number } {
  const cert = read(files.cert, '--tls-cert');
  const key = read(files.key, '--tls-key');
  const ca = certificatesIn(read(files.ca, '--tls-ca'), files.ca, '--tls-ca');
  const chain = certificatesIn(cert, files.cert, '--tls-cert').map((text) => new X509Certificate(text));
  const own = chain[0] as X509Certificate;
  const refuse = (why: string): never => {
    throw new ConfigurationError(`Cannot use --tls-cert "${files.cert}": ${why}`);
  };
  const identity = identityOf(own);
  if (identity?.kind !== 'server') {
    refuse(`it is not a server certificate; create one with "leasehold cert create-node ${self}"`);
  } else if (identity.id !== self) refuse(`it was issued for ${identity.id}, not for ${self}`);
  if (!own.checkPrivateKey(privateKey(key, files.key))) {
    refuse(`the key in "${files.key}" belongs to another certificate`);
  }
  const last = chain.at(-1) as X509Certificate;
  const isIssued = ca.map((text) => new X509Certificate(text)).some((one) => isIssuedBy(last, one));
  if (!isIssued) refuse(`no certificate authority in "${files.ca}" has issued it`);
  const expiresAtMs = own.validToDate.getTime();
  if (expiresAtMs <= world.wallMs()) {
    refuse(
      `it expired on ${own.validToDate.toISOString()}; create a new one with "leasehold cert create-node ${self}"`,
    );
  }
  if (own.validFromDate.getTime() > world.wallMs())
    refuse(`it is not valid before ${own.validFromDate.toISOString()}: check the clock, or wait`);
  return { texts: { cert, key, ca }, expiresAtMs };
}

function isIssuedBy(certificate: X509Certificate, authority: X509Certificate): boolean {
  return certificate.checkIssued(authority) && certificate.verify(authority.publicKey);
}

function certificatesIn(text: string, file: string, option: string): string[] {
  const found = text.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? [];
  try {
    for (const one of found) new X509Certificate(one);
  } catch (cause) {
    throw new ConfigurationError(`Cannot use ${option} "${file}": a certificate in it is damaged`, { cause });
  }
  if (found.length === 0) {
    throw new ConfigurationError(`Cannot use ${option} "${file}": it contains no PEM certificate`);
  }
  return found;
}

function privateKey(text: string, file: string) {
  try {
    return createPrivateKey(text);
  } catch {
    // Without the cause: no part of the file may reach a log.
    throw new ConfigurationError(
      `Cannot use --tls-key "${file}": it contains no unencrypted PEM private key`,
    );
  }
}

function read(file: string, option: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ConfigurationError(`Cannot read ${option} "${file}": ${why}`, { cause });
  }
}
