import type { RequestBody } from './server-channel.ts';

/** A request that may be sent to any server of a cluster, repeatedly. */
export interface ExchangeRequest {
  /** Beginning of an error's message: `Cannot read file 12`. */
  readonly what: string;
  readonly method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE' | 'HEAD';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: RequestBody;
  /** Files whose contents it touches: the client's capabilities for them are sent with it. */
  readonly files?: readonly number[];
  /** It changes something, so the outcome of an attempt without an answer is unknown. */
  readonly mutation: boolean;
  /** Called before each attempt. Attempts follow each other, so the last call is about the one that was answered. */
  readonly onAttempt?: () => void;
}

type Rest = Partial<Pick<ExchangeRequest, 'headers' | 'files' | 'mutation'>>;

const JSON_TYPE = { 'content-type': 'application/json' } as const;
const OCTETS_TYPE = { 'content-type': 'application/octet-stream' } as const;

export function getRequest(what: string, path: string, rest: Rest = {}): ExchangeRequest {
  return { what, method: 'GET', path, mutation: false, ...rest };
}

export function postRequest(what: string, path: string, value?: unknown, rest: Rest = {}): ExchangeRequest {
  const payload = value === undefined ? {} : { headers: JSON_TYPE, body: JSON.stringify(value) };
  return { what, method: 'POST', path, mutation: false, ...payload, ...rest };
}

/** A change whose body is bytes, which stay unchanged until it is answered. */
export function bytesRequest(
  what: string,
  method: 'PUT' | 'POST',
  path: string,
  body: RequestBody,
  files: readonly number[] = [],
): ExchangeRequest {
  return { what, method, path, headers: OCTETS_TYPE, body, files, mutation: true };
}
