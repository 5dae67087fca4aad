import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import {
  type Authority,
  issueAuthority,
  issueCertificate,
  readAuthority,
} from '../../client/certificates/issue.ts';
import type { CertifiedIdentity, Role } from '../../wire/access.ts';

const DAY_MS = 86_400_000;
/** Hosts of a server on loopback. */
const HOSTS = ['localhost', '127.0.0.1'];

/** Paths of a certificate and its key. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
}

/** A certificate authority with its files in its own folder, as `leasehold cert` makes them. */
export class TestAuthority {
  readonly folder: string;
  readonly ca: string;
  readonly #authority: Authority;

  private constructor(folder: string, authority: Authority) {
    this.folder = folder;
    this.ca = join(folder, 'ca.pem');
    this.#authority = authority;
  }

  static async create(): Promise<TestAuthority> {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-ca-'));
    const { certificate, key } = await issueAuthority('Test CA', DAY_MS);
    writeFileSync(join(folder, 'ca.pem'), certificate);
    return new TestAuthority(folder, await readAuthority(certificate, key));
  }

  /** @param lifeMs negative for a certificate that has ended */
  server(
    id: string,
    options: { readonly lifeMs?: number; readonly name?: string } = {},
  ): Promise<CertificateFiles> {
    const identity = { kind: 'server', id: id as ServerId } as const;
    return this.#issue(options.name ?? id, identity, HOSTS, options.lifeMs);
  }

  client(
    name: string,
    role: Role,
    volumes: readonly string[] | null = null,
    lifeMs?: number,
  ): Promise<CertificateFiles> {
    return this.#issue(name, { kind: 'client', name, role, volumes }, [], lifeMs);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #issue(
    file: string,
    identity: CertifiedIdentity,
    hosts: readonly string[],
    lifeMs = DAY_MS,
  ): Promise<CertificateFiles> {
    const { certificate, key } = await issueCertificate(this.#authority, identity, hosts, lifeMs);
    const files = { cert: join(this.folder, `${file}.pem`), key: join(this.folder, `${file}-key.pem`) };
    writeFileSync(files.cert, certificate);
    writeFileSync(files.key, key, { mode: 0o600 });
    return files;
  }
}
