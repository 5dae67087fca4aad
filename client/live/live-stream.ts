import type { Happening, LiveResync, LiveState } from '../../wire/live-api.ts';
import type { Endpoints } from '../endpoints.ts';
import { followEvents } from '../event-stream.ts';

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
      return { kind: event, happening: JSON.parse(data) };
    case 'state':
      return { kind: event, state: JSON.parse(data) };
    default:
      return null;
  }
}
