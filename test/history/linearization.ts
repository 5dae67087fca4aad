/**
 * Searches for an order of one key's operations that explains all answers.
 *
 * [WingGong] "Testing and verifying concurrent objects" searches depth first. Two improvements are from [Lowe]
 * "Testing for linearizability": configurations that were visited are not searched again, and an operation is ordered
 * only when an operation returns that must come after it (just in time). One is ours: a query is ordered as soon as
 * its answer fits, as it excludes no other operation.
 */
import { IMPOSSIBLE, type Model } from './models.ts';
import { type Operation, READS } from './operation.ts';

/** The most configurations of a search, unless the caller sets another limit. */
export const CONFIGURATIONS_MAX = 5_000_000;

/**
 * A position of a search: how many calls and returns it has passed, the state, and which pending operations have had
 * their effect.
 */
export interface Configuration {
  readonly event: number;
  readonly state: number;
  /** A bit for the slot of each pending operation that has had its effect. */
  readonly taken: bigint;
}

interface Pending {
  readonly operation: Operation;
  readonly bit: bigint;
  readonly observes: boolean;
}

interface Event {
  readonly isReturn: boolean;
  readonly atNs: number;
  readonly self: Pending;
  /** Of returns: all operations that were called before and have not returned, including the returning one. */
  readonly pending: readonly Pending[];
}

/** A history of one key, as calls and returns in the order of time. */
export class Course {
  readonly model: Model;
  readonly events: readonly Event[];

  constructor(operations: readonly Operation[], model: Model) {
    this.model = model;
    this.events = eventsOf(model.relevant(operations.filter(counts)), model);
  }

  get start(): Configuration {
    return { event: 0, state: this.model.initial, taken: 0n };
  }
}

/** A failed operation has no effect, and a read without an answer proves nothing. */
function counts(operation: Operation): boolean {
  if (operation.status === 'ok') return true;
  return operation.status === 'unknown' && !READS.has(operation.op);
}

function eventsOf(operations: readonly Operation[], model: Model): Event[] {
  const moments = operations.flatMap((operation) => {
    const call = { atNs: operation.call, isReturn: false, operation };
    if (operation.status !== 'ok') return [call];
    return [call, { atNs: operation.return as number, isReturn: true, operation }];
  });
  // Calls first: an operation that returns at the moment of another's call is concurrent with it.
  moments.sort((a, b) => a.atNs - b.atNs || Number(a.isReturn) - Number(b.isReturn));
  const pending = new Map<Operation, Pending>();
  const freeSlots: number[] = [];
  let slots = 0;
  return moments.map(({ atNs, isReturn, operation }): Event => {
    const known = pending.get(operation);
    if (known !== undefined && isReturn) {
      const event = { isReturn, atNs, self: known, pending: [...pending.values()] };
      pending.delete(operation);
      // An operation with an unknown outcome never returns, so that its slot is never used again.
      freeSlots.push(known.bit.toString(2).length - 1);
      return event;
    }
    const slot = freeSlots.pop() ?? slots++;
    const self = { operation, bit: 1n << BigInt(slot), observes: model.observes(operation) };
    pending.set(operation, self);
    return { isReturn, atNs, self, pending: [] };
  });
}

export type SearchResult =
  /** Configurations that have passed all events: the first one found, or with `all` all of them. */
  | { readonly kind: 'reached'; readonly ends: readonly Configuration[] }
  /** There is none. `eventMax`: the furthest return that could not be explained. */
  | { readonly kind: 'stuck'; readonly eventMax: number }
  | { readonly kind: 'given-up' };

export interface SearchOptions {
  readonly from: readonly Configuration[];
  /** The number of events to explain. */
  readonly until: number;
  /** Find all configurations at the end, and not only the first. */
  readonly all?: boolean;
  readonly configurationsMax?: number;
}

/** Searches for orders that explain the events up to `until`. */
export function search(course: Course, options: SearchOptions): SearchResult {
  const { model, events } = course;
  const { until, all = false, configurationsMax = CONFIGURATIONS_MAX } = options;
  const stack: Configuration[] = [...options.from].reverse();
  const visited = new Set<string>();
  const ends = new Map<string, Configuration>();
  let eventMax = 0;
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    let { event, state, taken } = next;
    for (; event < until; event++) {
      const { isReturn, self, pending } = events[event] as Event;
      if (!isReturn) {
        if (self.observes && model.apply(state, self.operation) === state) taken |= self.bit;
        continue;
      }
      if ((taken & self.bit) !== 0n) {
        taken &= ~self.bit;
        continue;
      }
      eventMax = Math.max(eventMax, event);
      const key = `${event} ${state} ${taken}`;
      if (visited.has(key)) break;
      visited.add(key);
      if (visited.size > configurationsMax) return { kind: 'given-up' };
      branch(model, { event, state, taken }, self, pending, stack);
      break;
    }
    if (event < until) continue;
    ends.set(`${state} ${taken}`, { event, state, taken });
    if (!all) break;
    if (ends.size > configurationsMax) return { kind: 'given-up' };
  }
  return ends.size > 0 ? { kind: 'reached', ends: [...ends.values()] } : { kind: 'stuck', eventMax };
}

/** Pushes the possible next configurations; on top those in which the returning operation has had its effect. */
function branch(
  model: Model,
  at: Configuration,
  returning: Pending,
  pending: readonly Pending[],
  stack: Configuration[],
): void {
  const good: Configuration[] = [];
  for (const one of pending) {
    // A query that is not ordered yet does not fit this state.
    if (one.observes || (at.taken & one.bit) !== 0n) continue;
    const state = model.apply(at.state, one.operation);
    if (state === IMPOSSIBLE) continue;
    let taken = at.taken | one.bit;
    for (const other of pending) {
      if (!other.observes || (taken & other.bit) !== 0n) continue;
      if (model.apply(state, other.operation) === state) taken |= other.bit;
    }
    const next = { event: at.event, state, taken };
    if ((taken & returning.bit) !== 0n) good.push(next);
    else stack.push(next);
  }
  stack.push(...good);
}
