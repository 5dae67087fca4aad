import { assert } from '../../base/assert.ts';
import type { LockChangeOfClient, LockOfClient } from '../../wire/lock-api.ts';
import { locksConflict, rangesCover, rangesWith } from '../../wire/lock-ranges.ts';

/**
 * Locks of one file and the requests that wait for them, without clock and network. Ranges are inclusive at both ends.
 * An owner is a client and its own owner number; its locks never conflict with each other (POSIX.1-2024, `fcntl`).
 */

/** A request that waits. Waiters are ordered by `place`. */
export interface LockWaiter extends LockChangeOfClient {
  readonly place: number;
}

type Owned = Pick<LockOfClient, 'client' | 'owner' | 'kind'>;

export class LockTable {
  /** By kind and owner: sorted and disjoint; adjacent locks of one type are merged. */
  readonly #locks = new Map<string, LockOfClient[]>();
  readonly #waiters = new Map<number, LockWaiter>();
  #nextPlace = 1;
  #count = 0;
  readonly #onCount: (client: number, more: number) => void;

  constructor(onCount: (client: number, more: number) => void = () => undefined) {
    this.#onCount = onCount;
  }

  get size(): number {
    return this.#count;
  }

  get waiterCount(): number {
    return this.#waiters.size;
  }

  list(client?: number): LockOfClient[] {
    const all = [...this.#locks.values()].flat();
    return client === undefined ? all : all.filter((lock) => lock.client === client);
  }

  conflict(wish: LockChangeOfClient): LockOfClient | null {
    return this.#conflicts(wish).next().value ?? null;
  }

  /** Whether the owner has a lock of at least this type on all of the range. */
  covers(wish: LockChangeOfClient): boolean {
    return rangesCover(this.#locks.get(keyOf(wish)) ?? [], wish);
  }

  /** Sets or releases the owner's lock on a range; its locks elsewhere stay. To be called only without a conflict. */
  set(wish: LockChangeOfClient): void {
    assert(wish.start <= wish.end, 'A range ends no earlier than it begins');
    assert(wish.type === 'unlock' || this.conflict(wish) === null, 'No two locks are at odds');
    const key = keyOf(wish);
    const before = this.#locks.get(key) ?? [];
    const { client, owner, kind, type, start, end, pid } = wish;
    const after = rangesWith(before, { client, owner, kind, type, start, end, pid });
    this.#addToCount(client, after.length - before.length);
    if (after.length === 0) this.#locks.delete(key);
    else this.#locks.set(key, after);
  }

  /** A lock on the whole file is not converted in place: the old one is released first (`flock`(2)). */
  beginFlock(wish: LockChangeOfClient): void {
    if (wish.kind !== 'flock' || wish.type === 'unlock') return;
    const [own] = this.#locks.get(keyOf(wish)) ?? [];
    if (own !== undefined && own.type !== wish.type) this.set({ ...wish, type: 'unlock' });
  }

  addWaiter(wish: LockChangeOfClient, place: number | null): number {
    const at = place ?? this.#nextPlace++;
    this.#waiters.set(at, { ...wish, place: at });
    return at;
  }

  removeWaiter(place: number): void {
    this.#waiters.delete(place);
  }

  /** Grants waiting requests, by place, if they have no conflict and `mayHave` says that the client still waits. */
  grantWaiting(mayHave: (waiter: LockWaiter) => boolean): LockWaiter[] {
    const granted: LockWaiter[] = [];
    for (const waiter of [...this.#waiters.values()].sort((a, b) => a.place - b.place)) {
      if (!mayHave(waiter) || this.conflict(waiter) !== null) continue;
      this.set(waiter);
      this.#waiters.delete(waiter.place);
      granted.push(waiter);
    }
    return granted;
  }

  /**
   * Whether a conflicting owner waits, directly or through others, for a lock of this one. Within one file and for
   * ranges only, as `fcntl` specifies; `flock` waits forever.
   */
  wouldDeadlock(wish: LockChangeOfClient): boolean {
    if (wish.kind !== 'posix') return false;
    const self = keyOf(wish);
    const seen = new Set<string>();
    const next: LockChangeOfClient[] = [wish];
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

  hasLocks(client: number): boolean {
    for (const locks of this.#locks.values()) if (locks[0]?.client === client) return true;
    return false;
  }

  /** Removes the client's locks except these, all of which it has. Takes linear time if there are no others. */
  keepOnly(client: number, kept: readonly LockChangeOfClient[]): void {
    const named = new Set(kept.map(textOf));
    if (this.list(client).every((lock) => named.has(textOf(lock)))) return;
    this.removeLocks(client);
    for (const lock of kept) this.set(lock);
  }

  removeLocks(client: number): void {
    for (const [key, locks] of this.#locks) {
      if (locks[0]?.client !== client) continue;
      this.#addToCount(client, -locks.length);
      this.#locks.delete(key);
    }
  }

  removeClient(client: number): void {
    this.removeLocks(client);
    for (const waiter of this.#waiters.values())
      if (waiter.client === client) this.removeWaiter(waiter.place);
  }

  #addToCount(client: number, more: number): void {
    this.#count += more;
    if (more !== 0) this.#onCount(client, more);
  }

  *#conflicts(wish: LockChangeOfClient): Generator<LockOfClient> {
    if (wish.type === 'unlock') return;
    const self = keyOf(wish);
    for (const [key, locks] of this.#locks) {
      if (key === self || locks[0]?.kind !== wish.kind) continue;
      for (const lock of locks) if (locksConflict(lock, wish)) yield lock;
    }
  }
}

function keyOf({ client, owner, kind }: Owned): string {
  return `${kind}:${client}:${owner}`;
}

function textOf(lock: LockChangeOfClient): string {
  return `${lock.type} ${lock.start} ${lock.end} ${keyOf(lock)}`;
}
