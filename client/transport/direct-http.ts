import { connect, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { assert } from '../../base/assert.ts';
import { releasableMemory } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import { CONTENTS_PATH, CONTENTS_PROTOCOL } from '../../wire/http-api.ts';
import { Access, type TlsOptions } from './access.ts';
import { ChunkedBody } from './chunked-body.ts';
import type { Response } from './response.ts';
import type { RequestBody, ServerRequest } from './server-channel.ts';
import type { Traffic } from './traffic.ts';

/** For the head of an answer. What follows it in the same read is copied, so the buffer is small. */
const SCRATCH_BYTES = 8 * 1024;
const HEAD_BYTES_MAX = 64 * 1024;
/** No server sends more in one answer: contents are requested in pieces. */
const BODY_BYTES_MAX = 64 * 1024 * 1024;
/** Shorter than the idle limit of servers, so that the client closes an idle connection and not the server. */
const IDLE_MS_MAX = 30_000;
const HEAD_END = Buffer.from('\r\n\r\n');
const CONSENT = /^HTTP\/1\.1 101 /;
const NOTHING = Buffer.alloc(0);

/** The answer is not in the form of our servers, so it is a proxy's: requests then use a complete implementation. */
export class UnusualAnswerError extends Error {
  override readonly name = 'UnusualAnswerError';
}

/** The server is of a release without connections for writes alone: writes use the others. */
export class NoWriteConnectionsError extends Error {
  override readonly name = 'NoWriteConnectionsError';
}

/**
 * Connections to one server for contents: HTTP/1.1, one exchange at a time on each. The system reads an answer of known
 * length directly into its final memory. A general implementation takes pieces of 64 KiB and copies each twice.
 */
export class DirectHttp {
  readonly #world: World;
  readonly #host: string;
  readonly #port: number;
  readonly #hostHeader: string;
  readonly #traffic: Traffic;
  readonly #access: Access;
  readonly #isSecure: boolean;
  readonly #connectTimeoutMs: number;
  readonly #connectionsMax: number;
  readonly #writes: boolean;
  readonly #all = new Set<Connection>();
  /** The one used last is used next, so that surplus ones become idle and close. */
  readonly #idle: Connection[] = [];
  readonly #waiting: (() => void)[] = [];
  #closed = false;

  /** @param writes connections for writes alone, which the server reads without a general HTTP implementation */
  constructor(
    world: World,
    url: URL,
    traffic: Traffic,
    connectTimeoutMs: number,
    connectionsMax: number,
    access: Access = Access.NONE,
    writes: boolean = false,
  ) {
    this.#world = world;
    this.#writes = writes;
    this.#isSecure = url.protocol === 'https:';
    this.#access = access;
    this.#host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    this.#port = url.port === '' ? (this.#isSecure ? 443 : 80) : Number(url.port);
    this.#hostHeader = url.host;
    this.#traffic = traffic;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#connectionsMax = connectionsMax;
  }

  /** @throws the reason of the signal, or the connection's failure; `NoWriteConnectionsError` if the server has none */
  async request(request: ServerRequest): Promise<Response> {
    const { signal } = request;
    signal.throwIfAborted();
    let connection = this.#takeIdle();
    while (connection === undefined) {
      if (this.#closed) throw new Error('The connections were closed');
      if (this.#all.size < this.#connectionsMax) connection = await this.#connect(signal);
      else {
        await this.#awaitFree(signal);
        connection = this.#takeIdle();
      }
    }
    const onAbort = (): void => connection.destroy(reasonOf(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      signal.throwIfAborted();
      return await connection.exchange(
        request.method,
        headOf(request, this.#hostHeader),
        request.body ?? NOTHING,
      );
    } finally {
      signal.removeEventListener('abort', onAbort);
      if (connection.isFree && !this.#closed) this.#idle.push(connection);
      else connection.destroy(new Error('The connection is not used again'));
      this.#waiting.shift()?.();
    }
  }

  /** Lets exchanges in flight finish, and begins no new ones. */
  retire(): void {
    this.#closed = true;
    for (const connection of this.#idle.splice(0))
      connection.destroy(new Error('The connections were closed'));
    for (const wake of this.#waiting.splice(0)) wake();
  }

  close(): void {
    this.retire();
    for (const connection of [...this.#all]) connection.destroy(new Error('The connections were closed'));
  }

  #takeIdle(): Connection | undefined {
    for (let last = this.#idle.pop(); last !== undefined; last = this.#idle.pop()) {
      // A destroyed connection stays in the list until the system has closed it.
      if (last.isFree) return last;
    }
    return undefined;
  }

  async #connect(signal: AbortSignal): Promise<Connection> {
    const beganMs = this.#world.nowMs();
    const tls = this.#isSecure ? this.#access.tls : null;
    const connection = new Connection(this.#host, this.#port, tls, this.#writes ? this.#hostHeader : null);
    this.#all.add(connection);
    connection.socket.once('close', () => {
      this.#all.delete(connection);
      const index = this.#idle.indexOf(connection);
      if (index >= 0) this.#idle.splice(index, 1);
      this.#waiting.shift()?.();
    });
    const late = Object.assign(new Error('Connecting took too long'), {
      code: 'UND_ERR_CONNECT_TIMEOUT',
    });
    const timer = this.#world.after(this.#connectTimeoutMs, () => connection.destroy(late));
    const onAbort = (): void => connection.destroy(reasonOf(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await connection.connected;
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
    }
    this.#traffic.addConnection(connection.socket, this.#world.nowMs() - beganMs);
    return connection;
  }

  /** Resolves when an exchange or a connection has ended, so that another exchange may begin. */
  async #awaitFree(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
    await promise;
    const index = this.#waiting.indexOf(resolve);
    if (index >= 0) this.#waiting.splice(index, 1);
    signal.throwIfAborted();
  }
}

interface Head {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly bodyBytes: number | null;
}

/** One connection: the system reads into `#scratch`, or into the body of the answer as soon as its length is known. */
class Connection {
  readonly socket: Socket;
  readonly connected: Promise<void>;
  readonly #ready = Promise.withResolvers<void>();
  readonly #scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  #headBytes: Buffer = NOTHING;
  #head: Head | null = null;
  #body: Buffer = NOTHING;
  #bodyFilled = 0;
  #chunked: ChunkedBody | null = null;
  /** False after HEAD, whose answer announces a length without a body. */
  #hasBody = true;
  #waiter: PromiseWithResolvers<Response> | null = null;
  #isOver = false;
  /** Pending until the server has agreed to a connection for writes; null for other connections, and afterwards. */
  #consent: PromiseWithResolvers<void> | null = null;

  constructor(host: string, port: number, tls: TlsOptions | null, writesHost: string | null = null) {
    const ready = this.#ready;
    this.connected = ready.promise;
    if (writesHost !== null) this.#consent = ready;
    const options: TcpNetConnectOpts = {
      host,
      port,
      onread: {
        buffer: () => this.#readBuffer(),
        callback: (count, buffer) => {
          this.#received(count, buffer as Buffer);
          return true;
        },
      },
    };
    this.socket =
      tls === null
        ? connect(options)
        : connectTls({ ...options, ...tls, ...(isIP(host) === 0 ? { servername: host } : {}) });
    this.socket.setNoDelay(true);
    this.socket.once(tls === null ? 'connect' : 'secureConnect', () => {
      if (writesHost === null) ready.resolve();
      else this.socket.write(upgradeRequest(writesHost), 'latin1');
    });
    this.socket.on('error', (error) => {
      ready.reject(error);
      this.#fail(error);
    });
    this.socket.on('close', () => {
      const error = new Error('The connection was closed');
      ready.reject(error);
      this.#fail(error);
    });
    this.socket.on('end', () => {
      // A server that speaks TLS only does this.
      const isEmpty = tls === null && this.socket.bytesRead === 0;
      const authority = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
      const what = isEmpty ? ` without an answer; if it requires TLS, use https://${authority}` : '';
      this.destroy(new Error(`The server closed the connection${what}`));
    });
    this.socket.setTimeout(IDLE_MS_MAX, () => {
      if (this.#waiter === null) this.destroy(new Error('The connection was idle'));
    });
  }

  get isFree(): boolean {
    return !this.#isOver && this.#waiter === null && this.socket.writableLength === 0;
  }

  exchange(method: string, head: string, body: RequestBody): Promise<Response> {
    assert(this.#waiter === null, 'One exchange at a time');
    this.#hasBody = method !== 'HEAD';
    const waiter = Promise.withResolvers<Response>();
    if (this.#isOver) return Promise.reject(new Error('The connection was closed'));
    this.#waiter = waiter;
    this.socket.ref();
    this.socket.cork();
    this.socket.write(head, 'latin1');
    for (const part of partsOf(body)) if (part.length > 0) this.socket.write(part);
    this.socket.uncork();
    return waiter.promise;
  }

  destroy(reason: Error): void {
    this.#isOver = true;
    // First, so that waiting callers get this reason and not that the connection was closed.
    this.#ready.reject(reason);
    this.#fail(reason);
    this.socket.destroy();
  }

  #fail(error: Error): void {
    this.#isOver = true;
    this.#waiter?.reject(error);
    this.#waiter = null;
  }

  #readBuffer(): Uint8Array {
    return (this.#head?.bodyBytes ?? null) === null ? this.#scratch : this.#body.subarray(this.#bodyFilled);
  }

  #received(count: number, buffer: Buffer): void {
    if (this.#consent !== null) {
      this.#receivedConsent(this.#consent, buffer.subarray(0, count));
      return;
    }
    if (this.#waiter === null) {
      this.destroy(new Error('The server sent data without a request'));
      return;
    }
    try {
      const head = this.#head;
      if (head === null) this.#receivedHead(buffer.subarray(0, count));
      else if (head.bodyBytes === null) this.#receivedChunks(head, buffer.subarray(0, count));
      else {
        this.#bodyFilled += count;
        if (this.#bodyFilled === head.bodyBytes) this.#endExchange(head, this.#body);
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  #receivedConsent(consent: PromiseWithResolvers<void>, bytes: Buffer): void {
    this.#headBytes = Buffer.concat([this.#headBytes, bytes]);
    const end = this.#headBytes.indexOf(HEAD_END);
    if (end < 0 && this.#headBytes.length <= HEAD_BYTES_MAX) return;
    const isGiven =
      end === this.#headBytes.length - HEAD_END.length && CONSENT.test(this.#headBytes.toString('latin1'));
    this.#headBytes = NOTHING;
    this.#consent = null;
    if (isGiven) {
      consent.resolve();
      return;
    }
    const refused = new NoWriteConnectionsError('The server does not support connections for writes');
    this.destroy(refused);
  }

  #receivedHead(bytes: Buffer): void {
    this.#headBytes = Buffer.concat([this.#headBytes, bytes]);
    const end = this.#headBytes.indexOf(HEAD_END);
    if (end < 0) {
      if (this.#headBytes.length > HEAD_BYTES_MAX) throw new Error('The header of the answer is too long');
      return;
    }
    const head = parseHead(this.#headBytes.toString('latin1', 0, end), this.#hasBody);
    const rest = this.#headBytes.subarray(end + HEAD_END.length);
    this.#headBytes = NOTHING;
    this.#head = head;
    if (head.bodyBytes === null) {
      this.#chunked = new ChunkedBody(BODY_BYTES_MAX);
      this.#receivedChunks(head, rest);
      return;
    }
    if (rest.length > head.bodyBytes) throw new Error('The server sent data without a request');
    this.#body = releasableMemory(head.bodyBytes);
    this.#body.set(rest);
    this.#bodyFilled = rest.length;
    if (rest.length === head.bodyBytes) this.#endExchange(head, this.#body);
  }

  #receivedChunks(head: Head, bytes: Buffer): void {
    const body = this.#chunked?.take(bytes) ?? null;
    if (body !== null) this.#endExchange(head, body);
  }

  #endExchange({ statusCode, headers }: Head, bytes: Buffer): void {
    const waiter = this.#waiter;
    this.#head = null;
    this.#chunked = null;
    this.#body = NOTHING;
    this.#waiter = null;
    // An idle connection must not keep the process alive.
    this.socket.unref();
    if (headers.connection?.toLowerCase() === 'close') this.#isOver = true;
    waiter?.resolve({
      statusCode,
      headers,
      body: {
        bytes: async () => bytes,
        text: async () => bytes.toString(),
        json: async () => JSON.parse(bytes.toString()),
      },
    });
  }
}

function upgradeRequest(host: string): string {
  return `GET ${CONTENTS_PATH} HTTP/1.1\r\nhost: ${host}\r\nconnection: upgrade\r\nupgrade: ${CONTENTS_PROTOCOL}\r\n\r\n`;
}

function headOf({ method, path, headers, body }: ServerRequest, host: string): string {
  assert(/^[!-~]+$/.test(path), 'A path is printable, and has no spaces');
  let head = `${method} ${path} HTTP/1.1\r\nhost: ${host}\r\n`;
  for (const [name, value] of Object.entries(headers ?? {})) head += `${name}: ${value}\r\n`;
  const length = bodyBytes(body ?? NOTHING);
  return length > 0 || method !== 'GET' ? `${head}content-length: ${length}\r\n\r\n` : `${head}\r\n`;
}

export function bodyBytes(body: RequestBody): number {
  return partsOf(body).reduce((sum, part) => sum + Buffer.byteLength(part), 0);
}

function partsOf(body: RequestBody): readonly (Uint8Array | string)[] {
  return typeof body === 'string' || body instanceof Uint8Array ? [body] : body;
}

function parseHead(text: string, hasBody: boolean): Head {
  const [first = '', ...lines] = text.split('\r\n');
  const status = /^HTTP\/1\.1 (\d{3})/.exec(first)?.[1];
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const statusCode = Number(status);
  const isUsual = status !== undefined && statusCode >= 200;
  if (isUsual && (!hasBody || statusCode === 204)) return { statusCode, headers, bodyBytes: 0 };
  const { 'content-length': length = '', 'transfer-encoding': encoding } = headers;
  if (isUsual && encoding === 'chunked') return { statusCode, headers, bodyBytes: null };
  if (isUsual && encoding === undefined && /^\d{1,9}$/.test(length) && Number(length) <= BODY_BYTES_MAX) {
    return { statusCode, headers, bodyBytes: Number(length) };
  }
  throw new UnusualAnswerError(`The answer "${first.slice(0, 100)}" has no length`);
}

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason));
}
