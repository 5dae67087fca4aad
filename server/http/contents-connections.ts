import type { Server } from 'node:http';
import { Socket, type SocketConstructorOpts } from 'node:net';
import type { Duplex } from 'node:stream';
import { assert } from '../../base/assert.ts';
import { IncomingMessage, ServerResponse } from '../../platform/node-http.ts';
import { CONTENTS_PATH, CONTENTS_PROTOCOL } from '../../wire/http-api.ts';
import { LISTENER_LIMITS } from '../security/listener.ts';

/** Small, because the bytes that arrive together with a head are copied. */
const SCRATCH_BYTES = 8 * 1024;
const HEAD_END = Buffer.from('\r\n\r\n');
const NOTHING = Buffer.alloc(0);
const SWITCHING = `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ${CONTENTS_PROTOCOL}\r\n\r\n`;
const REQUEST_LINE = /^PUT (\/v1\/data\/[!-~]*) HTTP\/1\.1$/;
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t]*)$/;
/** Fields that change where a body ends, or when it is sent. */
const UNUSUAL = ['transfer-encoding', 'expect', 'upgrade', '__proto__'];
const LENGTH = /^\d{1,9}$/;

const unread = new WeakMap<IncomingMessage, ContentsConnection>();

/** Returns a reader of the whole body into memory of its length; null if the body comes as a stream. */
export function wholeBodyReader(request: IncomingMessage): ((target: Buffer) => Promise<void>) | null {
  const connection = unread.get(request);
  return connection === undefined ? null : (target) => connection.read(target);
}

/**
 * Connections on which clients write contents (decision 0053): HTTP/1.1, one request at a time, each a `PUT` below
 * `/v1/data/` with a length. Node's parser would read a body in pieces of 64 KiB and copy each; here the system reads
 * it into the memory from which it is stored and sent to other servers. The HTTP server handles and authorizes the
 * requests like all others.
 */
export class ContentsConnections {
  readonly #server: Server;
  readonly #all = new Set<ContentsConnection>();

  constructor(server: Server) {
    this.#server = server;
  }

  /** Handles `upgrade` events. @returns whether it took the connection; not with TLS, whose bytes a library copies */
  accept(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    const isAsked = request.url === CONTENTS_PATH && request.headers.upgrade === CONTENTS_PROTOCOL;
    // A client of this protocol sends nothing before the answer.
    if (!isAsked || head.length > 0 || !(socket instanceof Socket) || 'encrypted' in socket) return false;
    const connection = new ContentsConnection(socket, this.#server);
    if (!connection.isTaken) return false;
    this.#all.add(connection);
    socket.once('close', () => this.#all.delete(connection));
    return true;
  }

  close(): void {
    for (const connection of this.#all) connection.destroy();
  }
}

/** The current request: its body is read or skipped, then it is answered. */
interface Exchange {
  readonly message: IncomingMessage;
  readonly response: ServerResponse;
  readonly bodyBytes: number;
  filled: number;
  earlyBytes: Buffer;
  body: { readonly target: Buffer; readonly read: PromiseWithResolvers<void> } | null;
  /** Answered without the body, whose rest is discarded. */
  isBodySkipped: boolean;
}

class ContentsConnection {
  readonly #server: Server;
  readonly #socket: Socket | null;
  readonly #scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  #incompleteHead: Buffer = NOTHING;
  /** Bytes after the body: a client may have the answer before this process knows that it was sent. */
  #ahead: Buffer = NOTHING;
  #exchange: Exchange | null = null;

  constructor(accepted: Socket, server: Server) {
    this.#server = server;
    const socket = socketReadBy(accepted, {
      buffer: () => this.#nextBuffer(),
      callback: (count, buffer) => this.#received(count, buffer as Buffer),
    });
    this.#socket = socket;
    if (socket === null) return;
    socket.setTimeout(LISTENER_LIMITS.silentMs, () => socket.destroy());
    socket.on('error', () => socket.destroy());
    socket.once('close', () => {
      this.#connectionClosed();
      accepted.destroy();
    });
    socket.write(SWITCHING);
  }

  get isTaken(): boolean {
    return this.#socket !== null;
  }

  destroy(): void {
    this.#socket?.destroy();
  }

  read(target: Buffer): Promise<void> {
    const exchange = this.#exchange;
    if (exchange === null || this.#socket?.destroyed !== false)
      return Promise.reject(new Error('The connection has ended'));
    assert(exchange.body === null && target.length === exchange.bodyBytes, 'A body is read once, and whole');
    unread.delete(exchange.message);
    target.set(exchange.earlyBytes);
    exchange.earlyBytes = NOTHING;
    exchange.body = { target, read: Promise.withResolvers() };
    const { promise } = exchange.body.read;
    this.#completeIfFull(exchange);
    this.#socket.resume();
    return promise;
  }

  #nextBuffer(): Uint8Array {
    const exchange = this.#exchange;
    const isReading = exchange !== null && exchange.body !== null && exchange.filled < exchange.bodyBytes;
    return isReading ? (exchange.body?.target.subarray(exchange.filled) as Buffer) : this.#scratch;
  }

  /** @returns whether to read on: not without memory for the body, nor while the next request waits */
  #received(count: number, buffer: Buffer): boolean {
    const exchange = this.#exchange;
    if (exchange === null) return this.#receivedHead(buffer.subarray(0, count));
    const bytes = buffer.subarray(0, Math.min(count, exchange.bodyBytes - exchange.filled));
    if (bytes.length < count)
      this.#ahead = Buffer.concat([this.#ahead, buffer.subarray(bytes.length, count)]);
    const { body } = exchange;
    if (exchange.isBodySkipped) {
      exchange.filled += bytes.length;
      return exchange.filled < exchange.bodyBytes || this.#endExchange();
    }
    if (body === null) {
      exchange.earlyBytes = Buffer.concat([exchange.earlyBytes, bytes]);
      exchange.filled += bytes.length;
      return false;
    }
    // The buffer was chosen before the pause.
    if (buffer.buffer !== body.target.buffer) body.target.set(bytes, exchange.filled);
    exchange.filled += bytes.length;
    if (bytes.length > 0) this.#completeIfFull(exchange);
    return this.#ahead.length === 0;
  }

  /** The request is answered and its body read: begins with the next one. @returns whether to read on */
  #endExchange(): boolean {
    const ahead = this.#ahead;
    this.#ahead = NOTHING;
    this.#exchange = null;
    return ahead.length === 0 || this.#receivedHead(ahead);
  }

  #completeIfFull({ message, body, filled, bodyBytes }: Exchange): void {
    if (body === null || filled < bodyBytes) return;
    message.complete = true;
    message.push(null);
    message.resume();
    body.read.resolve();
  }

