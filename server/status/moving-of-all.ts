import type { Moving } from '../../wire/http-api.ts';

/** Files listed as moving. */
const CURRENT_MAX = 20;

/** What moves in all, at the orders of the primaries of several catalogs; null if none reports. */
export function movingOfAll(parts: readonly Moving[]): Moving | null {
  const [first, ...others] = parts;
  if (first === undefined) return null;
  return others.reduce(movingOfBoth, first);
}

function movingOfBoth(a: Moving, b: Moving): Moving {
  return {
    total: a.total + b.total,
    done: a.done + b.done,
    failed: a.failed + b.failed,
    current: [...a.current, ...b.current].slice(0, CURRENT_MAX),
    currentCount: (a.currentCount ?? a.current.length) + (b.currentCount ?? b.current.length),
    doneBytes: (a.doneBytes ?? 0) + (b.doneBytes ?? 0),
    leftBytes: leftOfBoth(a, b),
    filesPerS: (a.filesPerS ?? 0) + (b.filesPerS ?? 0),
    bytesPerS: (a.bytesPerS ?? 0) + (b.bytesPerS ?? 0),
    etaS: etaOfBoth(a, b),
  };
}

/** Unknown if it is unknown for one that has something left. */
function leftOfBoth(a: Moving, b: Moving): number | null {
  const [one = null, other = null] = [a, b].map((part) => (isLeft(part) ? (part.leftBytes ?? null) : 0));
  return one === null || other === null ? null : one + other;
}

/** The catalogs move their files at the same time. Unknown if it is unknown for one that has something left. */
function etaOfBoth(a: Moving, b: Moving): number | null {
  const open = [a, b].filter(isLeft).map(({ etaS }) => etaS ?? null);
  if (open.length === 0 || open.includes(null)) return null;
  return Math.max(...open.map((etaS) => etaS ?? 0));
}

function isLeft({ total, done }: Moving): boolean {
  return total > done;
}
