import { ServiceError } from '../base/errors.ts';
import { LOCK_END } from '../base/lock-end.ts';
import type { LockHeld, WireLock } from './lock-api.ts';

/** Means the end of the file, as in releases without larger offsets. */
const END_NUMBER = Number.MAX_SAFE_INTEGER;

/** @throws ServiceError `bad-request` if the range is reversed or too large */
export function rangeFromWire({
  start,
  end,
}: Pick<WireLock, 'start' | 'end'>): Pick<LockHeld, 'start' | 'end'> {
  const range = { start: BigInt(start), end: end === END_NUMBER ? LOCK_END : BigInt(end) };
  if (range.start > range.end) throw new ServiceError('bad-request', 'A range ends before it begins');
  if (range.end > LOCK_END) throw new ServiceError('bad-request', `A range ends beyond byte ${LOCK_END}`);
  return range;
}

export function rangeToWire({
  start,
  end,
}: Pick<LockHeld, 'start' | 'end'>): Pick<WireLock, 'start' | 'end'> {
  const last = BigInt(END_NUMBER);
  return {
    start: start > last ? `${start}` : Number(start),
    end: end === LOCK_END ? END_NUMBER : end >= last ? `${end}` : Number(end),
  };
}
