/**
 * The machine's World for tests in one process, with a clock that counts no more than a moment for any time in which this process had no
 * processor. Leases, limits and timers of all who share it pass together, so that a test that waits for events does not
 * fail where other programs use the machine.
 */
import type { Timer, World } from '../base/world.ts';
import { systemWorld } from '../world/system-world.ts';

/** Between two looks at the clock; the event loop looks this often by itself. */
const BEAT_MS = 10;
/** What counts of any longer time between two looks. */
const STEP_MS_MAX = 50;

const WALL_AT_START_MS = Date.now();
const STARTED_MS = systemWorld.nowMs();
let seenMs = STARTED_MS;
let countedMs = STARTED_MS;

function nowMs(): number {
  const realMs = systemWorld.nowMs();
  countedMs += Math.min(realMs - seenMs, STEP_MS_MAX);
  seenMs = realMs;
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
