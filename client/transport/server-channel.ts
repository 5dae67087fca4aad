import type { ChannelRequest } from '../../platform/http-channel.ts';
import type { Response } from './response.ts';

export type RequestBody = Uint8Array | string | readonly Uint8Array[];

/** A request to one server. Its path is printable ASCII, without spaces. */
export interface ServerRequest extends Omit<ChannelRequest, 'body' | 'signal'> {
  /** Sent without a copy, part after part; not to be changed before the exchange has ended. */
  readonly body?: RequestBody | null;
  /** The caller aborts; the request may have been executed, or may be executed later. */
  readonly signal: AbortSignal;
}

export interface StreamedResponse extends Response {
  readonly body: Response['body'] & AsyncIterable<unknown> & { setEncoding(encoding: 'utf8'): unknown };
}

/** Below all retries: sockets, or a simulation that loses requests, or executes them after the caller has aborted. */
export interface ServerChannel {
  /** @returns the whole answer @throws the reason of the signal, or why there is no answer */
  request(request: ServerRequest): Promise<Response>;
  stream(request: ServerRequest): Promise<StreamedResponse>;
  /** Requests `/livez`, without waiting for other requests. @throws unless the server answers it */
  probe(signal: AbortSignal): Promise<void>;
  /** @returns whether anything has arrived since the last call */
  hasReceived(): boolean;
  /** The shortest time that a connection took, in milliseconds; 0 before the first. */
  readonly connectMs: number;
  /** Lets exchanges in flight finish, and begins no new ones. */
  close(): Promise<void>;
  destroy(): Promise<void>;
}

export function wholeBody(body: RequestBody | null | undefined): Uint8Array | string | null {
  if (body === null || body === undefined || typeof body === 'string' || body instanceof Uint8Array)
    return body ?? null;
  return Buffer.concat(body);
}
