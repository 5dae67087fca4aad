import type { Timer, World } from '../../base/world.ts';
import type { Clock } from '../process/clock.ts';

interface Entry {
  readonly atMs: number;
  readonly order: number;
  readonly wake: () => void;
}

/** The limit of Node's timers. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;
/** Wake-ups may be late by up to this, in milliseconds. */
const GRID_MS = 5;

/**
 * One timer for many wake-ups, in a binary heap by time. A wake-up cannot be canceled: its receiver checks whether it
 * still has something to do. Wake-ups only start work; whether a lease is valid never depends on them.
 */
export class WakeQueue {
  readonly #world: World;
  readonly #clock: Clock;
  readonly #heap: Entry[] = [];
  #order = 0;
  #timer: Timer | null = null;
  #timerAtMs = Infinity;

  constructor(world: World, clock: Clock) {
    this.#world = world;
    this.#clock = clock;
  }

  /** Calls `wake` once, when the process clock shows `atMs` or a little later. */
  at(atMs: number, wake: () => void): void {
    this.#push({ atMs, order: this.#order++, wake });
    this.#arm();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#heap.length = 0;
  }

  #arm(): void {
    const first = this.#heap[0];
    if (first === undefined || (this.#timer !== null && this.#timerAtMs <= first.atMs)) return;
    this.#timer?.cancel();
    // Rounded up to a multiple of GRID_MS, so that wake-ups of about the same time share a tick and its frames.
    const dueMs = Math.ceil(first.atMs / GRID_MS) * GRID_MS;
    const delayMs = Math.min(TIMEOUT_MS_MAX, Math.max(0, Math.ceil(dueMs - this.#clock.nowMs())));
    this.#timerAtMs = first.atMs;
    this.#timer = this.#world.after(delayMs, () => this.#fire());
  }

  #fire(): void {
    this.#timer = null;
    const nowMs = this.#clock.nowMs();
    // A wake-up that is added in this loop, even for a past time, waits for the next tick, so that the loop ends.
    const later = this.#order;
    for (;;) {
      const first = this.#heap[0];
      if (first === undefined || first.atMs > nowMs || first.order >= later) break;
      this.#pop();
      first.wake();
    }
    this.#arm();
  }

  #before(a: Entry, b: Entry): boolean {
    return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const up = (at - 1) >> 1;
      const parent = heap[up] as Entry;
      if (this.#before(parent, entry)) break;
      heap[at] = parent;
      at = up;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Entry;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const child =
        right < heap.length && this.#before(heap[right] as Entry, heap[left] as Entry) ? right : left;
      if (this.#before(last, heap[child] as Entry)) break;
      heap[at] = heap[child] as Entry;
      at = child;
    }
    heap[at] = last;
  }
}
