import assert from 'node:assert/strict';
import type { Timer, World } from '../../base/world.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Turns of the event loop in which work that a timer began comes to rest, unless it uses the disk. */
const TURNS = 10;
const DISK_MS_MAX = 10_000;

interface Due {
  readonly run: () => void;
  readonly periodMs: number | null;
  atMs: number;
}

/** A world whose time passes as a test says; all else is the system's. */
export class ManualWorld implements World {
  readonly #timers = new Set<Due>();
  #nowMs = 0;

  /** Lets this time pass, timer by timer. */
  async pass(ms: number): Promise<void> {
    const untilMs = this.#nowMs + ms;
    for (let next = this.#next(untilMs); next !== null; next = this.#next(untilMs)) await this.#run(next);
    this.#nowMs = untilMs;
    await this.#rest();
  }

  /** Lets time pass until `isDone`, which may depend on the disk. @throws AssertionError if it does not become true */
  async until(isDone: () => boolean): Promise<void> {
    const endMs = systemWorld.nowMs() + DISK_MS_MAX;
    for (await this.#rest(); !isDone(); await systemWorld.sleep(1)) {
      assert.ok(systemWorld.nowMs() < endMs, 'It does not become true');
      const next = this.#next(Number.POSITIVE_INFINITY);
      if (next !== null) await this.#run(next);
    }
  }

  nowMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#nowMs;
  }

  bootMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, run: () => void): Timer {
    return this.#add({ run, periodMs: null, atMs: this.#nowMs + delayMs });
  }

  every(periodMs: number, run: () => void): Timer {
    return this.#add({ run, periodMs, atMs: this.#nowMs + periodMs });
  }

  soon(run: () => void): Timer {
    return systemWorld.soon(run);
  }

  async sleep(delayMs: number): Promise<void> {
    await new Promise<void>((resolve) => this.after(delayMs, resolve));
  }

  nextTick(): Promise<void> {
    return systemWorld.nextTick();
  }

  timeout(delayMs: number): AbortSignal {
    return systemWorld.timeout(delayMs);
  }

  randomBytes(count: number): Buffer {
    return systemWorld.randomBytes(count);
  }

  random(): number {
    return systemWorld.random();
  }

  #add(due: Due): Timer {
    this.#timers.add(due);
    const timer: Timer = { cancel: () => void this.#timers.delete(due), unref: () => timer };
    return timer;
  }

  #next(untilMs: number): Due | null {
    const [next] = [...this.#timers].toSorted((a, b) => a.atMs - b.atMs);
    return next !== undefined && next.atMs <= untilMs ? next : null;
  }

  async #run(due: Due): Promise<void> {
    this.#nowMs = Math.max(this.#nowMs, due.atMs);
    if (due.periodMs === null) this.#timers.delete(due);
    else due.atMs += due.periodMs;
    due.run();
    await this.#rest();
  }

  async #rest(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn++) await systemWorld.nextTick();
  }
}
