const SIZE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  B: 1,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
  TiB: 1024 ** 4,
  kB: 1000,
  KB: 1000,
  MB: 1000 ** 2,
  GB: 1000 ** 3,
  TB: 1000 ** 4,
};

const DURATION_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  ms: 1,
  s: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** @returns the size in bytes, or null: `4096`, `128KiB`, `1.5 GiB` */
export function parseSize(text: string): number | null {
  const bytes = parseWithUnit(text, SIZE_UNITS);
  return bytes !== null && Number.isSafeInteger(bytes) ? bytes : null;
}

/** @returns the duration in milliseconds, or null: `5s`, `250ms`, `1.5m`; no unit means ms */
export function parseDurationMs(text: string): number | null {
  return parseWithUnit(text, DURATION_UNITS);
}

function parseWithUnit(text: string, units: Readonly<Record<string, number>>): number | null {
  const match = /^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$/.exec(text.trim());
  if (match === null) return null;
  const unit = Object.hasOwn(units, match[2] as string) ? units[match[2] as string] : undefined;
  return unit === undefined ? null : Number(match[1]) * unit;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes;
  let unit = 'B';
  for (const next of ['KiB', 'MiB', 'GiB', 'TiB', 'PiB']) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${value.toFixed(1)} ${unit}`;
}

export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @returns a wall-clock time in nanoseconds as text, in UTC: `2026-11-27 06:30:00` */
export function formatTime(nanoseconds: string): string {
  const [day, time = ''] = new Date(Number(BigInt(nanoseconds) / 1_000_000n)).toISOString().split('T');
  return `${day} ${time.slice(0, 8)}`;
}
