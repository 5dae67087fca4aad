/** Units of a size as people write it, in bytes. `KiB` is 1,024 and `kB` 1,000, everywhere. */
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

/** What a size looks like, for messages that refuse one. */
export const BYTES_SIZE_FORM = 'a number of bytes, or one with a unit such as 128KiB, 4MiB or 1GB';

/**
 * Reads `4096`, `128KiB`, `1.5GiB`, `10MB`.
 *
 * @returns bytes, or null where `text` is no size or no whole number of bytes
 */
export function bytesSizeParse(text: string): number | null {
  const match = SIZE.exec(text);
  if (match === null) return null;
  const [, count = '', unit = 'B'] = match;
  const bytes = Number(count) * (UNITS_BYTES[unit] ?? Number.NaN);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

/** @returns the shortest form that `bytesSizeParse` reads back to the same number of bytes, in binary units */
export function bytesSizeFormat(bytes: number): string {
  for (const unit of ['TiB', 'GiB', 'MiB', 'KiB'] as const) {
    const scale = UNITS_BYTES[unit] ?? 1;
    if (bytes !== 0 && bytes % scale === 0) return `${bytes / scale}${unit}`;
  }
  return `${bytes}B`;
}

/** @returns a size for people to read, rounded to one decimal: `1.4 GiB`. Not to be parsed. */
export function bytesSizeRound(bytes: number): string {
  for (const unit of ['TiB', 'GiB', 'MiB', 'KiB'] as const) {
    const scale = UNITS_BYTES[unit] ?? 1;
    if (bytes >= scale) return `${(bytes / scale).toFixed(1)} ${unit}`;
  }
  return `${bytes} B`;
}
