import { readFileSync } from 'node:fs';
import { CLIENT_VARIABLES } from '../base/environment.ts';
import { ServiceError } from '../base/errors.ts';
import { isSystemError, systemReason } from './failure.ts';
import { isLoopback } from './loopback.ts';
import { RevokedServers } from './revoked-servers.ts';
import type { ServerChannel } from './server-channel.ts';

/** What a token looks like from outside; what it is worth, servers say. */
const TOKEN = /^[A-Za-z0-9._-]{16,256}$/;
/** Files are read again when a server does not know who this is; no more often than this. */
const REFRESH_MS = 1_000;

/** Where it stands who somebody is, and whom he believes. */
export interface AccessFiles {
  /** Authorities whose certificates are believed, as PEM; those of the system where it is absent. */
  readonly ca?: string | undefined;
  /** Certificate and key of a client that has one. */
  readonly clientCert?: string | undefined;
  readonly clientKey?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** Certificates of servers that are not believed any more. */
  readonly revoked?: string | undefined;
  /** The token itself. Never out of a command line: everybody on the machine reads those. */
  readonly token?: string | undefined;
}

/** For the making of a connection with TLS. */
export interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly checkServerIdentity?: RevokedServers['check'];
}

interface Read {
  readonly tls: TlsOptions;
  readonly token: string | null;
}

/** With what a client shows who it is, and by what it knows its servers. */
export class Access {
  /** Of a cluster that asks nobody who he is. */
  static readonly NONE = new Access({});
  /** Makes the way to the server of a base URL; null where that is sockets. A simulation has another one. */
  readonly connect: ((url: string) => ServerChannel) | null;
  /** Null where no list of them is given. */
  readonly revoked: RevokedServers | null;
  readonly #files: AccessFiles;
  #read: Read;
  #refreshedMs = Number.NEGATIVE_INFINITY;

  /** @throws ServiceError `bad-request` where a file cannot be read, or holds no token */
  constructor(files: AccessFiles, connect: ((url: string) => ServerChannel) | null = null) {
    this.connect = connect;
    this.#files = files;
    this.#read = readFiles(files);
    this.revoked = files.revoked === undefined ? null : new RevokedServers(files.revoked);
  }

  get tls(): TlsOptions {
    const { tls } = this.#read;
    return this.revoked === null ? tls : { ...tls, checkServerIdentity: this.revoked.check };
  }

  /** Whether it says who this is: only then servers may ask for more. */
  get isNamed(): boolean {
    return this.#read.token !== null || this.#read.tls.cert !== undefined;
  }

  /** Whether nothing secret would be sent to `url` in the clear. */
  allows(url: URL): boolean {
    return this.#read.token === null || url.protocol === 'https:' || isLoopback(url.hostname);
  }

  /** @returns headers that say who this is; null where it does not say so */
  get headers(): Readonly<Record<string, string>> | null {
    const { token } = this.#read;
    return token === null ? null : { authorization: `Bearer ${token}` };
  }

  /**
   * Reads the files again: a token may have been replaced while this process ran.
   *
   * @returns whether the token is another one
   */
  refresh(nowMs: number): boolean {
    if (nowMs - this.#refreshedMs < REFRESH_MS) return false;
    this.#refreshedMs = nowMs;
    const before = this.#read.token;
    try {
      this.#read = readFiles(this.#files);
    } catch (error) {
      // In the middle of being replaced, perhaps; what was read before is tried on.
      if (!(error instanceof ServiceError)) throw error;
      return false;
    }
    return this.#read.token !== before;
  }
}

/** @returns what is given, and what the environment says where nothing is */
export function accessFiles(given: AccessFiles, env: NodeJS.ProcessEnv = process.env): AccessFiles {
  const of = (name: keyof AccessFiles): string | undefined =>
    given[name] ?? (env[CLIENT_VARIABLES[name]] || undefined);
  const names = ['ca', 'clientCert', 'clientKey', 'revoked', 'tokenFile', 'token'] as const;
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}

function readFiles({ ca, clientCert, clientKey, tokenFile, token }: AccessFiles): Read {
  if ((clientCert === undefined) !== (clientKey === undefined)) {
    throw new ServiceError(
      'bad-request',
      'Cannot show who this is: --client-cert and --client-key belong together',
    );
  }
  const tls = {
    ...(ca === undefined ? {} : { ca: textOf(ca, 'the authorities') }),
    ...(clientCert === undefined ? {} : { cert: textOf(clientCert, 'the certificate') }),
    ...(clientKey === undefined ? {} : { key: textOf(clientKey, 'the key') }),
  };
  const text = token ?? (tokenFile === undefined ? null : textOf(tokenFile, 'the token'));
  if (text === null) return { tls, token: null };
  if (!TOKEN.test(text.trim())) {
    const where = token === undefined ? `"${tokenFile}"` : CLIENT_VARIABLES.token;
    throw new ServiceError('bad-request', `Cannot use the token in ${where}: it does not look like one`);
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
