import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { Happening, LiveResync, LiveState } from '../../wire/live-api.ts';
import { StreamEventReader } from '../../wire/sse.ts';
import { Backoff } from '../backoff.ts';
import type { Endpoint } from '../endpoint.ts';
import type { Endpoints } from '../endpoints.ts';
import { problemError } from '../problem.ts';

/** Servers say something four times a second; one that is silent for this long is left. */
const SILENT_MS_MAX = 4_000;

export type LiveEvent =
  | { readonly kind: 'resync'; readonly resync: LiveResync; readonly url: string }
  | { readonly kind: 'happened'; readonly happening: Happening }
  | { readonly kind: 'state'; readonly state: LiveState };

/**
 * The cluster as it is, and what happens in it. When the server that tells dies another one goes on: it begins with a
 * `resync`, in which happenings that were told before have the same ids.
 *
 * @param watch `VOLUME:/path` of a file to be told of as well, or null
 * @param patienceMs how long no server may have an answer
 * @throws ServiceError `no-majority` after that, or what a server refuses with; the reason of `signal`
 */
export async function* watchCluster(
  endpoints: Endpoints,
  watch: string | null,
  patienceMs: number,
  signal: AbortSignal,
): AsyncGenerator<LiveEvent, never, undefined> {
  let last: Endpoint | null = null;
  let heardMs = performance.now();
  let backoff = new Backoff();
  for (;;) {
    signal.throwIfAborted();
    const endpoint: Endpoint = endpoints.choose(null, last, performance.now());
    last = endpoint;
    let cause: Error = new Error('the stream ended');
    try {
      for await (const event of streamOf(endpoint, watch, signal)) {
        heardMs = performance.now();
        backoff = new Backoff();
        yield event;
      }
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ServiceError && error.remedy !== 'retry') throw error;
      if (!(error instanceof Error)) throw error;
      cause = error;
    }
    if (performance.now() - heardMs > patienceMs) {
      throw new ServiceError('no-majority', `Cannot watch the cluster: ${cause.message}`, {}, { cause });
    }
    await delay(backoff.nextDelayMs(), undefined, { signal }).catch((error: unknown) => {
      signal.throwIfAborted();
      throw error;
    });
  }
}

async function* streamOf(
  endpoint: Endpoint,
  watch: string | null,
  signal: AbortSignal,
): AsyncGenerator<LiveEvent> {
  const silent = new AbortController();
  const timer = setTimeout(
    () => silent.abort(new Error(`no word from ${endpoint.url} for ${SILENT_MS_MAX} ms`)),
    SILENT_MS_MAX,
  );
  try {
    const response = await endpoint.stream({
      method: 'GET',
      path: `/v1/events${watch === null ? '' : `?watch=${encodeURIComponent(watch)}`}`,
      signal: AbortSignal.any([signal, silent.signal]),
    });
    if (response.statusCode !== 200) {
      const text = await response.body.text();
      throw problemError('Cannot watch the cluster', response.statusCode, response.headers, text);
    }
    const reader = new StreamEventReader();
    response.body.setEncoding('utf8');
    for await (const text of response.body) {
      timer.refresh();
      for (const { event, data } of reader.push(String(text))) {
        if (event === 'resync') yield { kind: event, resync: JSON.parse(data), url: endpoint.url };
        else if (event === 'happened') yield { kind: event, happening: JSON.parse(data) };
        else if (event === 'state') yield { kind: event, state: JSON.parse(data) };
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
