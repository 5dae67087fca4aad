import {
  leaseChanges,
  leaseEventOf,
  leaseMerge,
  type TimedLeaseState,
  timedLeaseState,
} from '../../wire/lease-changes.ts';
import type { LeaseEvent } from '../../wire/named-lease-api.ts';
import type { Endpoints } from '../transport/endpoints.ts';
import { followEvents } from '../transport/event-stream.ts';

/** Servers send something every two seconds; the client changes to another one after a silence of this time. */
const SILENT_MS_MAX = 6_000;

/**
 * Yields the events of a lease, beginning with its state. If the server fails, continues at another one; events in
 * between are derived from the states.
 * @param patienceMs for how long all servers may fail to send anything
 * @throws ServiceError `no-majority` after that, or a server's refusal; the reason of `signal`
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
