import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { connect } from 'node:tls';
import { freePorts } from '../../client/dev/free-ports.ts';
import { s3CredentialsOf } from '../../platform/s3-credentials.ts';
import type { Grant } from '../../wire/access.ts';
import { formatTokenFile, type KnownToken, tokenText } from '../../wire/tokens.ts';
import { SecureCluster } from '../security/secure-cluster.ts';
import type { Credentials, Header, RawRequest } from './sign.ts';

export interface Answer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

export interface TestToken {
  /** For `Authorization: Bearer`. */
  readonly text: string;
  readonly s3: Credentials;
}

/** A token that ends at `expiresAt`, and its S3 credentials under each key of the file. */
interface DrawnToken {
  readonly known: KnownToken;
  readonly text: string;
}

function drawToken(grant: Grant, expiresAt: string | null): DrawnToken {
  const id = randomBytes(6).toString('hex');
  const secret = randomBytes(32).toString('base64url');
  const hash = createHash('sha256').update(secret).digest('base64url');
  const known = { ...grant, id, hash, createdAt: new Date().toISOString(), expiresAt };
  return { known, text: tokenText(id, secret) };
}

export type TokenName = 'admin' | 'writer' | 'reader' | 'one' | 'ended';

const GRANTS: Readonly<Record<TokenName, Omit<Grant, 'name'>>> = {
  admin: { role: 'admin', volumes: null },
  writer: { role: 'write', volumes: null },
  reader: { role: 'read', volumes: null },
  /** Of the volume `bucket` only. */
  one: { role: 'write', volumes: ['bucket'] },
  ended: { role: 'admin', volumes: null },
};

/** One server with TLS, tokens and S3. */
export class SecureS3 {
  readonly cluster: SecureCluster;
  readonly port: number;
  readonly tokens: ReadonlyMap<TokenName, TestToken>;
  /** The credentials of `admin` under the file's second key. */
  readonly older: Credentials;
  readonly #agent: Agent;
  readonly #ca: Buffer;

  private constructor(
    cluster: SecureCluster,
    port: number,
    tokens: ReadonlyMap<TokenName, TestToken>,
    older: Credentials,
  ) {
    this.cluster = cluster;
    this.port = port;
    this.tokens = tokens;
    this.older = older;
    this.#ca = readFileSync(cluster.authority.ca);
    this.#agent = new Agent({ keepAlive: true, ca: this.#ca });
  }

  /** Ends after the tests of the file. */
  static async start(flags: readonly string[] = []): Promise<SecureS3> {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-s3-tokens-'));
    const book = join(folder, 'tokens.json');
    const keys = [randomBytes(32), randomBytes(32)].map((key) => key.toString('base64url'));
    const [key = '', older = ''] = keys;
    const drawn = new Map(
      Object.entries(GRANTS).map(([name, grant]) => {
        const expiresAt = name === 'ended' ? '2020-01-01T00:00:00.000Z' : null;
        return [name as TokenName, drawToken({ ...grant, name }, expiresAt)] as const;
      }),
    );
    const known = [...drawn.values()].map((token) => token.known);
    writeFileSync(book, formatTokenFile({ keys, tokens: known, revoked: [] }), { mode: 0o600 });
    const [port = 0] = await freePorts(1);
    const s3 = ['--tokens', book, '--s3-listen', `127.0.0.1:${port}`, '--s3-domains', 's3.test', ...flags];
    const cluster = await SecureCluster.start({ servers: 1, flags: () => s3 });
    const tokens = new Map(
      [...drawn].map(([name, token]) => [name, { text: token.text, s3: s3CredentialsOf(key, token.known) }]),
    );
    const admin = drawn.get('admin') as DrawnToken;
    const server = new SecureS3(cluster, port, tokens, s3CredentialsOf(older, admin.known));
    after(async () => {
      server.#agent.destroy();
      await cluster.stop();
      rmSync(folder, { recursive: true, force: true });
    });
    return server;
  }

  get host(): string {
    return `127.0.0.1:${this.port}`;
  }

  credentials(name: TokenName): Credentials {
    return (this.tokens.get(name) as TestToken).s3;
  }

  /** Sends a request as it is, over a kept connection. */
  send({ method, target, headers, body }: RawRequest): Promise<Answer> {
    const hasLength = headers.some(([name]) => /^(content-length|transfer-encoding)$/i.test(name));
    const length: Header[] =
      hasLength || (body.length === 0 && /^(GET|HEAD|DELETE)$/.test(method))
        ? []
        : [['content-length', String(body.length)]];
    const options: RequestOptions = {
      ...{ host: '127.0.0.1', port: this.port, method, path: target, agent: this.#agent },
      headers: [...headers, ...length].flat() as unknown as string[],
    };
    return new Promise((resolve, reject) => {
      const sent = httpsRequest(options, (response) => {
        const parts: Buffer[] = [];
        response.on('data', (part: Buffer) => parts.push(part));
        response.on('error', reject);
        response.on('end', () => {
          const answered = Object.entries(response.headers).map(
            ([name, value]) => [name, String(value)] as const,
          );
          resolve({
            status: response.statusCode ?? 0,
            headers: new Map(answered),
            body: Buffer.concat(parts),
          });
        });
      });
      sent.on('error', reject);
      sent.end(body);
    });
  }

  /** Sends bytes on a connection of their own. @returns all that the server sends until it closes the connection */
  sendBytes(bytes: Buffer, { ends } = { ends: true }): Promise<string> {
    return new Promise((resolve, reject) => {
      let received = '';
      const socket = connect({ host: '127.0.0.1', port: this.port, ca: this.#ca }, () => {
        if (ends) socket.end(bytes);
        else socket.write(bytes);
      });
      socket.on('data', (part) => {
        received += part.toString('latin1');
      });
      socket.on('error', reject);
      socket.on('close', () => resolve(received));
    });
  }
}
