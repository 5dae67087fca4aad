/** Explores all states of a protocol breadth first, so that a counter-example is a shortest one. */

/** Who takes a step: only `protocol` steps happen without people, clients and faults. */
export type StepKind = 'user' | 'client' | 'protocol' | 'fault';

export interface StepTo<State> {
  readonly kind: StepKind;
  readonly text: string;
  readonly next: State;
  /** A property that the step itself violates. */
  readonly violation?: string;
}

/** A protocol in a configuration. */
export interface Search<State> {
  readonly initial: State;
  steps(state: State): Iterable<StepTo<State>>;
  /** @returns which property the state violates; null if none */
  violationOf(state: State): string | null;
  /** Whether nothing is half done. */
  isResolved(state: State): boolean;
  /** @returns the same text for equal states */
  nameOf(state: State): string;
}

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
export function explore<State>(search: Search<State>, statesMax: number): Finding {
  const { initial: first } = search;
  const visited: Visited[] = [{ from: -1, text: 'start' }];
  const known = new Map<string, number>([[search.nameOf(first), 0]]);
  const protocol: number[][] = [[]];
  const resolved: boolean[] = [search.isResolved(first)];
  const reached = new Set<string>();
  const finding = (outcome: Outcome): Finding => ({ outcome, states: visited.length, reached });
  const counterExample = (why: string, last: number, ...more: string[]): Finding =>
    finding({ kind: 'counter-example', why, steps: [...stepsTo(visited, last), ...more] });

  let frontier: { readonly state: State; readonly index: number }[] = [{ state: first, index: 0 }];
  while (frontier.length > 0) {
    const next: typeof frontier = [];
    for (const { state, index } of frontier) {
      for (const step of search.steps(state)) {
        reached.add(kindOfText(step.text));
        const why = step.violation ?? search.violationOf(step.next);
        if (why !== null) return counterExample(why, index, step.text);
        const name = search.nameOf(step.next);
        let to = known.get(name);
        if (to === undefined) {
          to = visited.length;
          known.set(name, to);
          visited.push({ from: index, text: step.text });
          protocol.push([]);
          resolved.push(search.isResolved(step.next));
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
