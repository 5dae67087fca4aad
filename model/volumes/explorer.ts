/** Explores all states of a configuration breadth first, so that a counter-example is a shortest one. */
import { isResolved, violationOf } from './properties.ts';
import { rootSteps } from './root-catalog.ts';
import { serverSteps } from './servers.ts';
import { type Configuration, initialState, type State, type Step } from './state.ts';
import { catalogSteps } from './volume-catalog.ts';

export type Outcome =
  /** All reachable states are good, and each can still reach a resolved one by steps of the protocol alone. */
  | { readonly kind: 'verified' }
  | { readonly kind: 'counter-example'; readonly why: string; readonly steps: readonly string[] }
  /** The limit ended the search, so it proves nothing. */
  | { readonly kind: 'cut-short' };

export interface Finding {
  readonly outcome: Outcome;
  readonly states: number;
  /** Texts of the steps that were taken, without numbers and names: a search without them would prove nothing. */
  readonly reached: ReadonlySet<string>;
}

interface Visited {
  readonly from: number;
  readonly text: string;
}

/** @param statesMax a larger search is cut short */
export function explore(configuration: Configuration, statesMax: number): Finding {
  const names = new StateNames();
  const visited: Visited[] = [{ from: -1, text: 'start' }];
  const first = initialState(configuration);
  const known = new Map<string, number>([[names.nameOf(first), 0]]);
  const protocol: number[][] = [[]];
  const resolved: boolean[] = [isResolved(first)];
  const reached = new Set<string>();
  const finding = (outcome: Outcome): Finding => ({ outcome, states: visited.length, reached });
  const counterExample = (why: string, last: number, ...more: string[]): Finding =>
    finding({ kind: 'counter-example', why, steps: [...stepsTo(visited, last), ...more] });

  let frontier: { readonly state: State; readonly index: number }[] = [{ state: first, index: 0 }];
  while (frontier.length > 0) {
    const next: typeof frontier = [];
    for (const { state, index } of frontier) {
      for (const step of stepsOf(state, configuration)) {
        reached.add(kindOfText(step.text));
        const why = step.violation ?? violationOf(step.next);
        if (why !== null) return counterExample(why, index, step.text);
        const name = names.nameOf(step.next);
        let to = known.get(name);
        if (to === undefined) {
          to = visited.length;
          known.set(name, to);
          visited.push({ from: index, text: step.text });
          protocol.push([]);
          resolved.push(isResolved(step.next));
          next.push({ state: step.next, index: to });
        }
        if (step.kind === 'protocol') protocol[to]?.push(index);
      }
    }
    if (visited.length > statesMax) return finding({ kind: 'cut-short' });
    frontier = next;
  }
  const stuck = firstStuck(protocol, resolved);
  return stuck === null
    ? finding({ kind: 'verified' })
    : counterExample('No step of the protocol leads to a resolved state any more', stuck);
}

export function* stepsOf(state: State, configuration: Configuration): Generator<Step> {
  yield* rootSteps(state, configuration);
  yield* catalogSteps(state, configuration);
  yield* serverSteps(state, configuration);
}

function stepsTo(visited: readonly Visited[], last: number): string[] {
  const steps: string[] = [];
  for (let at = visited[last]; at !== undefined && at.from >= 0; at = visited[at.from])
    steps.unshift(at.text);
  return steps;
}

/** The first state from which steps of the protocol lead to no resolved one. @param before by state: those before it */
function firstStuck(before: readonly (readonly number[])[], resolved: readonly boolean[]): number | null {
  const good = [...resolved];
  const open = [...good.keys()].filter((index) => good[index]);
  for (let index = open.pop(); index !== undefined; index = open.pop()) {
    for (const earlier of before[index] ?? []) {
      if (good[earlier]) continue;
      good[earlier] = true;
      open.push(earlier);
    }
  }
  const stuck = good.indexOf(false);
  return stuck < 0 ? null : stuck;
}

function kindOfText(text: string): string {
  return text.replace(/\d+|\b[A-F]+\b/g, '_');
}

/** Short names of states: equal parts of different states have equal numbers. */
class StateNames {
  readonly #byText = new Map<string, number>();
  readonly #byValue = new WeakMap<object, number>();

  nameOf(state: State): string {
    const { root, rootDisk, rootEpoch, servers, replicas, active, late, left, given, dead, dropped } = state;
    const parts = [root, rootDisk, late, left, given, dropped].map((part) => this.#numberOf(part));
    for (const server of servers) parts.push(this.#numberOf(server));
    for (const row of replicas) for (const replica of row) parts.push(this.#numberOf(replica));
    return `${rootEpoch} ${active} ${dead} ${parts.join(' ')}`;
  }

  #numberOf(value: object | null): number {
    if (value === null) return -1;
    const known = this.#byValue.get(value);
    if (known !== undefined) return known;
    const text = JSON.stringify(value);
    const number = this.#byText.get(text) ?? this.#byText.size;
    this.#byText.set(text, number);
    this.#byValue.set(value, number);
    return number;
  }
}
