import type { Timer, World } from '../../base/world.ts';
import type { Clock } from '../process/clock.ts';

interface Entry {
  readonly atMs: number;
  readonly order: number;
  readonly wake: () => void;
}

/** The limit of Node's timers. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;
/** Wake-ups come up to this much late, in milliseconds. */
const GRID_MS = 5;

/**
 * One timer for many wake-ups: a binary heap by lease clock. A wake-up that is no longer needed comes all the same, and
 * its receiver checks; timers trigger work here and never define validity.
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

  /** Calls `wake` once, as soon as the lease clock shows `atMs`. */
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
    // On a grid, so that wake-ups of about the same time share a tick and its frames.
    const dueMs = Math.ceil(first.atMs / GRID_MS) * GRID_MS;
    const delayMs = Math.min(TIMEOUT_MS_MAX, Math.max(0, Math.ceil(dueMs - this.#clock.nowMs())));
    this.#timerAtMs = first.atMs;
    this.#timer = this.#world.after(delayMs, () => this.#fire());
  }

  #fire(): void {
    this.#timer = null;
    const nowMs = this.#clock.nowMs();
    // A wake-up for the past, requested during this loop, waits for the next tick: it must not block the event loop.
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
