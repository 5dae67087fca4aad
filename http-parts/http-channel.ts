/** A request of one server's HTTP face. */
export interface ChannelRequest {
  readonly method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE' | 'HEAD';
  /** With its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>> | null;
  /** Sent as it is, without a copy; not to be changed until the exchange has ended. */
  readonly body?: Uint8Array | string | null;
  /** The caller waits no longer; the request may have been executed, or may be executed later. */
  readonly signal?: AbortSignal;
}

/** What the server answered. */
export interface ChannelAnswer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: {
    bytes(): Promise<Uint8Array>;
    text(): Promise<string>;
    json(): Promise<unknown>;
  };
}

/** An answer that is read while it comes. */
export interface StreamedAnswer {
  readonly statusCode: number;
  readonly headers: ChannelAnswer['headers'];
  /** Text in pieces; it fails where the connection breaks, and at the end of the signal. To be read, or left by `return`. */
  readonly body: AsyncIterable<string>;
}

/**
 * Exchanges with one server. It is the seam below all logic of retries: a pool of connections of undici is one, and a
 * simulation has its own, in which requests are lost, answered late, and executed after the caller has gone.
 */
export interface HttpChannel {
  /** @throws the reason of the signal, or why there is no answer */
  request(request: ChannelRequest): Promise<ChannelAnswer>;
  /** As `request`, for an answer that is read while it comes. */
  stream(request: ChannelRequest): Promise<StreamedAnswer>;
  /** Resolves when the exchanges under way have ended; there are no new ones. */
  close(): Promise<void>;
  /** Exchanges under way fail. */
  destroy(): Promise<void>;
}
