import type { Prng } from '../../../base/prng.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { VirtualTime } from './virtual-time.ts';

/** The faults of a link. Probabilities are per message or request. */
export interface Weather {
  readonly delayMinMs: number;
  readonly delayMaxMs: number;
  /** A message takes up to `slowMs` longer. */
  readonly slow: number;
  readonly slowMs: number;
  /** An HTTP request is lost, as its connection breaks. */
  readonly requestLost: number;
  /** The request is executed, and its answer is lost. */
  readonly answerLost: number;
  /** The request is executed only after up to `lateMs`, when its caller does not wait any more. */
  readonly late: number;
  readonly lateMs: number;
}

export const FAIR: Weather = {
  delayMinMs: 0.1,
  delayMaxMs: 0.6,
  slow: 0,
  slowMs: 0,
  requestLost: 0,
  answerLost: 0,
  late: 0,
  lateMs: 0,
};

export const FOUL: Weather = {
  ...FAIR,
  slow: 0.02,
  slowMs: 80,
  requestLost: 0.004,
  answerLost: 0.004,
  late: 0.003,
  lateMs: 20_000,
};

export const STORM: Weather = {
  ...FAIR,
  slow: 0.1,
  slowMs: 50,
  requestLost: 0.03,
  answerLost: 0.05,
  late: 0.03,
  lateMs: 3_000,
};

/** Which machines are connected, and how long messages take. */
export class Network {
  readonly time: VirtualTime;
  weather: Weather = FAIR;
  readonly #random: Prng;
  /** Directions that are cut: `from to`. */
  readonly #cuts = new Set<string>();
  /** Directions with an additional delay of up to so much. */
  readonly #slow = new Map<string, number>();
  /** When the last message of a direction arrives: later ones on the same connection do not overtake it. */
  readonly #lastMs = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  /** What waits in stalled directions, which are not cut. */
  readonly #stalled = new Map<string, (() => void)[]>();

  constructor(time: VirtualTime, random: Prng) {
    this.time = time;
    this.#random = random;
  }

  /** What `from` sends does not reach `to` from now on. */
  cut(from: string, to: string): void {
    this.#cuts.add(`${from} ${to}`);
    this.#changed();
  }

  /** What `from` sends to `to` takes up to `ms` longer from now on. */
  slow(from: string, to: string, ms: number): void {
    this.#slow.set(`${from} ${to}`, ms);
  }

  /** What `from` sends to `to` waits until `release` from now on, in order. */
  stall(from: string, to: string): void {
    const direction = `${from} ${to}`;
    if (!this.#stalled.has(direction)) this.#stalled.set(direction, []);
  }

  release(from: string, to: string): void {
    const waiting = this.#stalled.get(`${from} ${to}`) ?? [];
    this.#stalled.delete(`${from} ${to}`);
    for (const run of waiting) run();
  }

  heal(): void {
    this.#cuts.clear();
    this.#slow.clear();
    this.#changed();
  }

  isCut(from: string, to: string): boolean {
    return this.#cuts.has(`${from} ${to}`);
  }

  /** Calls `listener` when cuts begin or end. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** @returns true with this probability */
  chance(probability: number): boolean {
    return probability > 0 && this.#random.chance(probability);
  }

  /** @returns a number from 0 to `max` */
  upTo(max: number): number {
    return this.#random.next() * max;
  }

  /** @returns a delay from one machine to another, or between any two */
  delayMs(from = '', to = ''): number {
    const { delayMinMs, delayMaxMs, slow, slowMs } = this.weather;
    const extraMs = this.#slow.get(`${from} ${to}`) ?? 0;
    const delayMs = delayMinMs + this.#random.next() * (delayMaxMs - delayMinMs + extraMs);
    return this.chance(slow) ? delayMs + this.upTo(slowMs) : delayMs;
  }

  /** Runs `run` in `to` once a message of this connection can have arrived, in the order of the calls. */
  inOrder(connection: string, from: string, to: SimulatedProcess, run: () => void): void {
    const waiting = this.#stalled.get(`${from} ${to.name}`);
    if (waiting !== undefined) {
      waiting.push(() => this.inOrder(connection, from, to, run));
      return;
    }
    const delayMs = this.delayMs(from, to.name);
    const atMs = Math.max(this.time.nowMs + delayMs, (this.#lastMs.get(connection) ?? 0) + 0.001);
    this.#lastMs.set(connection, atMs);
    this.time.after(atMs - this.time.nowMs, to, run);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
