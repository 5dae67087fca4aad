import type { Prng } from '../../../base/prng.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { VirtualTime } from './virtual-time.ts';

/** How a link treats what is sent over it. Probabilities are per message or request. */
export interface Weather {
  readonly delayMinMs: number;
  readonly delayMaxMs: number;
  /** A message takes up to `slowMs` longer. */
  readonly slow: number;
  readonly slowMs: number;
  /** A request of HTTP is lost, as its connection breaks. */
  readonly requestLost: number;
  /** It is executed, and its answer lost. */
  readonly answerLost: number;
  /** It is executed only after up to `lateMs`, though its caller waits no longer. */
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

/** Which machines reach which, and how long messages take. */
export class Network {
  readonly time: VirtualTime;
  weather: Weather = FAIR;
  readonly #random: Prng;
  /** Directions that are cut: `from to`. */
  readonly #cuts = new Set<string>();
  /** Directions over which everything takes up to so much longer. */
  readonly #slow = new Map<string, number>();
  /** When the last message of a direction arrives: those behind it do not overtake it on the same connection. */
  readonly #lastMs = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  /** What waits on directions over which nothing moves, though they are not cut. */
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

  /** What `from` sends to `to` from now on waits until `release`, in its order. */
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

  /** @returns whether something happens that has this probability */
  chance(probability: number): boolean {
    return probability > 0 && this.#random.chance(probability);
  }

  /** @returns a number from 0 to `max` */
  upTo(max: number): number {
    return this.#random.next() * max;
  }

  /** @returns how long something takes from one machine to another, or to any where it does not matter */
  delayMs(from = '', to = ''): number {
    const { delayMinMs, delayMaxMs, slow, slowMs } = this.weather;
    const extraMs = this.#slow.get(`${from} ${to}`) ?? 0;
    const delayMs = delayMinMs + this.#random.next() * (delayMaxMs - delayMinMs + extraMs);
    return this.chance(slow) ? delayMs + this.upTo(slowMs) : delayMs;
  }

  /** Has `to` run something once a message of this connection can have arrived, in the order of the calls. */
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
