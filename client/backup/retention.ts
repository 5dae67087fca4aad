import type { SnapshotInfo } from '../../wire/catalog-api.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** 1970-01-01 was a Thursday; weeks begin on Monday, as in ISO 8601. */
const THURSDAY = 3;
const MONTHS = 12;

/** Numbers of periods, in UTC. Snapshots of one number are in the same period. */
const PERIODS = {
  hourly: (ms: number) => Math.floor(ms / HOUR_MS),
  daily: (ms: number) => Math.floor(ms / DAY_MS),
  weekly: (ms: number) => Math.floor((Math.floor(ms / DAY_MS) + THURSDAY) / 7),
  monthly: (ms: number) => new Date(ms).getUTCFullYear() * MONTHS + new Date(ms).getUTCMonth(),
  yearly: (ms: number) => new Date(ms).getUTCFullYear(),
} as const;
export type Period = keyof typeof PERIODS | 'last';

/** How many to keep of each kind. */
export type Retention = ReadonlyMap<Period, number>;

const COUNT_MAX = 4_096;

/** Parses `24` or `hourly=24,daily=7`. @returns null if it is neither */
export function parseRetention(text: string): Retention | null {
  const rules = new Map<Period, number>();
  for (const rule of /^[0-9]+$/.test(text) ? [`last=${text}`] : text.split(',')) {
    const [, period = '', digits = ''] = /^([a-z]+)=([0-9]{1,4})$/.exec(rule.trim()) ?? [];
    if (!isPeriod(period) || rules.has(period) || Number(digits) > COUNT_MAX) return null;
    rules.set(period, Number(digits));
  }
  return rules;
}

function isPeriod(text: string): text is Period {
  return text === 'last' || Object.hasOwn(PERIODS, text);
}

/**
 * The snapshots to keep, each with the rules that keep it. A rule `daily=7` keeps the latest snapshot of each of the
 * last seven days that have any; `last=3` keeps the latest three.
 */
export function keptSnapshots(
  snapshots: readonly SnapshotInfo[],
  retention: Retention,
): Map<SnapshotInfo, readonly Period[]> {
  const latestFirst = snapshots.toSorted((a, b) => b.serial - a.serial);
  const kept = new Map<SnapshotInfo, Period[]>();
  for (const [period, count] of retention) {
    const periods = new Set<number>();
    for (const snapshot of latestFirst) {
      const number = period === 'last' ? snapshot.serial : PERIODS[period](madeMs(snapshot));
      if (periods.size >= count) break;
      if (periods.has(number)) continue;
      periods.add(number);
      kept.set(snapshot, [...(kept.get(snapshot) ?? []), period]);
    }
  }
  return kept;
}

function madeMs({ madeNs }: SnapshotInfo): number {
  return Number(BigInt(madeNs) / 1_000_000n);
}
