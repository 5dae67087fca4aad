export interface Timer {
  /** Prevents the call, unless it was made. */
  cancel(): void;
  /** The process may end before the call is due. */
  unref(): Timer;
}

export interface SleepOptions {
  readonly signal?: AbortSignal;
  readonly unref?: boolean;
}

/**
 * A process's only source of clocks, timers and random numbers. Programs use the system (`world/system-world.ts`); a
 * simulation creates one per simulated process from a seed, and may pause, drift and end it (FoundationDB: Zhou et
 * al., SIGMOD 2021, section 4.1).
 */
export interface World {
  /** Monotonic milliseconds since the machine's start, with fractions; may stop in sleep. The same for all threads. */
  nowMs(): number;
  /** Wall clock in whole milliseconds since 1970; may step either way. */
  wallMs(): number;
  /** Monotonic milliseconds from an arbitrary moment, to about 10 ms; continues during sleep. */
  bootMs(): number;
  /** Calls `run` once, after at least `delayMs`. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` each `periodMs`, first after one period. */
  every(periodMs: number, run: () => void): Timer;
  /** Calls `run` once in the next tick of the event loop, after ready input and output. */
  soon(run: () => void): Timer;
  /** Resolves after `delayMs`. @throws AbortError if `signal` ends the wait */
  sleep(delayMs: number, options?: SleepOptions): Promise<void>;
  nextTick(): Promise<void>;
  /** @returns a signal that aborts with a `TimeoutError` after `delayMs`; does not keep the process alive */
  timeout(delayMs: number): AbortSignal;
  /** @returns unpredictable bytes, for keys and secrets */
  randomBytes(count: number): Buffer;
  /** @returns a number from 0 to before 1, for jitter and choices; not for secrets */
  random(): number;
}
