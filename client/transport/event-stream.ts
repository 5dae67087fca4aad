import { ServiceError } from '../../base/errors.ts';
import { Backoff } from '../../base/retry.ts';
import { StreamEventReader } from '../../wire/sse.ts';
import { CLIENT_PACE } from './backoff.ts';
import type { Endpoint } from './endpoint.ts';
import type { Endpoints } from './endpoints.ts';
import { problemError } from './problem.ts';

/** A stream of server-sent events that every server of the cluster offers. */
export interface EventSource<Item> {
  readonly path: string;
  /** Completes "Cannot watch …". */
  readonly what: string;
  /** Servers send something more often than this; the client changes to another server after a longer silence. */
  readonly silentMsMax: number;
  read(event: string, data: string, url: string): Item | null;
}

/**
 * Yields the events of a stream, continuing at another server if one fails. @throws ServiceError `no-majority` after
 * `patienceMs` without an event, or a server's refusal; the reason of `signal`
 */
export async function* followEvents<Item>(
  endpoints: Endpoints,
  source: EventSource<Item>,
  patienceMs: number,
  signal: AbortSignal = new AbortController().signal,
): AsyncGenerator<Item, never, undefined> {
  const { world } = endpoints;
  let last: Endpoint | null = null;
  let lastEventMs = world.nowMs();
  let backoff = new Backoff(CLIENT_PACE, () => world.random());
  for (;;) {
    signal.throwIfAborted();
    const endpoint: Endpoint = endpoints.choose(null, last, world.nowMs());
    last = endpoint;
    let cause: Error = new Error('the stream ended');
    try {
      for await (const item of eventsOf(endpoint, source, signal)) {
        lastEventMs = world.nowMs();
        backoff = new Backoff(CLIENT_PACE, () => world.random());
        yield item;
      }
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ServiceError && error.remedy !== 'retry' && error.remedy !== 'redirect')
        throw error;
      if (!(error instanceof Error)) throw error;
      cause = error;
    }
    if (world.nowMs() - lastEventMs > patienceMs) {
      throw new ServiceError('no-majority', `Cannot watch ${source.what}: ${cause.message}`, {}, { cause });
    }
    await world.sleep(backoff.nextDelayMs(), { signal }).catch((error: unknown) => {
      signal.throwIfAborted();
      throw error;
    });
  }
}

async function* eventsOf<Item>(
  endpoint: Endpoint,
  { path, what, silentMsMax, read }: EventSource<Item>,
  signal: AbortSignal,
): AsyncGenerator<Item> {
  const silent = new AbortController();
  const late = (): void => silent.abort(new Error(`no data from ${endpoint.url} for ${silentMsMax} ms`));
  let timer = endpoint.world.after(silentMsMax, late);
  try {
    const response = await endpoint.stream({
      method: 'GET',
      path,
      signal: AbortSignal.any([signal, silent.signal]),
    });
    if (response.statusCode !== 200) {
      const text = await response.body.text();
      throw problemError(`Cannot watch ${what}`, response.statusCode, response.headers, text);
    }
    const reader = new StreamEventReader();
    response.body.setEncoding('utf8');
    for await (const text of response.body) {
      timer.cancel();
      timer = endpoint.world.after(silentMsMax, late);
      for (const { event, data } of reader.push(String(text))) {
        const item = read(event, data, endpoint.url);
        if (item !== null) yield item;
      }
    }
  } finally {
    timer.cancel();
  }
}
