/**
 * What will happen in a simulated world, earliest first; of two things at one moment, the one that was
 * scheduled first. Entries are used again after they happened, so that a message costs no garbage.
 */

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
  readonly #heap: Scheduled<Message>[] = [];
  readonly #spare: Scheduled<Message>[] = [];
  #order = 0;

  /** When the first entry is due; Infinity if there is none. */
  firstMs(): number {
    const first = this.#heap[0];
    return first === undefined ? Infinity : first.atMs;
  }

  run(atMs: number, run: () => void): void {
    const entry = this.#entry(atMs, 'run', 0, 0);
    entry.run = run;
    this.#push(entry);
  }

  deliver(atMs: number, from: number, to: number, message: Message): void {
    const entry = this.#entry(atMs, 'deliver', from, to);
    entry.message = message;
    this.#push(entry);
  }

  tick(atMs: number, server: number, token: number): void {
    const entry = this.#entry(atMs, 'tick', 0, server);
    entry.token = token;
    this.#push(entry);
  }

  /** Removes the first entry. There is one, and it is given back with `recycle`. */
  pop(): Scheduled<Message> {
    const heap = this.#heap;
    const first = heap[0] as Scheduled<Message>;
    const last = heap.pop() as Scheduled<Message>;
    const { length } = heap;
    if (length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      let below = heap[child] as Scheduled<Message>;
      if (child + 1 < length) {
        const right = heap[child + 1] as Scheduled<Message>;
        if (isBefore(right, below)) {
          below = right;
          child++;
        }
      }
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first;
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

  #push(added: Scheduled<Message>): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(added);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Scheduled<Message>;
      if (!isBefore(added, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = added;
  }
}

function isBefore<Message>(a: Scheduled<Message>, b: Scheduled<Message>): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
