import { randomBytes } from 'node:crypto';
import { uptime } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay, setImmediate as nextTick } from 'node:timers/promises';
import type { SleepOptions, Timer, World } from '../base/world.ts';

class SystemTimer implements Timer {
  readonly #handle: NodeJS.Timeout | NodeJS.Immediate;
  readonly #clear: () => void;

  constructor(handle: NodeJS.Timeout | NodeJS.Immediate, clear: () => void) {
    this.#handle = handle;
    this.#clear = clear;
  }

  cancel(): void {
    this.#clear();
  }

  unref(): this {
    this.#handle.unref();
    return this;
  }
}

/** `performance.now` counts from a thread's start, `process.hrtime` from the machine's. */
const STARTED_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

/** This machine's clocks, timers and random numbers. */
export const systemWorld: World = {
  nowMs: () => STARTED_MS + performance.now(),
  wallMs: () => Date.now(),
  bootMs: () => uptime() * 1_000,
  after: (delayMs, run) => {
    const handle = setTimeout(run, delayMs);
    return new SystemTimer(handle, () => clearTimeout(handle));
  },
  every: (periodMs, run) => {
    const handle = setInterval(run, periodMs);
    return new SystemTimer(handle, () => clearInterval(handle));
  },
  soon: (run) => {
    const handle = setImmediate(run);
    return new SystemTimer(handle, () => clearImmediate(handle));
  },
  sleep: async (delayMs, { signal, unref = false }: SleepOptions = {}) => {
    await delay(delayMs, undefined, { ref: !unref, ...(signal === undefined ? {} : { signal }) });
  },
  nextTick: () => nextTick(),
  timeout: (delayMs) => AbortSignal.timeout(delayMs),
  randomBytes: (count) => randomBytes(count),
  random: () => Math.random(),
};
