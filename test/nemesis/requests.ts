import { randomInt } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import type { Problem } from '../../wire/http-api.ts';
import type { Status } from '../history/operation.ts';

const CONNECTIONS_MAX = 32;
const CONNECT_TIMEOUT_MS = 1_000;
/** The default time limit of one request. */
const ASK_MS = 4_000;
/** The time limit of one attempt of a change; then another server is tried, perhaps one in a majority. */
const ATTEMPT_MS = 1_500;
/** The time limit of all attempts of one change. */
const CHANGE_MS = 12_000;
const PAUSE_MS_MAX = 150;

/** Errors of connecting: the server has certainly not received the request. */
const CONNECT_FAILURES = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EHOSTDOWN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

export interface Request {
  readonly method: 'GET' | 'PUT' | 'POST';
  readonly path: string;
  readonly body?: string | Uint8Array;
}

export interface Answer {
  readonly kind: 'answer';
  readonly server: string;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** The code of the error; null for a success. */
  readonly code: string | null;
}

export type Attempt = Answer | { readonly kind: 'unseen' } | { readonly kind: 'cut' };

export interface Outcome {
  readonly status: Status;
  /** The final answer, a success or a refusal; null if the status is not `ok`. */
  readonly answer: Answer | null;
}

/** Sends requests to servers by their ids, and distinguishes certain failures from unknown outcomes. */
export class Requests {
  readonly ids: readonly string[];
  readonly #pools: ReadonlyMap<string, Pool>;
  readonly #onProblem: (code: string) => void;

  constructor(urls: ReadonlyMap<string, string>, onProblem: (code: string) => void) {
    this.ids = [...urls.keys()];
    this.#onProblem = onProblem;
    this.#pools = new Map(
      [...urls].map(([id, url]) => [
        id,
        new Pool(url, {
          connections: CONNECTIONS_MAX,
          connect: { timeout: CONNECT_TIMEOUT_MS },
          headersTimeout: 0,
          bodyTimeout: 0,
        }),
      ]),
    );
  }

  /** Sends one request to one server, once. */
  async ask(server: string, request: Request, limitMs = ASK_MS): Promise<Attempt> {
    const pool = this.#pools.get(server);
    if (pool === undefined) throw new Error(`There is no server ${server}`);
    const { method, path, body = null } = request;
    const type = typeof body === 'string' ? 'application/json' : 'application/octet-stream';
    try {
      const response = await pool.request({
        method,
        path,
        body,
        headers: body === null ? null : { 'content-type': type },
        signal: AbortSignal.timeout(limitMs),
      });
      const bytes = Buffer.from(await response.body.arrayBuffer());
      const { statusCode: status, headers } = response;
      const code = status < 300 ? null : codeOf(bytes);
      if (code !== null) this.#onProblem(code);
      return { kind: 'answer', server, status, headers, bytes, code };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      const code = 'code' in error ? String(error.code) : '';
      return { kind: CONNECT_FAILURES.has(code) ? 'unseen' : 'cut' };
    }
  }

  /**
   * Sends a change repeatedly with the same request id, to one server after the other, until one answers finally. All
   * attempts are one operation.
   *
   * @param facts codes of refusals that are answers about the state, and not failures
   */
  async change(request: Request, facts: readonly string[] = [], limitMs = CHANGE_MS): Promise<Outcome> {
    const deadlineMs = performance.now() + limitMs;
    let isDoubtful = false;
    for (let index = randomInt(this.ids.length); performance.now() < deadlineMs; index++) {
      const server = this.ids[index % this.ids.length] as string;
      const attempt = await this.ask(server, request, ATTEMPT_MS);
      if (attempt.kind === 'answer') {
        const { code } = attempt;
        if (code === null || facts.includes(code)) return { status: 'ok', answer: attempt };
        // The primary checks the free space before it orders the change.
        if (code === 'no-space') return { status: isDoubtful ? 'unknown' : 'fail', answer: null };
        isDoubtful = true;
        // The servers forgot the answer, or a server failed during the change.
        if (attempt.status !== 503) return { status: 'unknown', answer: null };
      } else if (attempt.kind === 'cut') {
        isDoubtful = true;
      }
      await delay(randomInt(10, PAUSE_MS_MAX));
    }
    return { status: isDoubtful ? 'unknown' : 'fail', answer: null };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
  }
}

function codeOf(bytes: Buffer): string {
  try {
    return (JSON.parse(bytes.toString('utf8')) as Problem).code;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return 'no problem document';
  }
}

/** Numbers the requests of one client about one thing. */
export class Session {
  readonly session = randomInt(1, 2 ** 47);
  #number = 0;

  next(): number {
    return ++this.#number;
  }
}
