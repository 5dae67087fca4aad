/**
 * What will happen in a simulated world, earliest first; of two things at one moment, the one that was
 * scheduled first. Entries are used again after they happened, so that a message costs no garbage.
 */

import { EventHeap } from './event-heap.ts';

/** One thing that will happen. What the fields mean depends on `kind`; whoever pops it reads it at once. */
export interface Scheduled<Message> {
  atMs: number;
  order: number;
  /** `run` calls `run`; `deliver` brings `message` from server `from` to `to`; `tick` wakes server `to`. */
  kind: 'run' | 'deliver' | 'tick';
  from: number;
  to: number;
  token: number;
  message: Message | null;
  run: (() => void) | null;
}

export class EventQueue<Message> {
  readonly #heap = new EventHeap<Scheduled<Message>>();
  readonly #spare: Scheduled<Message>[] = [];
  #order = 0;

  /** When the first entry is due; Infinity if there is none. */
  firstMs(): number {
    return this.#heap.first?.atMs ?? Infinity;
  }

  run(atMs: number, run: () => void): void {
    const entry = this.#entry(atMs, 'run', 0, 0);
    entry.run = run;
    this.#heap.push(entry);
  }

  deliver(atMs: number, from: number, to: number, message: Message): void {
    const entry = this.#entry(atMs, 'deliver', from, to);
    entry.message = message;
    this.#heap.push(entry);
  }

  tick(atMs: number, server: number, token: number): void {
    const entry = this.#entry(atMs, 'tick', 0, server);
    entry.token = token;
    this.#heap.push(entry);
  }

  /** Removes the first entry. There is one, and it is given back with `recycle`. */
  pop(): Scheduled<Message> {
    return this.#heap.pop();
  }

  recycle(entry: Scheduled<Message>): void {
    entry.message = null;
    entry.run = null;
    this.#spare.push(entry);
  }

  #entry(atMs: number, kind: Scheduled<Message>['kind'], from: number, to: number): Scheduled<Message> {
    const order = this.#order++;
    const spare = this.#spare.pop();
    if (spare === undefined) return { atMs, order, kind, from, to, token: 0, message: null, run: null };
    spare.atMs = atMs;
    spare.order = order;
    spare.kind = kind;
    spare.from = from;
    spare.to = to;
    return spare;
  }
}
