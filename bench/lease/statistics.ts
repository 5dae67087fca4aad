/** The results of repeated runs of one measurement. */
export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly runs: number;
}

/** @throws RangeError if there are no values */
export function summarize(values: readonly number[]): Summary {
  const sorted = values.toSorted((a, b) => a - b);
  return {
    median: quantile(sorted, 0.5),
    min: quantile(sorted, 0),
    max: quantile(sorted, 1),
    runs: sorted.length,
  };
}

/**
 * @param sorted ascending
 * @param share from 0 to 1
 * @returns the value below which `share` of the values are, interpolated linearly
 * @throws RangeError if there are no values
 */
export function quantile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) throw new RangeError('Nothing was measured');
  const place = share * (sorted.length - 1);
  const below = sorted[Math.floor(place)] as number;
  const above = sorted[Math.ceil(place)] as number;
  return below + (above - below) * (place - Math.floor(place));
}

/** @returns median and, for several runs, the smallest and largest, as `1,234 (1,100 to 1,300)` */
export function spreadText(summary: Summary, digits = 0): string {
  const middle = numberText(summary.median, digits);
  if (summary.runs < 2) return middle;
  return `${middle} (${numberText(summary.min, digits)} to ${numberText(summary.max, digits)})`;
}

/** @returns the number with commas between thousands, and `digits` decimals */
export function numberText(value: number, digits = 0): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
