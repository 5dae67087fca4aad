import type { World } from '../../base/world.ts';
import type { Moving } from '../../wire/http-api.ts';

/** The rate is that of the last minute, and measured between samples. */
const WINDOW_MS = 60_000;
const SAMPLE_MS = 1_000;
const MS_PER_S = 1_000;
/** Files that `status` lists as moving. */
const CURRENT_MAX = 20;

interface Sample {
  readonly atMs: number;
  readonly files: number;
  readonly bytes: number;
}

/** Counts moves since the last idle moment, and estimates when they end. */
export class MoveProgress {
  readonly #world: Pick<World, 'nowMs'>;
  #files = 0;
  #bytes = 0;
  #failed = 0;
  #samples: Sample[] = [];
  /** Nothing was left to move: the next move begins another count. */
  #isIdle = true;

  constructor(world: Pick<World, 'nowMs'>) {
    this.#world = world;
  }

  get failedCount(): number {
    return this.#failed;
  }

  get movedCount(): number {
    return this.#files;
  }

  begun(): void {
    if (!this.#isIdle) return;
    this.reset();
    this.#isIdle = false;
    this.#sample();
  }

  moved(sizeBytes: number): void {
    this.#files += 1;
    this.#bytes += sizeBytes;
    const last = this.#samples.at(-1);
    if (last === undefined || this.#world.nowMs() - last.atMs >= SAMPLE_MS) this.#sample();
  }

  failed(): void {
    this.#failed += 1;
  }

  idle(): void {
    this.#isIdle = true;
  }

  reset(): void {
    this.#files = 0;
    this.#bytes = 0;
    this.#failed = 0;
    this.#samples = [];
    this.#isIdle = true;
  }

  /** @param filesLeft by the last count. @param current the files that are moving */
  show(filesLeft: number, current: readonly number[]): Moving {
    const left = Math.max(filesLeft, current.length);
    const { filesPerS, bytesPerS } = this.#rates();
    return {
      total: this.#files + left,
      done: this.#files,
      failed: this.#failed,
      current: current.slice(0, CURRENT_MAX),
      currentCount: current.length,
      doneBytes: this.#bytes,
      // The catalog counts files: those left are assumed to be as large as those moved.
      leftBytes: this.#files === 0 ? null : Math.round((left * this.#bytes) / this.#files),
      filesPerS,
      bytesPerS,
      etaS: left === 0 || filesPerS === 0 ? null : Math.ceil(left / filesPerS),
    };
  }

  #rates(): { readonly filesPerS: number; readonly bytesPerS: number } {
    const nowMs = this.#world.nowMs();
    const first = this.#samples.find(({ atMs }) => nowMs - atMs <= WINDOW_MS);
    if (first === undefined || nowMs - first.atMs < SAMPLE_MS) return { filesPerS: 0, bytesPerS: 0 };
    const seconds = (nowMs - first.atMs) / MS_PER_S;
    const round = (value: number): number => Math.round(value * 10) / 10;
    return {
      filesPerS: round((this.#files - first.files) / seconds),
      bytesPerS: Math.round((this.#bytes - first.bytes) / seconds),
    };
  }

  #sample(): void {
    const atMs = this.#world.nowMs();
    this.#samples = this.#samples.filter((sample) => atMs - sample.atMs <= WINDOW_MS);
    this.#samples.push({ atMs, files: this.#files, bytes: this.#bytes });
  }
}
