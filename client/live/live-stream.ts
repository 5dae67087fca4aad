import type { LiveResync, LiveState, ServerEvent } from '../../wire/live-api.ts';
import type { Endpoints } from '../transport/endpoints.ts';
import { followEvents } from '../transport/event-stream.ts';

/** Servers send something four times a second; the client changes to another one after a silence of this time. */
const SILENT_MS_MAX = 4_000;

export type LiveEvent =
  | { readonly kind: 'resync'; readonly resync: LiveResync; readonly url: string }
  | { readonly kind: 'happened'; readonly serverEvent: ServerEvent }
  | { readonly kind: 'state'; readonly state: LiveState };

/**
 * If the server fails, continues at another one with a `resync`, in which earlier events have the same ids.
 * @throws ServiceError `no-majority` if no server sends anything for `patienceMs`, or a server's refusal; the reason of
 *   `signal`
 */
export function watchCluster(
  endpoints: Endpoints,
  watch: string | null,
  patienceMs: number,
  signal: AbortSignal,
): AsyncGenerator<LiveEvent, never, undefined> {
  const source = {
    path: `/v1/events${watch === null ? '' : `?watch=${encodeURIComponent(watch)}`}`,
    what: 'the cluster',
    silentMsMax: SILENT_MS_MAX,
    read: liveEvent,
  };
  return followEvents(endpoints, source, patienceMs, signal);
}

function liveEvent(event: string, data: string, url: string): LiveEvent | null {
  switch (event) {
    case 'resync':
      return { kind: event, resync: JSON.parse(data), url };
    case 'happened':
      return { kind: event, serverEvent: JSON.parse(data) };
    case 'state':
      return { kind: event, state: JSON.parse(data) };
    default:
      return null;
  }
}
