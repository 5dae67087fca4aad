import {
  leaseChanges,
  leaseEventOf,
  leaseMerge,
  type TimedLeaseState,
  timedLeaseState,
} from '../../wire/lease-changes.ts';
import type { LeaseEvent } from '../../wire/named-lease-api.ts';
import type { Endpoints } from '../endpoints.ts';
import { followEvents } from '../event-stream.ts';

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
): AsyncGenerator<LeaseEvent, void, undefined> {
  const source = {
    path: `/v1/leases/${encodeURIComponent(name)}/watch`,
    what: `lease "${name}"`,
    silentMsMax: SILENT_MS_MAX,
    read: leaseEventOf,
  };
  let state: TimedLeaseState | null = null;
  for await (const event of followEvents(endpoints, source, patienceMs, signal)) {
    const nowMs = endpoints.world.nowMs();
    const before: TimedLeaseState | null = state;
    const next: TimedLeaseState = timedLeaseState(event, nowMs);
    state = leaseMerge(before, next);
    if (event.kind === 'state' && before !== null) yield* leaseChanges(name, before, next, nowMs);
    else yield event;
  }
}
