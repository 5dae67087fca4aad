/** Units of a size, in bytes: `KiB` is 1,024, `kB` 1,000. */
const UNITS_BYTES: Readonly<Record<string, number>> = {
  B: 1,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

const SIZE = /^(\d+(?:\.\d+)?)(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?$/;

export const BYTES_SIZE_FORM = 'a number of bytes, or one with a unit such as 128KiB, 4MiB or 1GB';

/** Parses `4096`, `128KiB`, `1.5GiB`. @returns bytes, or null if `text` is no size or no whole number of bytes */
export function bytesSizeParse(text: string): number | null {
  const match = SIZE.exec(text);
  if (match === null) return null;
  const [, count = '', unit = 'B'] = match;
  const bytes = Number(count) * (UNITS_BYTES[unit] ?? Number.NaN);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

/** @returns the shortest text in binary units that `bytesSizeParse` converts back exactly */
export function bytesSizeFormat(bytes: number): string {
  for (const unit of ['TiB', 'GiB', 'MiB', 'KiB'] as const) {
    const scale = UNITS_BYTES[unit] ?? 1;
    if (bytes !== 0 && bytes % scale === 0) return `${bytes / scale}${unit}`;
  }
  return `${bytes}B`;
}

/** @returns a size for people, rounded to one decimal: `1.4 GiB`. Not for parsing. */
export function bytesSizeRound(bytes: number): string {
  for (const unit of ['TiB', 'GiB', 'MiB', 'KiB'] as const) {
    const scale = UNITS_BYTES[unit] ?? 1;
    if (bytes >= scale) return `${(bytes / scale).toFixed(1)} ${unit}`;
  }
  return `${bytes} B`;
}
