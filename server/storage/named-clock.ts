/** Votes are covered this far ahead: META is synced once per such span in which names are used. */
const AHEAD_MS = 60_000;
/** Two readings of one clock, relative to the monotonic clock, agree within this. */
const GRAIN_MS = 100;

/** The reading of its lease clock up to which a server may have voted on names; part of META. */
export interface NamedClock {
  readonly untilMs: number;
  /** The lease clock minus the monotonic clock of this boot. */
  readonly aheadMs: number;
}

/** @returns a clock that covers votes at this reading; `known` if that does */
export function namedClockCovering(leaseClockMs: number, known: NamedClock | null): NamedClock {
  const aheadMs = leaseClockMs - monotonicMs();
  const isSame = known !== null && Math.abs(known.aheadMs - aheadMs) < GRAIN_MS;
  if (isSame && leaseClockMs <= known.untilMs) return known;
  return { untilMs: Math.max(known?.untilMs ?? 0, leaseClockMs + AHEAD_MS), aheadMs };
}

/** @returns a clock that also covers a reading at which another server, which this one replaces, may have voted */
export function namedClockCarried(readingMs: number, known: NamedClock | null): NamedClock {
  const aheadMs = readingMs - monotonicMs();
  if (known === null) return { untilMs: readingMs, aheadMs };
  return { untilMs: Math.max(known.untilMs, readingMs), aheadMs: Math.max(known.aheadMs, aheadMs) };
}

/**
 * The latest reading of its lease clock at which an earlier process may have voted on a name; −Infinity if none did.
 * Within one boot it cannot be later than what that clock would show now: the monotonic clock plus `aheadMs`.
 */
export function namedClockLastVoteMs(known: NamedClock | null, isSameBoot: boolean): number {
  if (known === null) return -Infinity;
  return isSameBoot ? Math.min(known.untilMs, monotonicMs() + known.aheadMs) : known.untilMs;
}

/** @returns the clock to store at an orderly end: it covers no vote after now, so the next process waits less */
export function namedClockEnded(known: NamedClock | null): NamedClock | null {
  return known === null ? null : { ...known, untilMs: namedClockLastVoteMs(known, true) };
}

export function readNamedClock(value: unknown): NamedClock | null {
  if (typeof value !== 'object' || value === null) return null;
  const { untilMs, aheadMs } = value as Record<string, unknown>;
  return typeof untilMs === 'number' && typeof aheadMs === 'number' ? { untilMs, aheadMs } : null;
}

/** One clock for all processes of one boot. It stops while the machine sleeps, as lease clocks do. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
