import { EventEmitter } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Readable, Writable } from 'node:stream';

type HeaderValue = string | readonly string[];
type Headers = Record<string, HeaderValue>;

export interface InjectedAnswer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Buffer;
}

export interface InjectedOptions {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  readonly answered: (answer: InjectedAnswer) => void;
  /** Receives the head of a streamed answer. @returns a function for its pieces, and for null at the end */
  readonly begun?: ((head: InjectedAnswer) => (piece: Buffer | null) => void) | undefined;
  /** Called if the server closed the connection before its answer was complete. */
  readonly broken: () => void;
}

const NO_BODY: ReadonlySet<number> = new Set([204, 304]);

/**
 * Has the application of `server` handle a request as if it came over a socket. Node's own classes spend most of their
 * time on text of HTTP/1.1 that nothing here needs.
 * @returns a function that ends the client's side of the connection
 */
export function injectRequest(server: Server, options: InjectedOptions): () => void {
  const request = new InjectedRequest(options);
  const response = new InjectedResponse(request, options);
  const abandon = (): void => {
    request.abandon();
    response.destroy();
  };
  request.socket.closed = abandon;
  server.emit('request', request as unknown as IncomingMessage, response as unknown as ServerResponse);
  return abandon;
}

class InjectedSocket extends EventEmitter {
  readonly remoteAddress = '127.0.0.1';
  readonly encrypted = false;
  closed: () => void = () => undefined;

  destroy(): void {
    this.closed();
  }
}

/** Behaves as an `IncomingMessage` whose body has arrived. */
class InjectedRequest extends Readable {
  readonly method: string;
  url: string;
  readonly headers: Record<string, string> = {};
  readonly rawHeaders: string[] = [];
  readonly httpVersion = '1.1';
  readonly httpVersionMajor = 1;
  readonly httpVersionMinor = 1;
  readonly socket = new InjectedSocket();
  aborted = false;
  complete = false;
  #body: Buffer | undefined;

  constructor({ method, path, headers, body }: InjectedOptions) {
    super();
    this.method = method;
    this.url = path;
    this.#body = body;
    for (const name in headers) this.#head(name.toLowerCase(), headers[name] as string);
    if (body !== undefined && this.headers['content-length'] === undefined)
      this.#head('content-length', String(body.length));
  }

  #head(name: string, value: string): void {
    this.headers[name] = value;
    this.rawHeaders.push(name, value);
  }

  setTimeout(): this {
    return this;
  }

  override _read(): void {
    const body = this.#body;
    this.#body = undefined;
    this.complete = true;
    if (body !== undefined && body.length > 0) this.push(body);
    this.push(null);
  }

  /** The connection has ended. */
  abandon(): void {
    if (this.destroyed) return;
    if (!this.complete || !this.readableEnded) {
      this.aborted = true;
      this.emit('aborted');
    }
    this.destroy();
  }
}

/** Behaves as a `ServerResponse`, and keeps what is written. */
class InjectedResponse extends Writable {
  readonly req: InjectedRequest;
  readonly socket: InjectedSocket;
  statusCode = 200;
  statusMessage = '';
  headersSent = false;
  sendDate = false;
  readonly #options: InjectedOptions;
  readonly #headers: Headers = {};
  readonly #chunks: Buffer[] = [];
  #isAnswered = false;
  /** Receives pieces of a streamed answer. */
  #take: ((piece: Buffer | null) => void) | null = null;

  constructor(request: InjectedRequest, options: InjectedOptions) {
    super({ decodeStrings: false });
    this.req = request;
    this.socket = request.socket;
    this.#options = options;
  }

  setHeader(name: string, value: number | HeaderValue): this {
    if (this.headersSent) throw headersSent();
    this.#headers[name.toLowerCase()] = typeof value === 'object' ? value.map(String) : String(value);
    return this;
  }

  getHeader(name: string): HeaderValue | undefined {
    return this.#headers[name.toLowerCase()];
  }

  getHeaders(): Headers {
    return { ...this.#headers };
  }

  hasHeader(name: string): boolean {
    return this.#headers[name.toLowerCase()] !== undefined;
  }

  removeHeader(name: string): void {
    if (this.headersSent) throw headersSent();
    delete this.#headers[name.toLowerCase()];
  }

  writeHead(
    statusCode: number,
    headers: Readonly<Record<string, number | HeaderValue | undefined>> = {},
  ): this {
    if (this.headersSent) throw headersSent();
    this.statusCode = statusCode;
    for (const name in headers) {
      const value = headers[name];
      if (value !== undefined) this.setHeader(name, value);
    }
    this.headersSent = true;
    this.#begin();
    return this;
  }

  #begin(): void {
    const { begun } = this.#options;
    if (begun === undefined || this.#take !== null) return;
    const headers = this.#headers as Record<string, string>;
    this.#take = begun({ statusCode: this.statusCode, headers, bytes: Buffer.alloc(0) });
  }

  writeContinue(): void {}

  override _write(chunk: string | Buffer, encoding: BufferEncoding, done: () => void): void {
    this.headersSent = true;
    this.#begin();
    // Copied as a socket would: the application may use its memory again.
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
    if (this.#take === null) this.#chunks.push(bytes);
    else this.#take(bytes);
    done();
  }

  override _final(done: () => void): void {
    this.headersSent = true;
    this.#isAnswered = true;
    this.#begin();
    if (this.#take !== null) {
      this.#take(null);
      done();
      return;
    }
    const { statusCode } = this;
    const hasNone = this.req.method === 'HEAD' || NO_BODY.has(statusCode);
    const [first] = this.#chunks;
    const whole = this.#chunks.length === 1 ? (first as Buffer) : Buffer.concat(this.#chunks);
    const bytes = hasNone ? Buffer.alloc(0) : whole;
    this.#options.answered({ statusCode, headers: this.#headers as Record<string, string>, bytes });
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.#isAnswered) this.#options.broken();
    done(error);
  }
}

function headersSent(): Error {
  return Object.assign(new Error('Headers are sent'), { code: 'ERR_HTTP_HEADERS_SENT' });
}
