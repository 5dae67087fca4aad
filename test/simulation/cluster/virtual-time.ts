import { assert } from '../../../base/assert.ts';
import { Prng } from '../../../base/prng.ts';
import { EventHeap } from '../event-heap.ts';
import { type Clocks, SimulatedProcess } from './simulated-process.ts';

/** Node's own, which the guard replaces for simulated processes. */
const realSetImmediate = setImmediate;

/**
 * So many events run in one tick of the host's loop; between two of them it runs all promises that they made ready.
 */
const BATCH = 64;

/** The wall clock at true time 0: 2026-01-01T00:00:00Z. */
export const WALL_AT_START_MS = 1_767_225_600_000;

/** An event at a virtual time, in one process. */
interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly process: SimulatedProcess;
  run: (() => void) | null;
}

/** An event that can be cancelled. */
export interface Due {
  cancel(): void;
}

/**
 * Virtual time of several processes: one heap of events, run one after the other. After each event the host runs all
 * promises and ticks that it made ready, so that what follows depends on the seed alone.
 */
export class VirtualTime {
  readonly seed: number;
  readonly random: Prng;
  /** True time, which no process sees. */
  nowMs = 0;
  /** The process whose code runs; null outside of `run`. */
  current: SimulatedProcess | null = null;
  eventCount = 0;
  readonly processes: SimulatedProcess[] = [];
  readonly #heap = new EventHeap<Event>();
  #order = 0;
  #hash = 0x811c9dc5;
  #hash2 = 0x1234567;
  #failure: Error | null = null;
  /** Called with each line of `note`. */
  onNote: ((line: string) => void) | null = null;

  constructor(seed: number) {
    this.seed = seed;
    this.random = new Prng(seed);
  }

  /** @returns a process that begins now */
  process(name: string, clocks: Clocks = {}): SimulatedProcess {
    const process = new SimulatedProcess(this, name, this.processes.length, clocks);
    this.processes.push(process);
    return process;
  }

  /** Runs something in `process` after `delayMs` of true time. */
  after(delayMs: number, process: SimulatedProcess, run: () => void): Due {
    const event: Event = {
      atMs: this.nowMs + Math.max(0, delayMs),
      order: this.#order++,
      process,
      run,
    };
    this.#heap.push(event);
    return {
      cancel: () => {
        event.run = null;
      },
    };
  }

  /** Adds a fact to the trace. */
  note(what: string): void {
    for (let at = 0; at < what.length; at++) this.#mix(what.charCodeAt(at));
    this.onNote?.(`${this.nowMs.toFixed(3).padStart(12)} ${this.current?.name ?? '-'}: ${what}`);
  }

  /** The hash of all facts so far, in order. */
  get traceHash(): string {
    return (
      (this.#hash >>> 0).toString(16).padStart(8, '0') + (this.#hash2 >>> 0).toString(16).padStart(8, '0')
    );
  }

  /** Runs code of the host during a simulated process's. */
  asHost<Value>(run: () => Value): Value {
    const { current } = this;
    this.current = null;
    try {
      return run();
    } finally {
      this.current = current;
    }
  }

  /** Ends `run` with an error. */
  fail(error: Error): void {
    this.#failure ??= error;
  }

  /** Runs events until true time is `untilMs`, `done` holds, or none is left. @throws the first failure */
  run(untilMs: number, done: () => boolean = () => false): Promise<void> {
    assert(this.current === null, 'Virtual time runs once at a time');
    return new Promise((resolve, reject) => {
      const end = (): void => {
        this.current = null;
        if (this.#failure !== null) {
          reject(this.#failure);
          return;
        }
        if (!this.#isOver(untilMs, done)) {
          batch();
          return;
        }
        if ((this.#heap.first?.atMs ?? Infinity) > untilMs) this.nowMs = Math.max(this.nowMs, untilMs);
        resolve();
      };
      const step = (): void => {
        if (this.#failure === null && !this.#isOver(untilMs, done)) this.#step();
      };
      const batch = (): void => {
        for (let count = 0; count < BATCH; count++) realSetImmediate(step);
        realSetImmediate(end);
      };
      batch();
    });
  }

  #isOver(untilMs: number, done: () => boolean): boolean {
    const { first } = this.#heap;
    return first === undefined || first.atMs > untilMs || done();
  }

  #step(): void {
    const event = this.#heap.pop();
    const { run, process } = event;
    if (run === null || process.hasEnded) return;
    assert(event.atMs >= this.nowMs, 'Time does not go back');
    this.nowMs = event.atMs;
    if (process.park(run)) return;
    this.eventCount++;
    this.#mix(process.index);
    this.#mix(Math.round(event.atMs * 1_000));
    this.current = process;
    try {
      run();
    } catch (error) {
      process.crashed(error);
    }
  }

  #mix(value: number): void {
    this.#hash = Math.imul(this.#hash ^ (value & 0xffff_ffff), 0x01000193);
    this.#hash2 = Math.imul((this.#hash2 << 5) ^ (this.#hash2 >>> 27) ^ value, 0x9e3779b1);
  }
}
