const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;

export const DURATION_FORM = 'a number with a unit ms, s, m, h or d, such as 5s or 250ms';

/** Parses `250ms`, `5s`, `1.5m`, `2h`, `1d`; a unit is required. @returns whole milliseconds, or null */
export function durationParse(text: string): number | null {
  const match = DURATION.exec(text);
  if (match === null) return null;
  const [, count = '', unit = ''] = match;
  const scale = UNITS_MS[unit];
  if (scale === undefined) return null;
  const exact = Number(count) * scale;
  const durationMs = Math.round(exact);
  return Math.abs(exact - durationMs) < 1e-6 && Number.isSafeInteger(durationMs) ? durationMs : null;
}

/** @returns a whole number of the largest possible unit, such as `90s`; `durationParse` is the inverse */
export function durationFormat(durationMs: number): string {
  if (durationMs === 0) return '0s';
  for (const unit of ['d', 'h', 'm', 's'] as const) {
    const scale = UNITS_MS[unit] ?? 1;
    if (durationMs % scale === 0) return `${durationMs / scale}${unit}`;
  }
  return `${durationMs}ms`;
}
