import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import type { BackendRange } from '../backend.ts';

/** What is asked for at a time, aligned to it: what a question costs is next to nothing beside what is then read. */
const WINDOW_BYTES = 16 * 1024 * 1024;
/** Windows of one file that are known at a time: whoever reads in sequence needs one and the next. */
const WINDOWS_MAX = 3;
/** One that ends so soon is not begun with. */
const LEFT_MS_MIN = 200;

/** Bytes, and the moment (monotonic, in milliseconds) from which their age counts. */
export interface Fetched {
  readonly bytes: Uint8Array;
  readonly sinceMs: number;
}

export interface WindowSource {
  readonly world: World;
  /** Another one with each change of the contents. */
  readonly generation: number;
  sizeBytes(): number;
  read(offset: number, length: number): Promise<Uint8Array>;
  range(offset: number, length: number): Promise<BackendRange | null>;
}

interface Window {
  readonly generation: number;
  readonly range: Promise<BackendRange | null>;
  /** Infinity while it is being asked for. */
  untilMs: number;
}

/**
 * Reads pieces of a file out of windows, of which the backend knows more cheaply than of each piece; where it knows none, as ever.
 * What one window shows may be older than what was read otherwise meanwhile: whoever does so says it.
 */
export class ReadWindows {
  readonly #source: WindowSource;
  /** By number, in order of last use. */
  readonly #windows = new BoundedMap<number, Window>(WINDOWS_MAX);

  constructor(source: WindowSource) {
    this.#source = source;
  }

  /** @param length of a piece that lies in one window */
  async read(offset: number, length: number): Promise<Fetched> {
    const number = Math.floor(offset / WINDOW_BYTES);
    const range = await this.#window(number).range;
    if (range === null) {
      const bytes = await this.#source.read(offset, length);
      return { bytes, sinceMs: this.#source.world.nowMs() };
    }
    // Asked for while there is still something to read, so that nobody waits for it.
    const isLate = offset + length > (number + 1 / 2) * WINDOW_BYTES;
    if (isLate && (number + 1) * WINDOW_BYTES < this.#source.sizeBytes()) this.#window(number + 1);
    return { bytes: await range.read(offset, length), sinceMs: range.sinceMs };
  }

  /** Something was read that may be newer than what is known: no piece is read of that any more. */
  overtaken(): void {
    this.#windows.clear();
  }

  #window(number: number): Window {
    const { generation } = this.#source;
    const known = this.#windows.get(number);
    const isGood =
      known?.generation === generation && known.untilMs - this.#source.world.nowMs() > LEFT_MS_MIN;
    const window = isGood ? known : this.#ask(number, generation);
    this.#windows.set(number, window);
    return window;
  }

  #ask(number: number, generation: number): Window {
    const range = this.#source.range(number * WINDOW_BYTES, WINDOW_BYTES);
    const window: Window = { generation, range, untilMs: Number.POSITIVE_INFINITY };
    range.then(
      (found) => {
        window.untilMs = found?.untilMs ?? 0;
      },
      // Whoever waits for it hears of the failure.
      () => {
        window.untilMs = 0;
      },
    );
    return window;
  }
}
