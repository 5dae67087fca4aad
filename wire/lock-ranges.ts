import type { LockChange, LockHeld } from './lock-api.ts';

/** Applies a request to an owner's sorted, disjoint ranges; remaining parts keep all other fields. */
export function rangesWith<Held extends LockHeld>(
  ranges: readonly Held[],
  request: Omit<Held, 'type'> & Pick<LockChange, 'type' | 'start' | 'end'>,
): Held[] {
  const after: Held[] = [];
  for (const range of ranges) {
    if (range.end < request.start || range.start > request.end) {
      after.push(range);
      continue;
    }
    if (range.start < request.start) after.push({ ...range, end: request.start - 1n });
    if (range.end > request.end) after.push({ ...range, start: request.end + 1n });
  }
  // A request that is no unlock has a lock's type.
  if (request.type !== 'unlock') after.push({ ...request } as unknown as Held);
  after.sort((a, b) => (a.start < b.start ? -1 : 1));
  const joined: Held[] = [];
  for (const range of after) {
    const last = joined.at(-1);
    if (last !== undefined && last.type === range.type && last.end + 1n === range.start) {
      joined[joined.length - 1] = { ...last, end: range.end };
    } else joined.push(range);
  }
  return joined;
}

type Range = Pick<LockHeld, 'start' | 'end'>;

/** @returns the intersection of two ranges, whose `end` is inclusive; null if it is empty */
export function overlap(a: Range, b: Range): Range | null {
  let { start, end } = a;
  if (b.start > start) start = b.start;
  if (b.end < end) end = b.end;
  return start > end ? null : { start, end };
}

/** @returns whether an owner's sorted, disjoint ranges cover the request with its type or a stronger one */
export function rangesCover(
  ranges: readonly Pick<LockHeld, 'type' | 'start' | 'end'>[],
  request: Pick<LockChange, 'type' | 'start' | 'end'>,
): boolean {
  let at = request.start;
  for (const range of ranges) {
    if (range.end < at) continue;
    if (range.start > at || (request.type === 'exclusive' && range.type === 'shared')) return false;
    if (range.end >= request.end) return true;
    at = range.end + 1n;
  }
  return false;
}

/** @returns whether the lock conflicts with another owner's request of the same kind */
export function locksConflict(
  lock: Pick<LockHeld, 'type' | 'start' | 'end'>,
  request: Pick<LockChange, 'type' | 'start' | 'end'>,
): boolean {
  if (request.type === 'unlock' || overlap(lock, request) === null) return false;
  return lock.type === 'exclusive' || request.type === 'exclusive';
}
