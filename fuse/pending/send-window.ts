/** With so much under way a link of 10 Mbit/s still answers each piece within the usual time limits. */
export const WINDOW_BYTES_MIN = 4 * 1024 * 1024;
/** Beyond this nothing goes faster on a link of 1 Gbit/s, and servers keep as much for replicas that lag. */
export const WINDOW_BYTES_MAX = 16 * 1024 * 1024;
/** A piece that is answered within this may have more beside it. */
const SOON_MS = 500;

/**
 * How many bytes of one file may be under way: few where answers take long, so that each still comes in time, and more
 * where they come soon, so that nobody waits for a server that is busy with something else for a moment.
 */
export class SendWindow {
  #bytesMax = WINDOW_BYTES_MIN;

  get bytesMax(): number {
    return this.#bytesMax;
  }

  /** @param tookMs from when the bytes were sent to their answer, or to when it was given up */
  answered(bytes: number, tookMs: number): void {
    this.#bytesMax =
      tookMs <= SOON_MS
        ? Math.min(WINDOW_BYTES_MAX, this.#bytesMax + bytes)
        : Math.max(WINDOW_BYTES_MIN, this.#bytesMax / 2);
  }
}
