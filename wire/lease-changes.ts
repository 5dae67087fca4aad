import { isLeaseEventKind, type LeaseEventKind } from './lease-events.ts';
import type { LeaseEvent, LeaseState } from './named-lease-api.ts';

/** A lease state with its end on the local clock instead of a span. */
export interface TimedLeaseState extends Omit<LeaseState, 'remainingMs'> {
  readonly untilMs: number;
  /** How this token's lease ended, by a nearer server's report, which may arrive after the lease's end. */
  readonly end?: LeaseEnd;
}

type LeaseEnd = Extract<LeaseEventKind, 'released' | 'expired'>;

/** A refresh moves the end by more than this, in milliseconds; less is the same end, reported twice. */
const SAME_END_MS = 20;

export const LEASE_FREE: TimedLeaseState = { held: false, owner: null, token: 0, keys: {}, untilMs: 0 };

/** @param state from a query or an event */
export function timedLeaseState(state: LeaseState | LeaseEvent, nowMs: number): TimedLeaseState {
  const { held, owner, token, keys } = state;
  const kind = 'kind' in state ? state.kind : undefined;
  return {
    ...{ held, owner, token, keys, untilMs: held ? nowMs + state.remainingMs : 0 },
    ...(kind === 'released' || kind === 'expired' ? { end: kind } : {}),
  };
}

/** @returns an event of a watch; null for an unknown kind */
export function leaseEventOf(kind: string, data: string): LeaseEvent | null {
  return isLeaseEventKind(kind) ? { ...(JSON.parse(data) as LeaseEvent), kind } : null;
}

/** `after`; without a holder it keeps the largest known token, and the reported end only if that is of this token. */
export function leaseMerge(before: TimedLeaseState | null, after: TimedLeaseState): TimedLeaseState {
  if (after.held || before === null) return after;
  const { end } = after;
  const isOfNewest = end !== undefined && after.token >= before.token;
  return { ...LEASE_FREE, token: Math.max(before.token, after.token), ...(isOfNewest ? { end } : {}) };
}

export function leaseEvent(
  kind: LeaseEventKind,
  name: string,
  state: TimedLeaseState,
  nowMs: number,
): LeaseEvent {
  const { held, owner, token, keys, untilMs } = state;
  const remainingMs = held ? Math.max(0, Math.round(untilMs - nowMs)) : 0;
  return { kind, name, held, owner, token, keys, remainingMs };
}

/** Events between two states; tokens show missed ones. Unreported ends: released before the end, else expired. */
export function leaseChanges(
  name: string,
  before: TimedLeaseState,
  after: TimedLeaseState,
  nowMs: number,
): LeaseEvent[] {
  if (after.held && after.token < before.token) return [];
  const ended = (): LeaseEvent => {
    const assumed = nowMs >= before.untilMs ? 'expired' : 'released';
    const reported = after.token === before.token ? after.end : undefined;
    return leaseEvent(reported ?? assumed, name, { ...LEASE_FREE, token: before.token }, nowMs);
  };
  if (!after.held) return before.held ? [ended()] : [];
  if (!before.held) {
    // A late report about a holder whose end is known.
    return after.token === before.token ? [] : [leaseEvent('acquired', name, after, nowMs)];
  }
  if (after.token > before.token) return [ended(), leaseEvent('acquired', name, after, nowMs)];
  if (JSON.stringify(before.keys) !== JSON.stringify(after.keys))
    return [leaseEvent('keys', name, after, nowMs)];
  return after.untilMs > before.untilMs + SAME_END_MS ? [leaseEvent('refreshed', name, after, nowMs)] : [];
}
