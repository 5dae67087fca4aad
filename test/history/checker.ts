/** Judges whole histories, key by key, and says of a wrong one where it is wrong. */
import { Course, type SearchResult, search } from './linearization.ts';
import { modelOf } from './models.ts';
import { type Operation, READS } from './operation.ts';

/** States that a report lists before it says how many more there are. */
const STATES_SHOWN = 5;
/** Configurations that are looked through for them. */
const STATES_SEARCHED = 10_000;
/** Operations that a report tries to do without. */
const WINDOW_OPERATIONS_MAX = 300;

/** Why a key's history is wrong. */
export interface Violation {
  readonly key: string;
  /** The first operation whose answer nothing explains, given all answers before it. */
  readonly failed: Operation;
  /** Those that contradict each other while it went on, itself included, in the order of their calls. */
  readonly window: readonly Operation[];
  /** What the state may have been when it was called. */
  readonly before: readonly string[];
}

export type KeyVerdict =
  | { readonly kind: 'linearizable' }
  | { readonly kind: 'violation'; readonly violation: Violation }
  /** The search would have become too long; the history says nothing for or against. */
  | { readonly kind: 'undecided' };

export interface HistoryVerdict {
  readonly operations: number;
  readonly keys: number;
  readonly violations: readonly Violation[];
  /** Keys that the search gave up on. */
  readonly undecided: readonly string[];
}

export interface CheckOptions {
  /** How many configurations one key's search may go through. */
  readonly configurationsMax?: number;
}

/** Judges all keys. */
export function historyCheck(operations: readonly Operation[], options: CheckOptions = {}): HistoryVerdict {
  const violations: Violation[] = [];
  const undecided: string[] = [];
  const byKey = operationsByKey(operations);
  for (const [key, ofKey] of byKey) {
    const verdict = keyCheck(ofKey, options);
    if (verdict.kind === 'violation') violations.push(verdict.violation);
    if (verdict.kind === 'undecided') undecided.push(key);
  }
  return { operations: operations.length, keys: byKey.size, violations, undecided };
}

/** Keys have nothing to do with each other: a history is linearizable if each of its keys' is. */
export function operationsByKey(operations: readonly Operation[]): Map<string, Operation[]> {
  const byKey = new Map<string, Operation[]>();
  for (const operation of operations) {
    const known = byKey.get(operation.key);
    if (known === undefined) byKey.set(operation.key, [operation]);
    else known.push(operation);
  }
  return byKey;
}

/** Judges the operations of one key, of which there is at least one. */
export function keyCheck(operations: readonly Operation[], options: CheckOptions = {}): KeyVerdict {
  const result = searchAll(operations, options);
  switch (result.kind) {
    case 'reached':
      return { kind: 'linearizable' };
    case 'given-up':
      return { kind: 'undecided' };
    case 'stuck':
      return { kind: 'violation', violation: explain(operations, options) };
  }
}

function searchAll(operations: readonly Operation[], options: CheckOptions): SearchResult {
  const [first] = operations;
  if (first === undefined) return { kind: 'reached', ends: [] };
  const course = new Course(operations, modelOf(first.key));
  return search(course, { from: [course.start], until: course.events.length, ...options });
}

/**
 * Whether it is reads alone that are wrong: without them, except those that `keep` names, all is
 * explained. Reads that were made when all faults were over show what became of the writes.
 */
export function onlyReadsAreWrong(
  operations: readonly Operation[],
  keep: (operation: Operation) => boolean,
): boolean {
  const rest = operations.filter((operation) => !READS.has(operation.op) || keep(operation));
  return searchAll(rest, {}).kind === 'reached';
}

function explain(operations: readonly Operation[], options: CheckOptions): Violation {
  const key = (operations[0] as Operation).key;
  const prefix = failingPrefix(operations, options);
  const failed = prefix.at(-1) as Operation;
  return { key, failed, ...windowOf(prefix, failed, options) };
}

/**
 * What had been called when the first answer came that cannot be explained; that one is the last. Every beginning of a
 * linearizable history is linearizable, so that the place is found by halving.
 */
function failingPrefix(operations: readonly Operation[], options: CheckOptions): readonly Operation[] {
  const returned = operations.filter(({ status }) => status === 'ok');
  returned.sort((a, b) => (a.return as number) - (b.return as number));
  const upTo = (count: number): Operation[] => {
    const failed = returned[count - 1] as Operation;
    const endNs = failed.return as number;
    const rest = operations.filter((operation) => operation !== failed && operation.call <= endNs);
    return [...rest.map((operation) => asOf(operation, endNs)), failed];
  };
  let [low, high] = [1, returned.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (searchAll(upTo(middle), options).kind === 'stuck') high = middle;
    else low = middle + 1;
  }
  return upTo(low);
}

/** How an operation looked at a moment: what returns later may have had its effect, or not. */
function asOf(operation: Operation, endNs: number): Operation {
  if (operation.status !== 'ok' || (operation.return as number) <= endNs) return operation;
  return { ...operation, status: 'unknown' };
}

/**
 * What goes on while the failed operation does, less everything that can be taken back: an observation that
 * is not needed is dropped, of a change that is not needed it is no longer said that it happened, and when.
 * Both only allow more, so that what is left contradicts itself.
 */
function windowOf(
  operations: readonly Operation[],
  failed: Operation,
  options: CheckOptions,
): Pick<Violation, 'window' | 'before'> {
  const model = modelOf(failed.key);
  const certain = new Set(
    operations.filter(
      (operation) => operation.status === 'ok' && (operation.return as number) >= failed.call,
    ),
  );
  const candidates = [...certain].sort((a, b) => a.call - b.call).slice(0, WINDOW_OPERATIONS_MAX);
  for (const candidate of candidates) {
    if (candidate === failed) continue;
    certain.delete(candidate);
    const weaker = operations.flatMap((operation) => {
      const isSure = operation.status !== 'ok' || (operation.return as number) < failed.call;
      if (isSure || certain.has(operation)) return [operation];
      return model.observes(operation) ? [] : [{ ...operation, status: 'unknown' as const }];
    });
    if (searchAll(weaker, options).kind !== 'stuck') certain.add(candidate);
  }
  const window = [...certain].sort((a, b) => a.call - b.call);
  return { window, before: statesBefore(operations, failed) };
}

/** @returns what the state may have been when the failed operation was called */
function statesBefore(operations: readonly Operation[], failed: Operation): readonly string[] {
  const model = modelOf(failed.key);
  const course = new Course(operations, model);
  const until = course.events.findIndex(({ self }) => self.operation === failed);
  const reached = search(course, {
    from: [course.start],
    until,
    all: true,
    configurationsMax: STATES_SEARCHED,
  });
  if (reached.kind !== 'reached') return ['too many to tell'];
  const states = [...new Set(reached.ends.map(({ state }) => state))];
  const before = states.slice(0, STATES_SHOWN).map((state) => model.describe(state));
  if (states.length > STATES_SHOWN) before.push(`one of ${states.length - STATES_SHOWN} more`);
  return before;
}
