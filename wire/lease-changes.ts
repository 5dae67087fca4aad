import { isLeaseEventKind, type LeaseEventKind } from './lease-events.ts';
import type { LeaseEvent, LeaseState } from './named-lease-api.ts';

/** A state as one process keeps it: with the moment of its end on that process's own clock instead of a span. */
export interface TimedLeaseState extends Omit<LeaseState, 'remainingMs'> {
  readonly untilMs: number;
  /** How the lease of this token ended, where somebody has said so who is nearer to it: his word may have been under way for longer than the lease. */
  readonly end?: LeaseEnd;
}

type LeaseEnd = Extract<LeaseEventKind, 'released' | 'expired'>;

/** A refresh moves the end by more than this, in milliseconds; less is the same end, told twice. */
const SAME_END_MS = 20;

export const LEASE_FREE: TimedLeaseState = { held: false, owner: null, token: 0, keys: {}, untilMs: 0 };

/** @param state what was looked up, or an event that was told */
export function timedLeaseState(state: LeaseState | LeaseEvent, nowMs: number): TimedLeaseState {
  const { held, owner, token, keys } = state;
  const kind = 'kind' in state ? state.kind : undefined;
  return {
    ...{ held, owner, token, keys, untilMs: held ? nowMs + state.remainingMs : 0 },
    ...(kind === 'released' || kind === 'expired' ? { end: kind } : {}),
  };
}

/** @returns an event of a watch as it comes over the wire; null for one of a kind that is not known */
export function leaseEventOf(kind: string, data: string): LeaseEvent | null {
  return isLeaseEventKind(kind) ? { ...(JSON.parse(data) as LeaseEvent), kind } : null;
}

/** `after`, with what is still known from `before`: a token that was seen is not forgotten when its holder goes. */
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

/**
 * What happened between two states that were seen one after the other. Whatever came and went in between is left out;
 * tokens tell that it did. Where nobody has said how a lease ended, one that is gone before its end was given back; else it has expired.
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
    const seen = nowMs >= before.untilMs ? 'expired' : 'released';
    const said = after.token === before.token ? after.end : undefined;
    return leaseEvent(said ?? seen, name, { ...LEASE_FREE, token: before.token }, nowMs);
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