  /** Once the head of a request is complete, passes the request to the HTTP server. @returns whether to read on */
  #receivedHead(bytes: Buffer): boolean {
    this.#incompleteHead = Buffer.concat([this.#incompleteHead, bytes]);
    const end = this.#incompleteHead.indexOf(HEAD_END);
    if (end < 0) {
      if (this.#incompleteHead.length > LISTENER_LIMITS.headerBytes) this.destroy();
      return true;
    }
    const rest = this.#incompleteHead.subarray(end + HEAD_END.length);
    const head = parseHead(this.#incompleteHead.toString('latin1', 0, end));
    this.#incompleteHead = NOTHING;
    if (head === null) {
      this.destroy();
      return false;
    }
    this.#ahead = rest.subarray(head.bodyBytes);
    const exchange = this.#exchangeOf(head, rest.subarray(0, head.bodyBytes));
    this.#exchange = exchange;
    const { message, response } = exchange;
    unread.set(message, this);
    response.once('finish', () => this.#answered(exchange));
    this.#server.emit('request', message, response);
    return false;
  }

  #exchangeOf(head: Head, earlyBytes: Buffer): Exchange {
    const socket = this.#socket as Socket;
    const message = new IncomingMessage(socket);
    message.method = 'PUT';
    message.url = head.url;
    message.httpVersion = '1.1';
    message.httpVersionMajor = 1;
    message.httpVersionMinor = 1;
    message.headers = head.headers;
    message.rawHeaders = Object.entries(head.headers).flat();
    const response = new ServerResponse(message);
    response.assignSocket(socket);
    const { bodyBytes } = head;
    return {
      message,
      response,
      bodyBytes,
      filled: earlyBytes.length,
      earlyBytes,
      body: null,
      isBodySkipped: false,
    };
  }

  /** Called once the answer is sent: skips the rest of the body, or ends a connection that cannot be used again. */
  #answered(exchange: Exchange): void {
    const { response, bodyBytes, filled, body } = exchange;
    const socket = this.#socket as Socket;
    unread.delete(exchange.message);
    response.detachSocket(socket);
    process.nextTick(() => response.emit('close'));
    const isWhole = filled === bodyBytes;
    if (!response.shouldKeepAlive || (body !== null && !isWhole)) {
      socket.end();
      return;
    }
    exchange.isBodySkipped = true;
    exchange.earlyBytes = NOTHING;
    if (!isWhole || this.#endExchange()) socket.resume();
  }

  #connectionClosed(): void {
    const exchange = this.#exchange;
    this.#exchange = null;
    if (exchange === null) return;
    exchange.body?.read.reject(new Error('The connection was closed before the body was complete'));
    if (!exchange.message.complete) exchange.message.destroy();
  }
}

interface Head {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bodyBytes: number;
}

/** Returns null for any head that our clients do not send, so that none can be parsed in two ways. */
function parseHead(text: string): Head | null {
  const [first = '', ...lines] = text.split('\r\n');
  const [, url] = REQUEST_LINE.exec(first) ?? [];
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name = '', value = ''] = FIELD.exec(line) ?? [];
    const key = name.toLowerCase();
    if (key === '' || Object.hasOwn(headers, key)) return null;
    headers[key] = value.trimEnd();
  }
  const length = headers['content-length'] ?? '';
  const isPlain = !UNUSUAL.some((name) => Object.hasOwn(headers, name));
  return url !== undefined && isPlain && LENGTH.test(length)
    ? { url, headers, bodyBytes: Number(length) }
    : null;
}

/**
 * Moves an accepted connection to a socket that reads by `onread`, which Node offers for outgoing ones only. Of
 * `accepted` only the `close` event is used afterwards. @returns null if Node has changed and this fails
 */
function socketReadBy(accepted: Socket, onread: SocketConstructorOpts['onread']): Socket | null {
  const inside = accepted as unknown as { _handle: { readonly reading?: unknown } | null };
  const handle = inside._handle;
  if (typeof handle !== 'object' || handle === null) return null;
  accepted.setTimeout(0);
  accepted.removeAllListeners('error').on('error', () => undefined);
  inside._handle = null;
  const options = { handle, onread, noDelay: true } as unknown as SocketConstructorOpts;
  return new Socket(options);
}
