/** Judges whole histories, key by key, and locates the error of a wrong one. */
import { Course, type SearchResult, search } from './linearization.ts';
import { modelOf } from './models.ts';
import { type Operation, READS } from './operation.ts';

/** The most states that a report lists. */
const STATES_SHOWN = 5;
/** The most configurations that are searched for them. */
const STATES_SEARCHED = 10_000;
/** The most operations that a report tries to leave out. */
const WINDOW_OPERATIONS_MAX = 300;

/** Why a key's history is wrong. */
export interface Violation {
  readonly key: string;
  /** The first operation whose answer nothing explains, given all answers before it. */
  readonly failed: Operation;
  /**
   * The operations that contradict each other, concurrent with the failed one and including it, in the order of their
   * calls.
   */
  readonly window: readonly Operation[];
  /** The possible states at its call. */
  readonly before: readonly string[];
}

export type KeyVerdict =
  | { readonly kind: 'linearizable' }
  | { readonly kind: 'violation'; readonly violation: Violation }
  /** The search took too long; the history may be right or wrong. */
  | { readonly kind: 'undecided' };

export interface HistoryVerdict {
  readonly operations: number;
  readonly keys: number;
  readonly violations: readonly Violation[];
  /** Keys whose search took too long. */
  readonly undecided: readonly string[];
}

export interface CheckOptions {
  /** The most configurations in the search of one key. */
  readonly configurationsMax?: number;
}

/** Judges each key. */
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

/** Groups operations by key. A history is linearizable if that of each key is. */
export function operationsByKey(operations: readonly Operation[]): Map<string, Operation[]> {
  const byKey = new Map<string, Operation[]>();
  for (const operation of operations) {
    const known = byKey.get(operation.key);
    if (known === undefined) byKey.set(operation.key, [operation]);
    else known.push(operation);
  }
  return byKey;
}

/** Judges the operations of one key; there is at least one. */
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
 * @returns whether only reads are wrong: without them, except those that `keep` selects, all is explained. Reads after
 * all faults show the effect of the writes.
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
 * @returns the operations that had been called when the first answer came that cannot be explained; its operation is
 * the last. Each prefix of a linearizable history is linearizable, so that a binary search finds it.
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

/** An operation as it is known at a moment: one that returns later may have had its effect or not. */
function asOf(operation: Operation, endNs: number): Operation {
  if (operation.status !== 'ok' || (operation.return as number) <= endNs) return operation;
  return { ...operation, status: 'unknown' };
}

/**
 * The operations that are concurrent with the failed one, without those that are not needed: a query is dropped, and a
 * change gets an unknown outcome. Both only allow more orders, so that the rest still contradicts itself.
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

/** @returns the possible states when the failed operation was called */
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
