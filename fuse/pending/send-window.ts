/** A link of 10 Mbit/s still answers each request for these bytes within the usual time limits. */
export const WINDOW_BYTES_MIN = 4 * 1024 * 1024;
/** More makes a link of 1 Gbit/s no faster; servers keep the same for lagging replicas. */
export const WINDOW_BYTES_MAX = 16 * 1024 * 1024;
/** After an answer within this time the window grows. */
const SOON_MS = 500;

/**
 * How many bytes of one file may be in flight: few while answers are slow, so that each arrives in time, else more, so
 * that a briefly busy server delays no program.
 */
export class SendWindow {
  #bytesMax = WINDOW_BYTES_MIN;

  get bytesMax(): number {
    return this.#bytesMax;
  }

  answered(bytes: number, tookMs: number): void {
    this.#bytesMax =
      tookMs <= SOON_MS
        ? Math.min(WINDOW_BYTES_MAX, this.#bytesMax + bytes)
        : Math.max(WINDOW_BYTES_MIN, this.#bytesMax / 2);
  }
}
