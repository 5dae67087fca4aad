/** The search for counter-examples to the protocols of volumes' catalogs: creation, removal, numbers, members. */
import type { Search } from './explorer.ts';
import { isResolved, violationOf } from './properties.ts';
import { rootSteps } from './root-catalog.ts';
import { serverSteps } from './servers.ts';
import { type Configuration, initialState, type State, type Step } from './state.ts';
import { catalogSteps } from './volume-catalog.ts';

export function volumeSearch(configuration: Configuration): Search<State> {
  const names = new StateNames();
  return {
    initial: initialState(configuration),
    steps: (state) => stepsOf(state, configuration),
    violationOf,
    isResolved,
    nameOf: (state) => names.nameOf(state),
  };
}

function* stepsOf(state: State, configuration: Configuration): Generator<Step> {
  yield* rootSteps(state, configuration);
  yield* catalogSteps(state, configuration);
  yield* serverSteps(state, configuration);
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
