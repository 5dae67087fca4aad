import type { Axis } from './chart.ts';

/** Maps values of an axis to pixels, and selects the values that get a line. */
export interface Scale {
  readonly ticks: readonly number[];
  place(value: number): number;
}

/** Round steps of a scale. */
const STEPS = [1, 2, 5, 10];
const TICKS_WANTED = 6;

/**
 * @param values all values of the axis; a linear axis starts at 0, a logarithmic one leaves out values that are not
 * positive
 * @param from pixel of the smallest value
 * @param to pixel of the largest
 * @throws RangeError if there are no values
 */
export function scaleOf(axis: Axis, values: readonly number[], from: number, to: number): Scale {
  const shown = values.filter((value) => Number.isFinite(value) && (axis.scale === 'linear' || value > 0));
  if (shown.length === 0) throw new RangeError(`Nothing to show on the axis "${axis.label}"`);
  const least = shown.reduce((a, b) => Math.min(a, b));
  const most = shown.reduce((a, b) => Math.max(a, b));
  return axis.scale === 'linear' ? linear(most, from, to) : logarithmic(least, most, from, to);
}

function linear(most: number, from: number, to: number): Scale {
  const rough = (most <= 0 ? 1 : most) / TICKS_WANTED;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (STEPS.find((candidate) => candidate * power >= rough) ?? 10);
  const count = Math.max(1, Math.ceil(most / step));
  const ticks = Array.from({ length: count + 1 }, (_, index) => cleaned(index * step));
  const top = ticks.at(-1) as number;
  return { ticks, place: (value) => from + (value / top) * (to - from) };
}

/** Lines at powers of ten; if there are few, at 1, 2 and 5 times each. */
function logarithmic(least: number, most: number, from: number, to: number): Scale {
  const first = Math.floor(Math.log10(least));
  const last = Math.ceil(Math.log10(most));
  const digits = last - first > 3 ? [1] : [1, 2, 5];
  const all: number[] = [];
  for (let power = first; power <= last; power++) {
    for (const digit of digits) all.push(cleaned(digit * 10 ** power));
  }
  const low = all.findLast((tick) => tick <= least) ?? least;
  const high = all.find((tick) => tick >= most && tick > low) ?? most;
  const ticks = all.filter((tick) => tick >= low && tick <= high);
  const span = Math.log10(high / low);
  return { ticks, place: (value) => from + (Math.log10(value / low) / span) * (to - from) };
}

/** @returns the value without the last digits that binary fractions add */
function cleaned(value: number): number {
  return Number(value.toPrecision(12));
}
