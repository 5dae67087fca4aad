/** Units of a duration as people write it, in milliseconds. */
const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;

/** What a duration looks like, for messages that refuse one. */
export const DURATION_FORM = 'a number with a unit ms, s, m, h or d, such as 5s or 250ms';

/**
 * Reads `250ms`, `5s`, `1.5m`, `2h`, `1d`. A bare number is refused: nobody can tell what it counts.
 *
 * @returns milliseconds, or null where `text` is no duration or no whole number of milliseconds
 */
export function durationParse(text: string): number | null {
  const match = DURATION.exec(text);
  if (match === null) return null;
  const [, count = '', unit = ''] = match;
  const scale = UNITS_MS[unit];
  if (scale === undefined) return null;
  const exact = Number(count) * scale;
  // 0.1 + 0.2: the product of a decimal fraction may miss the whole number by a rounding error.
  const durationMs = Math.round(exact);
  return Math.abs(exact - durationMs) < 1e-6 && Number.isSafeInteger(durationMs) ? durationMs : null;
}

/** @returns the shortest form that `durationParse` reads back to the same number of milliseconds */
export function durationFormat(durationMs: number): string {
  if (durationMs === 0) return '0s';
  for (const unit of ['d', 'h', 'm', 's'] as const) {
    const scale = UNITS_MS[unit] ?? 1;
    if (durationMs % scale === 0) return `${durationMs / scale}${unit}`;
  }
  return `${durationMs}ms`;
}
