import type { LeaseEventKind } from './lease-events.ts';
import type { LeaseEvent, LeaseState } from './named-lease-api.ts';

/** A state as one process keeps it: with the moment of its end on that process's own clock instead of a span. */
export interface TimedLeaseState extends Omit<LeaseState, 'remainingMs'> {
  readonly untilMs: number;
}

/** A refresh moves the end by more than this, in milliseconds; less is the same end, told twice. */
const SAME_END_MS = 20;

export const LEASE_FREE: TimedLeaseState = { held: false, owner: null, token: 0, keys: {}, untilMs: 0 };

export function timedLeaseState(state: LeaseState, nowMs: number): TimedLeaseState {
  const { held, owner, token, keys } = state;
  return { held, owner, token, keys, untilMs: held ? nowMs + state.remainingMs : 0 };
}

/** `after`, with what is still known from `before`: a token that was seen is not forgotten when its holder goes. */
export function leaseMerge(before: TimedLeaseState | null, after: TimedLeaseState): TimedLeaseState {
  if (after.held || before === null) return after;
  return { ...LEASE_FREE, token: Math.max(before.token, after.token) };
}

export function leaseEvent(
  kind: LeaseEventKind,
  name: string,
  state: TimedLeaseState,
  nowMs: number,
): LeaseEvent {
  const { untilMs, ...rest } = state;
  return { kind, name, ...rest, remainingMs: state.held ? Math.max(0, Math.round(untilMs - nowMs)) : 0 };
}

/**
 * What happened between two states that were seen one after the other. Whatever came and went in between is left out;
 * tokens tell that it did. A lease that is gone before its end was given back; else it has expired.
 *
 * @returns events in their order; empty where `after` says nothing new, or is older than `before`
 */
export function leaseChanges(
  name: string,
  before: TimedLeaseState,
  after: TimedLeaseState,
  nowMs: number,
): LeaseEvent[] {
  if (after.held && after.token < before.token) return [];
  const ended = (): LeaseEvent => {
    const kind = nowMs >= before.untilMs ? 'expired' : 'released';
    return leaseEvent(kind, name, { ...LEASE_FREE, token: before.token }, nowMs);
  };
  if (!after.held) return before.held ? [ended()] : [];
  if (!before.held) {
    // A late word about a holder whose end was told already.
    return after.token === before.token ? [] : [leaseEvent('acquired', name, after, nowMs)];
  }
  if (after.token > before.token) return [ended(), leaseEvent('acquired', name, after, nowMs)];
  if (JSON.stringify(before.keys) !== JSON.stringify(after.keys))
    return [leaseEvent('keys', name, after, nowMs)];
  return after.untilMs > before.untilMs + SAME_END_MS ? [leaseEvent('refreshed', name, after, nowMs)] : [];
}
