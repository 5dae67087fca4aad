import { assert } from '../../base/assert.ts';
import type { LockOfClient, WishOfClient } from '../../wire/lock-api.ts';
import { isAtOdds, rangesCover, rangesWith } from '../../wire/lock-ranges.ts';

/**
 * Locks of one file and who waits for them: a value without clock and network. Ranges are inclusive at both ends. An
 * owner, which is a client and whatever it calls its own, never stands in its own way (POSIX.1-2024, `fcntl`).
 */

/** A wish that waits. The order of waiters is that of their `place`. */
export interface LockWaiter extends WishOfClient {
  readonly place: number;
}

type Owned = Pick<LockOfClient, 'client' | 'owner' | 'kind'>;

export class LockTable {
  /** By kind and owner: sorted, disjoint; neighbours of one type are one. */
  readonly #held = new Map<string, LockOfClient[]>();
  readonly #waiters = new Map<number, LockWaiter>();
  #nextPlace = 1;
  #count = 0;
  readonly #onCount: (client: number, more: number) => void;

  /** @param onCount told whenever a client has `more` locks than before */
  constructor(onCount: (client: number, more: number) => void = () => undefined) {
    this.#onCount = onCount;
  }

  /** How many locks there are. */
  get size(): number {
    return this.#count;
  }

  get waiterCount(): number {
    return this.#waiters.size;
  }

  /** All locks, or one client's. */
  list(client?: number): LockOfClient[] {
    const all = [...this.#held.values()].flat();
    return client === undefined ? all : all.filter((lock) => lock.client === client);
  }

  /** @returns a lock that stands in the way of the wish, or null */
  conflict(wish: WishOfClient): LockOfClient | null {
    return this.#conflicts(wish).next().value ?? null;
  }

  /** Whether the owner has a lock of at least this type on all of the range. */
  covers(wish: WishOfClient): boolean {
    return rangesCover(this.#held.get(keyOf(wish)) ?? [], wish);
  }

  /**
   * Sets or gives back what the wish says; the owner's locks elsewhere stay. To be called only where nothing is in the
   * way.
   */
  set(wish: WishOfClient): void {
    assert(wish.start <= wish.end, 'A range ends no earlier than it begins');
    assert(wish.type === 'unlock' || this.conflict(wish) === null, 'No two locks are at odds');
    const key = keyOf(wish);
    const before = this.#held.get(key) ?? [];
    const { client, owner, kind, type, start, end, pid } = wish;
    const after = rangesWith(before, { client, owner, kind, type, start, end, pid });
    this.#counted(client, after.length - before.length);
    if (after.length === 0) this.#held.delete(key);
    else this.#held.set(key, after);
  }

  /** A lock of the whole file is not changed into another: the old one is given back first (`flock`(2)). */
  beginFlock(wish: WishOfClient): void {
    if (wish.kind !== 'flock' || wish.type === 'unlock') return;
    const [own] = this.#held.get(keyOf(wish)) ?? [];
    if (own !== undefined && own.type !== wish.type) this.set({ ...wish, type: 'unlock' });
  }

  /**
   * @param place where it waited before; null for a new place behind all others
   * @returns its place
   */
  wait(wish: WishOfClient, place: number | null): number {
    const at = place ?? this.#nextPlace++;
    this.#waiters.set(at, { ...wish, place: at });
    return at;
  }

  leave(place: number): void {
    this.#waiters.delete(place);
  }

  /**
   * Sets the locks of waiters whose way is free, the first come first.
   *
   * @param mayHave whether the waiter is there to be told; one that is not keeps its place and gets nothing
   */
  wake(mayHave: (waiter: LockWaiter) => boolean): LockWaiter[] {
    const woken: LockWaiter[] = [];
    for (const waiter of [...this.#waiters.values()].sort((a, b) => a.place - b.place)) {
      if (!mayHave(waiter) || this.conflict(waiter) !== null) continue;
      this.set(waiter);
      this.#waiters.delete(waiter.place);
      woken.push(waiter);
    }
    return woken;
  }

  /**
   * Whether to wait would be to wait for oneself: an owner in the way waits, directly or by others, for a lock of this
   * one. Within one file and for ranges only, as `fcntl` says; `flock` waits for ever.
   */
  wouldDeadlock(wish: WishOfClient): boolean {
    if (wish.kind !== 'posix') return false;
    const self = keyOf(wish);
    const seen = new Set<string>();
    const next: WishOfClient[] = [wish];
    for (let waiting = next.pop(); waiting !== undefined; waiting = next.pop()) {
      for (const lock of this.#conflicts(waiting)) {
        const key = keyOf(lock);
        if (key === self) return true;
        if (seen.has(key)) continue;
        seen.add(key);
        for (const waiter of this.#waiters.values()) if (keyOf(waiter) === key) next.push(waiter);
      }
    }
    return false;
  }

  /** Whether the client has a lock. */
  has(client: number): boolean {
    for (const locks of this.#held.values()) if (locks[0]?.client === client) return true;
    return false;
  }

  /** The client has these locks, all of which it has now, and no others. Takes linear time where it has no others. */
  keepOnly(client: number, kept: readonly WishOfClient[]): void {
    const named = new Set(kept.map(textOf));
    if (this.list(client).every((lock) => named.has(textOf(lock)))) return;
    this.removeLocks(client);
    for (const lock of kept) this.set(lock);
  }

  removeLocks(client: number): void {
    for (const [key, locks] of this.#held) {
      if (locks[0]?.client !== client) continue;
      this.#counted(client, -locks.length);
      this.#held.delete(key);
    }
  }

  /** The client is gone, with its locks and all that it waits for. */
  remove(client: number): void {
    this.removeLocks(client);
    for (const waiter of this.#waiters.values()) if (waiter.client === client) this.leave(waiter.place);
  }

  #counted(client: number, more: number): void {
    this.#count += more;
    if (more !== 0) this.#onCount(client, more);
  }

  *#conflicts(wish: WishOfClient): Generator<LockOfClient> {
    if (wish.type === 'unlock') return;
    const self = keyOf(wish);
    for (const [key, locks] of this.#held) {
      if (key === self || locks[0]?.kind !== wish.kind) continue;
      for (const lock of locks) if (isAtOdds(lock, wish)) yield lock;
    }
  }
}

function keyOf({ client, owner, kind }: Owned): string {
  return `${kind}:${client}:${owner}`;
}

function textOf(lock: WishOfClient): string {
  return `${lock.type} ${lock.start} ${lock.end} ${keyOf(lock)}`;
}
