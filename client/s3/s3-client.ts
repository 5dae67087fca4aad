import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Pace } from '../../base/retry.ts';
import { Retry } from '../../base/retry.ts';
import type { World } from '../../base/world.ts';
import { uriEncode } from '../../platform/s3-signature.ts';
import type { XmlNode } from '../../platform/s3-xml.ts';
import { type Dispatcher, Pool } from '../../platform/undici.ts';
import { CommandFailure, EXIT_TEMPORARY, EXIT_UNAUTHORIZED } from '../terminal/failure.ts';
import { isTrustFailure } from '../transport/attempt.ts';
import { errorTextIn, errorTextOf, type S3Refusal, s3Refusal } from './s3-failure.ts';
import type { S3Settings } from './s3-settings.ts';
import { signedHeaders } from './s3-signing.ts';

const CONNECTIONS_MAX = 8;
const CONNECT_TIMEOUT_MS = 10_000;
/** Without a byte in either direction. */
const SILENCE_MS_MAX = 60_000;
/** Stores combine the parts of an upload before they answer. */
export const LONG_SILENCE_MS_MAX = 600_000;
const PACE: Pace = { firstMs: 200, largestMs: 10_000, spread: [0.5, 1] };
/** How long a request is repeated after its first failure. */
const RETRY_MS = 120_000;
/** The same until the store has answered once: its address may be wrong. */
const FIRST_RETRY_MS = 10_000;
/** Large parts may take longer than the time for retries; a connection to a silent address takes as long as that. */
const ATTEMPTS_MIN = 5;
const RETRY_AFTER_MS_MAX = 60_000;
const ERROR_BYTES_MAX = 64 * 1024;
const SLICE_BYTES = 256 * 1024;
const NOTHING = new Uint8Array(0);
const NETWORK_FAILURE =
  /^(?:E(?!RR_)[A-Z_]+$|HPE_|UND_ERR_(?:SOCKET|CONNECT_TIMEOUT|HEADERS_TIMEOUT|BODY_TIMEOUT)$)/;

/** What an answer without TLS is taken for. */
const NOT_TLS: ReadonlySet<unknown> = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER']);

export interface S3ClientParts {
  readonly world: World;
  readonly settings: S3Settings;
  /** Aborts requests and waits; not the removal of an unfinished upload. */
  readonly signal?: AbortSignal | undefined;
  /** How long to repeat a request that fails. */
  readonly retryMs?: number | undefined;
  /** For people: a line about what the client does by itself. */
  readonly report: (text: string) => void;
}

export interface S3Request {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** What it does, for messages such as `Cannot read s3://…`. */
  readonly what: string;
  /** Of the object; empty: the bucket itself. */
  readonly key: string;
  readonly query?: readonly (readonly [string, string])[];
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly silenceMs?: number;
  /** Instead of the client's. */
  readonly signal?: AbortSignal;
}

export interface S3Answer {
  readonly status: number;
  readonly header: (name: string) => string | undefined;
  readonly body: Dispatcher.ResponseData['body'];
  /** For the document of an error that came with a status of success. */
  refusal(error: XmlNode): S3Refusal;
}

/** Requests to one bucket, each signed (Signature Version 4), and repeated after failures that may be temporary. */
export class S3Client {
  readonly world: World;
  readonly report: (text: string) => void;
  readonly #settings: S3Settings;
  readonly #signal: AbortSignal | undefined;
  readonly #retryMs: number;
  readonly #pool: Pool;
  #hasAnswered = false;

