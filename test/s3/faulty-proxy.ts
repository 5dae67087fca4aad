import { once } from 'node:events';
import { createServer, type IncomingMessage, request as requestHttp, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after } from 'node:test';

/** A request that passes, as the proxy sees it before its body. */
export interface Passing {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingMessage['headers'];
  /** From 1 on, of the requests with this method and this path and query. */
  readonly attempt: number;
  readonly atMs: number;
}

/** What happens to an exchange instead of passing. */
export type Fault =
  /** The connection ends once so many bytes of the request's body have passed. */
  | { readonly kind: 'cut-request'; readonly bytes: number }
  /** The connection ends once so many bytes of the answer's body have passed. */
  | { readonly kind: 'cut-answer'; readonly bytes: number }
  /** The server has executed the request, but the connection ends before its answer. */
  | { readonly kind: 'lose-answer' }
  | { readonly kind: 'answer'; readonly status: number; readonly code: string; readonly retryAfter?: string }
  /** It passes after the promise. */
  | { readonly kind: 'hold'; readonly until: Promise<unknown> }
  | { readonly kind: 'send'; readonly target: string };

/** Stands before servers of S3, and breaks the exchanges that a test chooses. */
export class FaultyProxy {
  readonly passed: Passing[] = [];
  /** Base URL of the server; may change. */
  target: string;
  fault: (request: Passing) => Fault | null | Promise<Fault | null> = () => null;
  readonly #server = createServer((request, response) => void this.#take(request, response));
  readonly #attempts = new Map<string, number>();

  private constructor(target: string) {
    this.target = target;
  }

  static async start(target: string): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    after(() => {
      proxy.#server.close();
      proxy.#server.closeAllConnections();
    });
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url = '/', headers } = request;
    const name = `${method} ${url}`;
    const attempt = (this.#attempts.get(name) ?? 0) + 1;
    this.#attempts.set(name, attempt);
    const passing = { method, url: new URL(url, this.target), headers, attempt, atMs: performance.now() };
    this.passed.push(passing);
    request.on('error', () => response.destroy());
    const fault = await this.fault(passing);
    if (fault?.kind === 'answer') {
      request.resume();
      const { retryAfter } = fault;
      const after = retryAfter === undefined ? {} : { 'retry-after': retryAfter };
      response.writeHead(fault.status, { 'content-type': 'application/xml', ...after });
      response.end(`<Error><Code>${fault.code}</Code><Message>As the test wants it.</Message></Error>`);
      return;
    }
    if (fault?.kind === 'hold') await fault.until;
    const path = fault?.kind === 'send' ? fault.target : url;
    const onward = requestHttp(new URL(path, this.target), { method, headers, agent: false });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    onward.on('response', (answer) => void forwardAnswer(answer, response, fault));
    let sent = 0;
    request.on('data', (piece: Buffer) => {
      sent += piece.length;
      if (fault?.kind === 'cut-request' && sent >= fault.bytes) {
        onward.destroy();
        response.destroy();
      } else if (!onward.write(piece)) {
        request.pause();
        onward.once('drain', () => request.resume());
      }
    });
    request.on('end', () => onward.end());
  }
}

async function forwardAnswer(
  answer: IncomingMessage,
  response: ServerResponse,
  fault: Fault | null,
): Promise<void> {
  answer.on('error', () => response.destroy());
  if (fault?.kind === 'lose-answer') {
    answer.resume();
    await once(answer, 'end');
    response.destroy();
    return;
  }
  response.writeHead(answer.statusCode ?? 0, answer.headers);
  let sent = 0;
  answer.on('data', (piece: Buffer) => {
    if (fault?.kind !== 'cut-answer') {
      if (!response.write(piece)) {
        answer.pause();
        response.once('drain', () => answer.resume());
      }
      return;
    }
    if (response.destroyed) return;
    const rest = piece.subarray(0, fault.bytes - sent);
    sent += rest.length;
    // What was written before the end of the connection reaches the client.
    response.write(rest, () => {
      if (sent === fault.bytes) response.destroy();
    });
  });
  answer.on('end', () => response.end());
}
