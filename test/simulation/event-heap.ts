interface Timed {
  readonly atMs: number;
  readonly order: number;
}

/** Entries by their time, earliest first; of two at one time, the one with the smaller order first. */
export class EventHeap<Entry extends Timed> {
  readonly #heap: Entry[] = [];

  /** The first entry; undefined if there is none. */
  get first(): Entry | undefined {
    return this.#heap[0];
  }

  push(added: Entry): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(added);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Entry;
      if (!isBefore(added, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = added;
  }

  /** Removes the first entry, which must exist. */
  pop(): Entry {
    const heap = this.#heap;
    const first = heap[0] as Entry;
    const last = heap.pop() as Entry;
    const { length } = heap;
    if (length === 0) return first;
    let at = 0;
    for (let child = 1; child < length; child = 2 * at + 1) {
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as Entry)) child++;
      const below = heap[child] as Entry;
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(a: Timed, b: Timed): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
