import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import type { BackendRange } from '../backend.ts';

/** Size of a window, aligned to it: the cost of its request is small compared with reading so much. */
const WINDOW_BYTES = 16 * 1024 * 1024;
const WINDOWS_MAX = 3;
/** A window that ends sooner is not used. */
const LEFT_MS_MIN = 200;

/** Bytes, and since when their age counts (monotonic, in milliseconds). */
export interface Fetched {
  readonly bytes: Uint8Array;
  readonly sinceMs: number;
}

export interface WindowSource {
  readonly world: World;
  readonly contentsGeneration: number;
  sizeBytes(): number;
  read(offset: number, length: number): Promise<Uint8Array>;
  range(offset: number, length: number): Promise<BackendRange | null>;
}

interface Window {
  readonly contentsGeneration: number;
  readonly range: Promise<BackendRange | null>;
  /** Until when it may be read; Infinity during the request, which later reads share. */
  untilMs: number;
}

/** Reads through windows: one request finds where a window's bytes are on a disk of this machine, for many reads. */
export class ReadWindows {
  readonly #source: WindowSource;
  readonly #windows = new BoundedMap<number, Window>(WINDOWS_MAX);

  constructor(source: WindowSource) {
    this.#source = source;
  }

  /** Reads a piece, which must be within one window. */
  async read(offset: number, length: number): Promise<Fetched> {
    const index = Math.floor(offset / WINDOW_BYTES);
    const range = await this.#windowAt(index).range;
    if (range === null) {
      const bytes = await this.#source.read(offset, length);
      return { bytes, sinceMs: this.#source.world.nowMs() };
    }
    // Requested early, so that no read waits for it.
    const isLate = offset + length > (index + 1 / 2) * WINDOW_BYTES;
    if (isLate && (index + 1) * WINDOW_BYTES < this.#source.sizeBytes()) this.#windowAt(index + 1);
    return { bytes: await range.read(offset, length), sinceMs: range.sinceMs };
  }

  /** Drops all windows. Must be called after bytes were read otherwise, which may be newer. */
  invalidate(): void {
    this.#windows.clear();
  }

  /** @returns the cached window if it is of these contents and lasts `LEFT_MS_MIN`; else a new one, being located */
  #windowAt(index: number): Window {
    const { contentsGeneration } = this.#source;
    const known = this.#windows.get(index);
    const isGood =
      known?.contentsGeneration === contentsGeneration &&
      known.untilMs - this.#source.world.nowMs() > LEFT_MS_MIN;
    const window = isGood ? known : this.#locateWindow(index, contentsGeneration);
    this.#windows.set(index, window);
    return window;
  }

  #locateWindow(index: number, contentsGeneration: number): Window {
    const range = this.#source.range(index * WINDOW_BYTES, WINDOW_BYTES);
    const window: Window = { contentsGeneration, range, untilMs: Number.POSITIVE_INFINITY };
    range.then(
      (found) => {
        window.untilMs = found?.untilMs ?? 0;
      },
      // Reads that wait for it get the failure.
      () => {
        window.untilMs = 0;
      },
    );
    return window;
  }
}
