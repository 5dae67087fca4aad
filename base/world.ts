/** A call that is due later. */
export interface Timer {
  /** The call is not made; nothing where it was made already. */
  cancel(): void;
  /** The process may end before the call is due. */
  unref(): Timer;
}

/** How a wait is done. */
export interface SleepOptions {
  /** Ends the wait with an `AbortError`. */
  readonly signal?: AbortSignal;
  /** The process may end before the wait is over. */
  readonly unref?: boolean;
}

/**
 * What a process knows of time and chance: its only source of clocks, timers and random numbers. The programs make one
 * of the system (`world/system-world.ts`); a simulation makes one of a seed for each simulated process, which it may
 * pause, let drift and end (FoundationDB: Zhou et al., SIGMOD 2021, section 4.1).
 */
export interface World {
  /**
   * Monotonic clock in milliseconds since the machine's start, with fractions; it may stop while the machine sleeps. All processes and threads
   * of a machine have the same.
   */
  nowMs(): number;
  /** Wall clock in whole milliseconds since 1970; it may step in either direction. */
  wallMs(): number;
  /** Monotonic clock in milliseconds, to about 10 ms, from an arbitrary moment; it runs on while the machine sleeps. */
  bootMs(): number;
  /** Calls `run` once, no sooner than after `delayMs`. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` each `periodMs`, first after one period. */
  every(periodMs: number, run: () => void): Timer;
  /** Calls `run` once in the next turn of the event loop, after the input and output that is ready now. */
  soon(run: () => void): Timer;
  /** @returns after `delayMs`; @throws AbortError where `signal` ends the wait */
  sleep(delayMs: number, options?: SleepOptions): Promise<void>;
  /** @returns in the next turn of the event loop */
  nextTurn(): Promise<void>;
  /** @returns a signal that aborts with a `TimeoutError` after `delayMs`; it does not keep the process from ending */
  timeout(delayMs: number): AbortSignal;
  /** @returns unpredictable bytes, fit for keys and secrets */
  randomBytes(count: number): Buffer;
  /** @returns a number from 0 (included) to 1 (excluded), for jitter and choices; not for secrets */
  random(): number;
}
