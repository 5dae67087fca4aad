import { Prng } from '../../../base/prng.ts';
import type { SleepOptions, Timer, World } from '../../../base/world.ts';
import { type Due, type VirtualTime, WALL_AT_START_MS } from './virtual-time.ts';

/** The time between two ticks of a process's event loop, in milliseconds. */
const TURN_MS = 0.01;

/** A timer of a simulated process; it also has the methods of Node's timers, for libraries. */
export class SimulatedTimer implements Timer {
  readonly #process: SimulatedProcess;
  readonly #delayMs: number;
  readonly #run: () => void;
  readonly #repeats: boolean;
  #due: Due | null;

  constructor(process: SimulatedProcess, delayMs: number, run: () => void, repeats: boolean) {
    this.#process = process;
    this.#delayMs = delayMs;
    this.#run = run;
    this.#repeats = repeats;
    this.#due = this.#arm();
  }

  cancel(): void {
    this.#due?.cancel();
    this.#due = null;
  }

  unref(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }

  refresh(): this {
    this.cancel();
    this.#due = this.#arm();
    return this;
  }

  close(): this {
    this.cancel();
    return this;
  }

  [Symbol.dispose](): void {
    this.cancel();
  }

  #arm(): Due {
    return this.#process.due(this.#delayMs, () => {
      this.#due = null;
      if (this.#repeats) this.#due = this.#arm();
      this.#run();
    });
  }
}

/** The offset and the rate error of a process's clocks. */
export interface Clocks {
  readonly offsetMs?: number;
  readonly driftPpm?: number;
}

/**
 * A process of the simulation: its clocks are off by `offsetMs` and run `driftPpm` too fast, it can be paused, and
 * after its end none of its code runs.
 */
export class SimulatedProcess implements World {
  readonly name: string;
  readonly index: number;
  readonly #time: VirtualTime;
  readonly #beganMs: number;
  readonly #offsetMs: number;
  readonly #rate: number;
  readonly #random: Prng;
  #ended = false;
  #pausedUntilMs = 0;
  #parked: (() => void)[] = [];
  /** The uncaught error, or null: such a process has ended. */
  failure: unknown = null;
  readonly #onEnd: (() => void)[] = [];

  constructor(time: VirtualTime, name: string, index: number, clocks: Clocks) {
    this.#time = time;
    this.name = name;
    this.index = index;
    this.#beganMs = time.nowMs;
    this.#offsetMs = clocks.offsetMs ?? 0;
    this.#rate = 1 + (clocks.driftPpm ?? 0) / 1e6;
    this.#random = new Prng(time.random.nextUint32());
  }

  get hasEnded(): boolean {
    return this.#ended;
  }

  get isPaused(): boolean {
    return this.#pausedUntilMs > this.#time.nowMs;
  }

  /** Ends it at once, as `kill -9` does. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#parked = [];
    for (const ended of this.#onEnd) ended();
  }

  /** Calls `ended` at the end of the process, however it ends. */
  onEndOnce(ended: () => void): void {
    this.#onEnd.push(ended);
  }

  /** An error was not caught: Node ends such a process. */
  crashed(error: unknown): void {
    if (this.#ended) return;
    this.failure = error;
    this.#time.note(`uncaught: ${error instanceof Error ? error.message : String(error)}`);
    this.end();
  }

  /** Stops it as SIGSTOP does; its clocks continue, and events that are due happen after the pause. */
  pause(forMs: number): void {
    if (this.#ended) return;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, this.#time.nowMs + forMs);
    // If a longer pause has begun meanwhile, this is parked as well, and the end of that pause runs it.
    this.#time.after(forMs, this, () => this.#unpark());
  }

  /** Ends all pauses, as SIGCONT does. */
  resume(): void {
    this.#pausedUntilMs = this.#time.nowMs;
    this.#unpark();
  }

  #unpark(): void {
    const parked = this.#parked;
    this.#parked = [];
    for (const run of parked) this.#time.after(0, this, run);
  }

  /** For the event loop. @returns whether it is paused, so that `run` waits for the end of the pause */
  park(run: () => void): boolean {
    if (!this.isPaused) return false;
    this.#parked.push(run);
    return true;
  }

  /** Runs something after `delayMs` of its own clock. */
  due(delayMs: number, run: () => void): Due {
    return this.#time.after(delayMs / this.#rate, this, run);
  }

  nowMs(): number {
    return 1_000 + (this.#time.nowMs - this.#beganMs) * this.#rate;
  }

  wallMs(): number {
    return Math.floor(
      WALL_AT_START_MS + this.#offsetMs + this.#beganMs + (this.#time.nowMs - this.#beganMs) * this.#rate,
    );
  }

  bootMs(): number {
    return 1_000_000 + this.nowMs();
  }

  after(delayMs: number, run: () => void): SimulatedTimer {
    return new SimulatedTimer(this, inNode(delayMs), run, false);
  }

  every(periodMs: number, run: () => void): SimulatedTimer {
    return new SimulatedTimer(this, inNode(periodMs), run, true);
  }

  soon(run: () => void): SimulatedTimer {
    return new SimulatedTimer(this, TURN_MS, run, false);
  }

  sleep(delayMs: number, { signal }: SleepOptions = {}): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(abortError(signal));
      const onAbort = (): void => {
        timer.cancel();
        reject(abortError(signal as AbortSignal));
      };
      const timer = this.after(delayMs, () => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      });
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  nextTick(): Promise<void> {
    return new Promise((resolve) => {
      this.soon(resolve);
    });
  }

  timeout(delayMs: number): AbortSignal {
    const controller = new AbortController();
    this.after(delayMs, () =>
      controller.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')),
    );
    return controller.signal;
  }

  randomBytes(count: number): Buffer {
    const bytes = Buffer.alloc(count);
    this.fill(bytes);
    return bytes;
  }

  /** Fills `bytes` with random ones. */
  fill(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at++) bytes[at] = this.#random.nextUint32() & 0xff;
  }

  random(): number {
    return this.#random.next();
  }
}

/** @returns a delay as Node uses it: what is no number, or less than a millisecond, is a millisecond */
function inNode(delayMs: number): number {
  return Number.isNaN(delayMs) ? 1 : Math.max(1, delayMs);
}

function abortError(signal: AbortSignal): Error {
  return Object.assign(new DOMException('The operation was aborted', 'AbortError'), { cause: signal.reason });
}
