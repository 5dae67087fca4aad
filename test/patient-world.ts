/**
 * The machine's World for tests in one process, with a clock that does not count the time in which this process waited
 * for a processor. Leases, time limits and timers of all that share it advance together, so that a test that waits for
 * events does not fail if other programs use the machine.
 */
import { existsSync, openSync, readSync } from 'node:fs';
import type { Timer, World } from '../base/world.ts';
import { systemWorld } from '../world/system-world.ts';

/** Between two readings of the clock; the event loop reads it this often by itself. */
const BEAT_MS = 10;
/** How much of any longer time between two readings counts, for example after a pause of the whole machine. */
const STEP_MS_MAX = 50;
/** The waiting time is read no more often; it is subtracted later then. */
const WAITED_MS = 5;

const SCHEDSTAT = '/proc/self/schedstat';
/**
 * Null if the system has none. Of the main thread: nanoseconds on a processor, nanoseconds ready and without one, and
 * how often it ran.
 */
const STATISTICS = existsSync(SCHEDSTAT) ? openSync(SCHEDSTAT, 'r') : null;
const WALL_AT_START_MS = Date.now();
const STARTED_MS = systemWorld.nowMs();
let seenMs = STARTED_MS;
let countedMs = STARTED_MS;
let waitedMs = waitedForProcessorMs();
/** Waited, and not subtracted yet. */
let owedMs = 0;

/**
 * How long the main thread has been ready to run and had no processor, since its start: what the kernel calls its run
 * delay.
 */
function waitedForProcessorMs(): number {
  if (STATISTICS === null) return 0;
  const bytes = Buffer.alloc(64);
  const length = readSync(STATISTICS, bytes, 0, bytes.length, 0);
  return Number(bytes.toString('latin1', 0, length).split(' ')[1]) / 1e6;
}

function nowMs(): number {
  const realMs = systemWorld.nowMs();
  const passedMs = realMs - seenMs;
  seenMs = realMs;
  if (passedMs >= WAITED_MS) {
    const waited = waitedForProcessorMs();
    owedMs += waited - waitedMs;
    waitedMs = waited;
  }
  const takenMs = Math.min(owedMs, passedMs);
  owedMs -= takenMs;
  countedMs += Math.min(passedMs - takenMs, STEP_MS_MAX);
  return countedMs;
}

systemWorld.every(BEAT_MS, nowMs).unref();

/** Fires when its time has come by the clock above. */
class PatientTimer implements Timer {
  readonly #run: () => void;
  readonly #periodMs: number | null;
  #dueMs: number;
  #isRef = true;
  #timer: Timer;

  constructor(delayMs: number, periodMs: number | null, run: () => void) {
    this.#run = run;
    this.#periodMs = periodMs;
    this.#dueMs = nowMs() + delayMs;
    this.#timer = this.#wait(delayMs);
  }

  cancel(): void {
    this.#timer.cancel();
    this.#dueMs = Number.POSITIVE_INFINITY;
  }

  unref(): this {
    this.#isRef = false;
    this.#timer.unref();
    return this;
  }

  #wait(delayMs: number): Timer {
    const timer = systemWorld.after(delayMs, () => this.#look());
    return this.#isRef ? timer : timer.unref();
  }

  #look(): void {
    // Cancelled while a test had replaced `clearTimeout`: Node's timer was left.
    if (this.#dueMs === Number.POSITIVE_INFINITY) return;
    const leftMs = this.#dueMs - nowMs();
    if (leftMs > 0) {
      this.#timer = this.#wait(leftMs);
      return;
    }
    if (this.#periodMs !== null) {
      this.#dueMs = nowMs() + this.#periodMs;
      this.#timer = this.#wait(this.#periodMs);
    }
    this.#run();
  }
}

export const patientWorld: World = {
  ...systemWorld,
  nowMs,
  // No machine sleeps while tests run.
  bootMs: nowMs,
  wallMs: () => WALL_AT_START_MS + Math.floor(nowMs() - STARTED_MS),
  after: (delayMs, run) => new PatientTimer(delayMs, null, run),
  every: (periodMs, run) => new PatientTimer(periodMs, periodMs, run),
  sleep: (delayMs, { signal, unref = false } = {}) =>
    new Promise((resolve, reject) => {
      const aborted = (): Error => new DOMException('The operation was aborted', 'AbortError');
      if (signal?.aborted === true) {
        reject(aborted());
        return;
      }
      const onAbort = (): void => {
        timer.cancel();
        reject(aborted());
      };
      const timer = new PatientTimer(delayMs, null, () => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      });
      if (unref) timer.unref();
      signal?.addEventListener('abort', onAbort, { once: true });
    }),
  timeout: (delayMs) => {
    const controller = new AbortController();
    const run = (): void => controller.abort(new DOMException('The operation timed out', 'TimeoutError'));
    new PatientTimer(delayMs, null, run).unref();
    return controller.signal;
  },
};
