/** Kept free for names, promises and deletions, and for what writers have in flight: so much, or this share of a small disk. */
const RESERVE_BYTES = 64 * 1024 * 1024;
const RESERVE_SHARE = 1 / 8;

/** Primaries refuse what would leave less than this free on a disk of `totalBytes`. */
export function reserveBytes(totalBytes: number): number {
  return Math.min(RESERVE_BYTES, totalBytes * RESERVE_SHARE);
}
