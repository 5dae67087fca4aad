import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { leaseChanges, leaseMerge, type TimedLeaseState, timedLeaseState } from '../../wire/lease-changes.ts';
import { isLeaseEventKind, type LeaseEvent } from '../../wire/named-lease-api.ts';
import { StreamEventReader } from '../../wire/sse.ts';
import { Backoff } from '../backoff.ts';
import type { Endpoint } from '../endpoint.ts';
import type { Endpoints } from '../endpoints.ts';
import { problemError } from '../problem.ts';

/** Servers say something every two seconds; one that is silent for this long is left. */
const SILENT_MS_MAX = 6_000;

/**
 * What happens to a lease, beginning with how it stands. When the server that tells dies, another one goes on; what
 * happened in between is told as far as states can tell it.
 *
 * @param patienceMs how long no server may have an answer
 * @throws ServiceError `no-majority` after that, or what a server refuses the watch with; the reason of `signal`
 */
export async function* watchLease(
  endpoints: Endpoints,
  name: string,
  patienceMs: number,
  signal?: AbortSignal,
): AsyncGenerator<LeaseEvent, never, undefined> {
  let state: TimedLeaseState | null = null;
  let last: Endpoint | null = null;
  let heardMs = performance.now();
  let backoff = new Backoff();
  for (;;) {
    signal?.throwIfAborted();
    const endpoint: Endpoint = endpoints.choose(null, last, performance.now());
    last = endpoint;
    let cause: unknown = new Error('the stream ended');
    try {
      for await (const event of streamOf(endpoint, name, signal)) {
        const nowMs = performance.now();
        heardMs = nowMs;
        backoff = new Backoff();
        const before: TimedLeaseState | null = state;
        const next: TimedLeaseState = timedLeaseState(event, nowMs);
        state = leaseMerge(before, next);
        if (event.kind === 'state' && before !== null) yield* leaseChanges(name, before, next, nowMs);
        else yield event;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof ServiceError && error.remedy !== 'retry' && error.remedy !== 'redirect')
        throw error;
      if (!(error instanceof Error)) throw error;
      cause = error;
    }
    if (performance.now() - heardMs > patienceMs) {
      throw new ServiceError(
        'no-majority',
        `Cannot watch lease "${name}": ${cause instanceof Error ? cause.message : 'no server answers'}`,
        {},
        { cause },
      );
    }
    await delay(backoff.nextDelayMs(), undefined, signal === undefined ? {} : { signal }).catch(
      (error: unknown) => {
        signal?.throwIfAborted();
        throw error;
      },
    );
  }
}

async function* streamOf(
  endpoint: Endpoint,
  name: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<LeaseEvent> {
  const silent = new AbortController();
  const timer = setTimeout(
    () => silent.abort(new Error(`no word from ${endpoint.url} for ${SILENT_MS_MAX} ms`)),
    SILENT_MS_MAX,
  );
  try {
    const response = await endpoint.stream({
      method: 'GET',
      path: `/v1/leases/${encodeURIComponent(name)}/watch`,
      signal: signal === undefined ? silent.signal : AbortSignal.any([signal, silent.signal]),
    });
    if (response.statusCode !== 200) {
      const text = await response.body.text();
      throw problemError(`Cannot watch lease "${name}"`, response.statusCode, response.headers, text);
    }
    const reader = new StreamEventReader();
    response.body.setEncoding('utf8');
    for await (const text of response.body) {
      timer.refresh();
      for (const { event, data } of reader.push(String(text))) {
        if (isLeaseEventKind(event)) yield { ...(JSON.parse(data) as LeaseEvent), kind: event };
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
