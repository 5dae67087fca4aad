import type { Operation } from '../../history/operation.ts';
import type { SimulatedCluster } from './simulated-cluster.ts';

/** Ends a run that is not judged any further. */
export class EndedAtViolation extends Error {
  override readonly name = 'EndedAtViolation';
}

/** What all programs of a run share, and its results. */
export class Run {
  readonly cluster: SimulatedCluster;
  /** Operations that a model of `test/history` judges. */
  readonly history: Operation[] = [];
  readonly violations: string[] = [];
  /** Counts of events, by name. */
  readonly coverage = new Map<string, number>();
  /** Operations with a known outcome. */
  completed = 0;
  /** Operations with an unknown outcome. */
  unknown = 0;
  /** Keys whose search for an order took too long. */
  undecided = 0;
  /** Programs must end. */
  isEnding = false;
  /** Each program waits for the time limit of its operations. */
  isPatient = false;
  readonly #states = new Map<() => unknown, unknown>();
  #values = 0;

  readonly #endsAtViolation: boolean;

  constructor(cluster: SimulatedCluster, endsAtViolation = false) {
    this.cluster = cluster;
    this.#endsAtViolation = endsAtViolation;
  }

  violation(text: string): void {
    this.violations.push(text);
    this.cluster.tell(`VIOLATION ${text.slice(0, 200)}`);
    if (this.#endsAtViolation) this.cluster.time.fail(new EndedAtViolation());
  }

  /** Counts an event. */
  count(name: string, by = 1): void {
    this.coverage.set(name, (this.coverage.get(name) ?? 0) + by);
  }

  /** Adds a line to the trace. */
  note(text: string): void {
    this.cluster.time.note(text);
  }

  /** True time, as in histories. */
  nowNs(): number {
    return Math.round(this.cluster.time.nowMs * 1e6);
  }

  /** @returns a unique value, of 4 characters in runs of up to a million values */
  fresh(): string {
    return (++this.#values).toString(36).padStart(4, '0');
  }

  /** @returns a unique number */
  freshNumber(): number {
    return ++this.#values;
  }

  /** @returns the state that `make` created for this run, which a workload's programs share */
  state<State>(make: () => State): State {
    if (!this.#states.has(make)) this.#states.set(make, make());
    return this.#states.get(make) as State;
  }
}
