interface Node<Key, Value> {
  readonly key: Key;
  /** Undefined in a mark. */
  value: Value | undefined;
  isMark: boolean;
  previous: Node<Key, Value>;
  next: Node<Key, Value>;
}

/** Deleted keys kept as marks, at least. */
const MARKS_MIN = 64;

/**
 * A map in the order in which keys were last set. A `Map` slows down if a key is deleted and set repeatedly: each
 * time leaves a dead entry in its chain until a rehash. Here a deleted key stays as a mark.
 */
export class RecentMap<Key, Value> {
  readonly #nodes = new Map<Key, Node<Key, Value>>();
  #kept = emptyRing<Key, Value>();
  #marks = emptyRing<Key, Value>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has(key: Key): boolean {
    return this.#nodes.get(key)?.isMark === false;
  }

  get(key: Key): Value | undefined {
    return this.#nodes.get(key)?.value;
  }

  /** The key becomes the newest. */
  set(key: Key, value: Value): this {
    let node = this.#nodes.get(key);
    if (node === undefined) {
      node = { key, value, isMark: false } as Node<Key, Value>;
      this.#nodes.set(key, node);
      this.#size++;
    } else {
      if (node.isMark) this.#size++;
      unlink(node);
      node.value = value;
      node.isMark = false;
    }
    append(this.#kept, node);
    return this;
  }

  /** Turns the entry into a mark, which a later `set` of the key reuses; drops the oldest of too many marks. */
  delete(key: Key): boolean {
    const node = this.#nodes.get(key);
    if (node === undefined || node.isMark) return false;
    unlink(node);
    node.value = undefined;
    node.isMark = true;
    this.#size--;
    append(this.#marks, node);
    if (this.#nodes.size > 2 * this.#size + MARKS_MIN) this.#dropMark();
    return true;
  }

  clear(): void {
    this.#nodes.clear();
    this.#kept = emptyRing();
    this.#marks = emptyRing();
    this.#size = 0;
  }

  /** The entry that was set least recently. */
  get oldest(): readonly [Key, Value] | undefined {
    const { next } = this.#kept;
    return next === this.#kept ? undefined : [next.key, next.value as Value];
  }

  /** Deletes and returns the oldest entry; needs no mark, as it was not set for long. */
  takeOldest(): readonly [Key, Value] | undefined {
    const { oldest } = this;
    if (oldest === undefined) return undefined;
    unlink(this.#kept.next);
    this.#nodes.delete(oldest[0]);
    this.#size--;
    return oldest;
  }

  /** Deletes and returns the oldest entries, up to the first that is not past. */
  takeWhile(isPast: (value: Value, key: Key) => boolean): readonly (readonly [Key, Value])[] {
    const taken: (readonly [Key, Value])[] = [];
    for (
      let oldest = this.oldest;
      oldest !== undefined && isPast(oldest[1], oldest[0]);
      oldest = this.oldest
    ) {
      taken.push(oldest);
      this.takeOldest();
    }
    return taken;
  }

  /** @returns the present entries, oldest first, at most `countMax` */
  entries(countMax = Number.POSITIVE_INFINITY): readonly (readonly [Key, Value])[] {
    const entries: (readonly [Key, Value])[] = [];
    for (let node = this.#kept.next; node !== this.#kept && entries.length < countMax; node = node.next)
      entries.push([node.key, node.value as Value]);
    return entries;
  }

  #dropMark(): void {
    const { next } = this.#marks;
    unlink(next);
    this.#nodes.delete(next.key);
  }
}

function emptyRing<Key, Value>(): Node<Key, Value> {
  const head = { isMark: true } as Node<Key, Value>;
  head.previous = head;
  head.next = head;
  return head;
}

function unlink<Key, Value>(node: Node<Key, Value>): void {
  node.previous.next = node.next;
  node.next.previous = node.previous;
}

function append<Key, Value>(head: Node<Key, Value>, node: Node<Key, Value>): void {
  node.previous = head.previous;
  node.next = head;
  head.previous.next = node;
  head.previous = node;
}
