export interface ChannelRequest {
  readonly method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE' | 'HEAD';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>> | null;
  /** Sent without a copy; must not change until the exchange ends. */
  readonly body?: Uint8Array | string | null;
  /** Aborted: the caller stops waiting; the request may have been, or may yet be, executed. */
  readonly signal?: AbortSignal;
}

export interface ChannelAnswer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: {
    bytes(): Promise<Uint8Array>;
    text(): Promise<string>;
    json(): Promise<unknown>;
  };
}

export interface StreamedAnswer {
  readonly statusCode: number;
  readonly headers: ChannelAnswer['headers'];
  /** Pieces of text; fails if the connection breaks, and at the signal. Read it, or end it with `return`. */
  readonly body: AsyncIterable<string>;
}

/**
 * Exchanges with one server, below all retries: a connection pool of undici, or a simulation's channel, which loses,
 * delays and executes requests after their caller ended.
 */
export interface HttpChannel {
  /** @throws the signal's reason, or why there is no answer */
  request(request: ChannelRequest): Promise<ChannelAnswer>;
  /** Like `request`, for an answer that is read while it arrives. */
  stream(request: ChannelRequest): Promise<StreamedAnswer>;
  /** Refuses new exchanges; resolves when those under way ended. */
  close(): Promise<void>;
  /** Exchanges under way fail. */
  destroy(): Promise<void>;
}
