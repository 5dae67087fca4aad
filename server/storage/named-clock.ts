/** Votes are covered for so long at once: META is synced once for each such span in which names are used. */
const AHEAD_MS = 60_000;
/** Two readings of one clock, each beside a reading of the monotonic clock, agree to within this. */
const GRAIN_MS = 100;

/** Up to which reading of its lease clock a server may have voted on names; a part of META. */
export interface NamedClock {
  readonly untilMs: number;
  /** That clock minus the monotonic clock of this boot. */
  readonly aheadMs: number;
}

/** @returns what covers votes at this reading: `known` if that does */
export function namedClockCovering(leaseClockMs: number, known: NamedClock | null): NamedClock {
  const aheadMs = leaseClockMs - monotonicMs();
  const isSame = known !== null && Math.abs(known.aheadMs - aheadMs) < GRAIN_MS;
  if (isSame && leaseClockMs <= known.untilMs) return known;
  return { untilMs: Math.max(known?.untilMs ?? 0, leaseClockMs + AHEAD_MS), aheadMs };
}

/**
 * @returns what covers also a reading at which another server, of whose votes this one takes the place, may have voted
 */
export function namedClockCarried(readingMs: number, known: NamedClock | null): NamedClock {
  const aheadMs = readingMs - monotonicMs();
  if (known === null) return { untilMs: readingMs, aheadMs };
  return { untilMs: Math.max(known.untilMs, readingMs), aheadMs: Math.max(known.aheadMs, aheadMs) };
}

/**
 * The latest reading at which a life that has ended may have voted. Within one boot the monotonic clock shows what the
 * lease clock of that life would show by now, which is never less.
 *
 * @returns −Infinity where it never voted
 */
export function namedClockFormerMs(known: NamedClock | null, isSameBoot: boolean): number {
  if (known === null) return -Infinity;
  return isSameBoot ? Math.min(known.untilMs, monotonicMs() + known.aheadMs) : known.untilMs;
}

/** Once this life votes no more, the next one need not wait for what was covered ahead. */
export function namedClockEnded(known: NamedClock | null): NamedClock | null {
  return known === null ? null : { ...known, untilMs: namedClockFormerMs(known, true) };
}

/** Folders of earlier releases have none. */
export function readNamedClock(value: unknown): NamedClock | null {
  if (typeof value !== 'object' || value === null) return null;
  const { untilMs, aheadMs } = value as Record<string, unknown>;
  return typeof untilMs === 'number' && typeof aheadMs === 'number' ? { untilMs, aheadMs } : null;
}

/** In milliseconds: one clock for all processes of one boot. It stands still while the machine sleeps, as lease clocks do. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
