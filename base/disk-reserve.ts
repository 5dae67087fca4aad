/** Free space for names, promises, deletions and writes in flight: this much, or this share of a small disk. */
const RESERVE_BYTES = 64 * 1024 * 1024;
const RESERVE_SHARE = 1 / 8;

/** Primaries refuse writes that leave less than this free on a disk of `totalBytes`. */
export function reserveBytes(totalBytes: number): number {
  return Math.min(RESERVE_BYTES, totalBytes * RESERVE_SHARE);
}