  constructor({ world, settings, signal, retryMs, report }: S3ClientParts) {
    this.world = world;
    this.report = report;
    this.#settings = settings;
    this.#signal = signal;
    this.#retryMs = retryMs ?? RETRY_MS;
    const { origin, ca } = settings;
    this.#pool = new Pool(origin, {
      connections: CONNECTIONS_MAX,
      connect: { timeout: CONNECT_TIMEOUT_MS, ...(ca === null ? {} : { ca }) },
    });
  }

  placeOf(key: string): string {
    return `s3://${this.#settings.bucket}/${key}`;
  }

  /**
   * @param read the answer; it is repeated with the request
   * @throws CommandFailure after a refusal, or if the store is not reached in time; the reason of the signal
   */
  async send<Value>(request: S3Request, read: (answer: S3Answer) => Promise<Value>): Promise<Value> {
    const retries = this.retries(request.what, request.key, request.signal);
    for (;;) {
      try {
        return await this.#once(request, read);
      } catch (error) {
        await retries.wait(error);
      }
    }
  }

  /** The waits between attempts at one thing. */
  retries(what: string, key: string, given?: AbortSignal): S3Retries {
    const signal = given ?? this.#signal;
    return new S3Retries({
      ...{ world: this.world, report: this.report, signal },
      failureOf: (error) => this.#failureOf(error, `Cannot ${what} ${this.placeOf(key)}`),
      limits: () =>
        this.#hasAnswered
          ? { retryMs: this.#retryMs, attemptsMin: ATTEMPTS_MIN }
          : { retryMs: Math.min(this.#retryMs, FIRST_RETRY_MS), attemptsMin: 1 },
    });
  }

  async #once<Value>(request: S3Request, read: (answer: S3Answer) => Promise<Value>): Promise<Value> {
    const { method, what, key, body = NOTHING, silenceMs = SILENCE_MS_MAX } = request;
    const signal = request.signal ?? this.#signal;
    signal?.throwIfAborted();
    const answer = await this.#pool.request({
      ...{ method, ...this.#signed(request, body), signal: signal ?? null },
      // In slices, since the time without an answer counts from the last one that was sent.
      body: body.length > SLICE_BYTES ? Readable.from(slicesOf(body), { objectMode: false }) : body,
      ...{ headersTimeout: silenceMs, bodyTimeout: silenceMs },
    });
    this.#hasAnswered = true;
    const { statusCode: status } = answer;
    const header = (name: string): string | undefined => {
      const value = answer.headers[name];
      return Array.isArray(value) ? value[0] : value;
    };
    // A body that is not read to its end fails, also after its reader has left.
    answer.body.on('error', () => undefined);
    const { bucket } = this.#settings;
    const refused = { what, place: this.placeOf(key), bucket, status, header, nowMs: this.world.wallMs() };
    const refusalOf = (error: XmlNode): S3Refusal => s3Refusal(refused, errorTextOf(error));
    if (status < 300) return read({ status, header, body: answer.body, refusal: refusalOf });
    const refusal = s3Refusal(refused, errorTextIn(status, await beginningOf(answer.body, ERROR_BYTES_MAX)));
    const afterS = Number(header('retry-after') ?? Number.NaN);
    throw Number.isNaN(afterS) ? refusal : new PostponedRefusal(refusal, afterS * 1_000);
  }

  /** @returns the target and the headers, with a signature of this moment */
  #signed(
    { method, key, query = [], headers }: S3Request,
    body: Uint8Array,
  ): { readonly path: string; readonly headers: Record<string, string> } {
    const { origin, basePath, region, credentials } = this.#settings;
    const path = `${basePath}/${key.split('/').map(uriEncode).join('/')}`;
    const text = query.map(([name, value]) => `${uriEncode(name)}=${uriEncode(value)}`).join('&');
    const unsigned = {
      ...{ method, path, query },
      headers: { ...headers, host: new URL(origin).host },
      payloadHash: digestOf('sha256', body, 'hex'),
    };
    const signed = signedHeaders(unsigned, credentials, region, this.world.wallMs());
    return {
      path: text === '' ? path : `${path}?${text}`,
      headers: body.length === 0 ? signed : { ...signed, 'content-length': String(body.length) },
    };
  }

  /** @returns the failure for people */
  #failureOf(error: unknown, what: string): CommandFailure {
    if (error instanceof PostponedRefusal) return error.refusal;
    if (error instanceof CommandFailure) return error;
    const cause = error instanceof AggregateError ? (error.errors[0] as unknown) : error;
    if (!(cause instanceof Error) || !('code' in cause)) throw error;
    const { origin } = this.#settings;
    if (isTrustFailure(cause))
      return new CommandFailure(
        EXIT_UNAUTHORIZED,
        `${what}: ${origin} has no trusted certificate: ${reasonOf(cause)}`,
        NOT_TLS.has(cause.code)
          ? 'its answer is not TLS: does the endpoint begin with http://?'
          : 'name its CA certificate with --s3-ca',
        { cause },
      );
    if (!NETWORK_FAILURE.test(String(cause.code))) throw error;
    return new CommandFailure(
      EXIT_TEMPORARY,
      `${what}: no answer from ${origin}: ${cause.message}`,
      'check the endpoint (--s3-endpoint, AWS_ENDPOINT_URL) and that the store runs, then try again',
      { cause },
    );
  }
}

