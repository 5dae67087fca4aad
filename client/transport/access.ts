import { readFileSync } from 'node:fs';
import { CLIENT_VARIABLES } from '../../base/environment.ts';
import { ServiceError } from '../../base/errors.ts';
import { isSystemError, systemReason } from '../terminal/failure.ts';
import { isLoopback } from './loopback.ts';
import { RevokedServers } from './revoked-servers.ts';
import type { ServerChannel } from './server-channel.ts';

const TOKEN = /^[A-Za-z0-9._-]{16,256}$/;
/** The files are read again when a server answers `unauthorized`, at most once in this time. */
const REFRESH_MS = 1_000;

export interface AccessFiles {
  /** PEM file of the trusted certificate authorities; absent: those of the system. */
  readonly ca?: string | undefined;
  readonly clientCert?: string | undefined;
  readonly clientKey?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly revoked?: string | undefined;
  /** The token itself. Never taken from the command line, which every user of the machine can read. */
  readonly token?: string | undefined;
}

export interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly checkServerIdentity?: RevokedServers['check'];
}

interface Credentials {
  readonly tls: TlsOptions;
  readonly token: string | null;
}

export function isTokenText(text: string): boolean {
  return TOKEN.test(text);
}

/** A client's credentials, and how it authenticates its servers. */
export class Access {
  /** For a cluster without access control. */
  static readonly NONE = new Access({});
  /** Opens the channel to a server's base URL; null: sockets. A simulation has its own. */
  readonly connect: ((url: string) => ServerChannel) | null;
  readonly revoked: RevokedServers | null;
  readonly #files: AccessFiles;
  #credentials: Credentials;
  #refreshedMs = Number.NEGATIVE_INFINITY;

  /** @throws ServiceError `bad-request` if a file cannot be read, or holds no token */
  constructor(files: AccessFiles, connect: ((url: string) => ServerChannel) | null = null) {
    this.connect = connect;
    this.#files = files;
    this.#credentials = readFiles(files);
    this.revoked = files.revoked === undefined ? null : new RevokedServers(files.revoked);
  }

  get tls(): TlsOptions {
    const { tls } = this.#credentials;
    return this.revoked === null ? tls : { ...tls, checkServerIdentity: this.revoked.check };
  }

  /** Whether the client has a token or certificate: only then do servers require capabilities. */
  get hasCredentials(): boolean {
    return this.#credentials.token !== null || this.#credentials.tls.cert !== undefined;
  }

  /** Whether a request to `url` would not expose the token: it needs TLS or the loopback interface. */
  allows(url: URL): boolean {
    return this.#credentials.token === null || url.protocol === 'https:' || isLoopback(url.hostname);
  }

  get headers(): Readonly<Record<string, string>> | null {
    const { token } = this.#credentials;
    return token === null ? null : { authorization: `Bearer ${token}` };
  }

  /** Reads the files again, since a token may have been replaced. @returns whether the token has changed */
  refresh(nowMs: number): boolean {
    if (nowMs - this.#refreshedMs < REFRESH_MS) return false;
    this.#refreshedMs = nowMs;
    const before = this.#credentials.token;
    try {
      this.#credentials = readFiles(this.#files);
    } catch (error) {
      // The file may be half replaced; the previous contents stay in use.
      if (!(error instanceof ServiceError)) throw error;
      return false;
    }
    return this.#credentials.token !== before;
  }
}

/** @returns the options in `given`; those that are missing from the environment's variables */
export function accessFiles(given: AccessFiles, env: NodeJS.ProcessEnv = process.env): AccessFiles {
  const of = (name: keyof AccessFiles): string | undefined =>
    given[name] ?? (env[CLIENT_VARIABLES[name]] || undefined);
  const names = ['ca', 'clientCert', 'clientKey', 'revoked', 'tokenFile', 'token'] as const;
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}

function readFiles({ ca, clientCert, clientKey, tokenFile, token }: AccessFiles): Credentials {
  if ((clientCert === undefined) !== (clientKey === undefined)) {
    throw new ServiceError(
      'bad-request',
      'Cannot authenticate: --client-cert and --client-key must be given together',
    );
  }
  const tls = {
    ...(ca === undefined ? {} : { ca: textOf(ca, 'the CA certificates') }),
    ...(clientCert === undefined ? {} : { cert: textOf(clientCert, 'the certificate') }),
    ...(clientKey === undefined ? {} : { key: textOf(clientKey, 'the key') }),
  };
  const text = token ?? (tokenFile === undefined ? null : textOf(tokenFile, 'the token'));
  if (text === null) return { tls, token: null };
  if (!isTokenText(text.trim())) {
    const where = token === undefined ? `"${tokenFile}"` : CLIENT_VARIABLES.token;
    throw new ServiceError(
      'bad-request',
      `Cannot use the token in ${where}: it is malformed (16 to 256 of A-Z, a-z, 0-9, ".", "_" and "-" are expected)`,
    );
  }
  return { tls, token: text.trim() };
}

function textOf(file: string, what: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    if (!isSystemError(cause)) throw cause;
    throw new ServiceError(
      'bad-request',
      `Cannot read ${what} in "${file}": ${systemReason(cause)}`,
      {},
      { cause },
    );
  }
}
