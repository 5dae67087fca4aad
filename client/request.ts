import type { RequestBody } from './server-channel.ts';

/** A request that any server of a cluster may be sent, as often as it takes. */
export interface ExchangeRequest {
  /** Beginning of an error's message: `Cannot read file 12`. */
  readonly what: string;
  readonly method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE' | 'HEAD';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: RequestBody;
  /** Files whose contents it touches: what this client may do with them goes with it. */
  readonly files?: readonly number[];
  /** It changes something, so that an attempt without an answer leaves a doubt. */
  readonly mutation: boolean;
  /** Called before each attempt is sent. Attempts follow each other, so the last call is about the one that was answered. */
  readonly onAttempt?: () => void;
}

type Rest = Partial<Pick<ExchangeRequest, 'headers' | 'files' | 'mutation'>>;

const JSON_TYPE = { 'content-type': 'application/json' } as const;
const OCTETS_TYPE = { 'content-type': 'application/octet-stream' } as const;

export function getRequest(what: string, path: string, rest: Rest = {}): ExchangeRequest {
  return { what, method: 'GET', path, mutation: false, ...rest };
}

/** @param value sent as JSON; nothing is sent where it is absent */
export function postRequest(what: string, path: string, value?: unknown, rest: Rest = {}): ExchangeRequest {
  const sent = value === undefined ? {} : { headers: JSON_TYPE, body: JSON.stringify(value) };
  return { what, method: 'POST', path, mutation: false, ...sent, ...rest };
}

/** A change whose body are bytes, which stay unchanged until it is answered. */
export function bytesRequest(
  what: string,
  method: 'PUT' | 'POST',
  path: string,
  body: RequestBody,
  files: readonly number[] = [],
): ExchangeRequest {
  return { what, method, path, headers: OCTETS_TYPE, body, files, mutation: true };
}