/** A refusal that says when to ask again. */
class PostponedRefusal extends Error {
  readonly refusal: S3Refusal;
  readonly afterMs: number;

  constructor(refusal: S3Refusal, afterMs: number) {
    super(refusal.message);
    this.refusal = refusal;
    this.afterMs = Math.min(Math.max(0, afterMs), RETRY_AFTER_MS_MAX);
  }
}

interface S3RetriesParts extends Pick<S3ClientParts, 'world' | 'signal' | 'report'> {
  readonly failureOf: (error: unknown) => CommandFailure;
  readonly limits: () => { readonly retryMs: number; readonly attemptsMin: number };
}

export class S3Retries {
  readonly #parts: S3RetriesParts;
  readonly #retry: Retry;
  #attempts = 0;
  #sinceMs: number | null = null;

  constructor(parts: S3RetriesParts) {
    this.#parts = parts;
    const deadlineMs = (): number => {
      const { retryMs, attemptsMin } = parts.limits();
      return this.#attempts < attemptsMin ? Number.POSITIVE_INFINITY : (this.#sinceMs ?? 0) + retryMs;
    };
    this.#retry = new Retry({ deadlineMs, pace: PACE, lastWait: 'fail' }, () => parts.world.random());
  }

  /** Waits until the next attempt. @throws the failure for people if there is none; the reason of the signal */
  async wait(error: unknown): Promise<void> {
    const { world, signal, report } = this.#parts;
    signal?.throwIfAborted();
    const failure = this.#parts.failureOf(error);
    const nowMs = world.nowMs();
    this.#attempts += 1;
    const isFirst = this.#sinceMs === null;
    this.#sinceMs ??= nowMs;
    if (failure.exit !== EXIT_TEMPORARY || isUnknownHost(failure.cause)) throw failure;
    const leastMs = error instanceof PostponedRefusal ? error.afterMs : 0;
    const step = this.#retry.next({ kind: 'later', leastMs }, nowMs);
    if (step.kind !== 'wait') throw failure;
    if (isFirst) report(`${failure.message}; trying again`);
    try {
      await world.sleep(step.ms, signal === undefined ? {} : { signal });
    } catch (stopped) {
      signal?.throwIfAborted();
      throw stopped;
    }
  }
}

/** Errors of TLS have lines of its library. */
function reasonOf(cause: Error): string {
  return 'reason' in cause && typeof cause.reason === 'string' ? cause.reason : cause.message;
}

function isUnknownHost(cause: unknown): boolean {
  return cause instanceof Error && 'code' in cause && cause.code === 'ENOTFOUND';
}

/** Of bodies of any length: one update takes 2 GiB at most. */
export function digestOf(algorithm: 'sha256' | 'md5', body: Uint8Array, encoding: 'hex' | 'base64'): string {
  const hash = createHash(algorithm);
  for (const slice of slicesOf(body)) hash.update(slice);
  return hash.digest(encoding);
}

function* slicesOf(body: Uint8Array): Generator<Uint8Array, void, undefined> {
  for (let at = 0; at < body.length; at += SLICE_BYTES) yield body.subarray(at, at + SLICE_BYTES);
}

/** @returns the body; if it has more than `bytesMax`, its beginning with somewhat more, and the rest is left unread */
export async function beginningOf(body: S3Answer['body'], bytesMax: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > bytesMax) break;
  }
  return Buffer.concat(pieces);
}
