import type { LockHeld, LockWish } from './lock-api.ts';

/**
 * Ranges of one owner, sorted and disjoint, after a wish: what it covers is cut out of them, it is put in unless it is
 * an unlock, and neighbours of one type are joined. A part that stays keeps all that was said of the whole.
 */
export function rangesWith<Held extends LockHeld>(
  ranges: readonly Held[],
  wish: Omit<Held, 'type'> & Pick<LockWish, 'type' | 'start' | 'end'>,
): Held[] {
  const after: Held[] = [];
  for (const range of ranges) {
    if (range.end < wish.start || range.start > wish.end) {
      after.push(range);
      continue;
    }
    if (range.start < wish.start) after.push({ ...range, end: wish.start - 1n });
    if (range.end > wish.end) after.push({ ...range, start: wish.end + 1n });
  }
  // The type of a wish that is no unlock is that of a lock.
  if (wish.type !== 'unlock') after.push({ ...wish } as unknown as Held);
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

/** @returns the bytes that both ranges have, or null */
export function overlap(a: Range, b: Range): Range | null {
  let { start, end } = a;
  if (b.start > start) start = b.start;
  if (b.end < end) end = b.end;
  return start > end ? null : { start, end };
}

/** @returns whether one owner's ranges, sorted and disjoint, leave no part of the wish out, and are of its type or more */
export function rangesCover(
  ranges: readonly Pick<LockHeld, 'type' | 'start' | 'end'>[],
  wish: Pick<LockWish, 'type' | 'start' | 'end'>,
): boolean {
  let at = wish.start;
  for (const range of ranges) {
    if (range.end < at) continue;
    if (range.start > at || (wish.type === 'exclusive' && range.type === 'shared')) return false;
    if (range.end >= wish.end) return true;
    at = range.end + 1n;
  }
  return false;
}

/** @returns whether the lock stands in the way of another owner's wish of the same kind */
export function isAtOdds(
  lock: Pick<LockHeld, 'type' | 'start' | 'end'>,
  wish: Pick<LockWish, 'type' | 'start' | 'end'>,
): boolean {
  if (wish.type === 'unlock' || overlap(lock, wish) === null) return false;
  return lock.type === 'exclusive' || wish.type === 'exclusive';
}
