import type { ChannelRequest } from '../http-parts/http-channel.ts';
import type { Response } from './response.ts';

export type RequestBody = Uint8Array | string | readonly Uint8Array[];

/** A request of one server. Its path is printable ASCII, without spaces. */
export interface ServerRequest extends Omit<ChannelRequest, 'body' | 'signal'> {
  /** Sent as it is, parts one behind the other, without a copy; not to be changed before the exchange has ended. */
  readonly body?: RequestBody | null;
  /** The caller waits no longer; the request may have been executed, or may be executed later. */
  readonly signal: AbortSignal;
}

/** An answer whose body is read while it comes, or taken as a whole. */
export interface StreamedResponse extends Response {
  readonly body: Response['body'] & AsyncIterable<unknown> & { setEncoding(encoding: 'utf8'): unknown };
}

/**
 * A client's way to one server, below all logic of retries: sockets, or those of a simulation, in which requests are
 * lost, answered late, and executed after the caller has gone.
 */
export interface ServerChannel {
  /** @returns the answer as a whole; @throws the reason of the signal, or why there is no answer */
  request(request: ServerRequest): Promise<Response>;
  /** As `request`, for an answer that is read while it comes. */
  stream(request: ServerRequest): Promise<StreamedResponse>;
  /** Asks whether the server is alive, past all requests that wait. @throws where it does not say so */
  probe(signal: AbortSignal): Promise<void>;
  /** @returns whether anything has come in since the last call */
  hasMoved(): boolean;
  /** The shortest time that it took to make a connection, in milliseconds; 0 before the first. */
  readonly connectMs: number;
  /** Resolves when the exchanges under way have ended; there are no new ones. */
  close(): Promise<void>;
  /** Exchanges under way fail. */
  destroy(): Promise<void>;
}

/** @returns the body in one piece */
export function wholeBody(body: RequestBody | null | undefined): Uint8Array | string | null {
  if (body === null || body === undefined || typeof body === 'string' || body instanceof Uint8Array)
    return body ?? null;
  return Buffer.concat(body);
}
