import { LruMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';

/** Uses within this time of each other are one burst, in milliseconds. */
const TOGETHER_MS = 1_000;
const FILES_MAX = 10_000;

/** Counts uses of files in bursts: a file that is used often should have a primary. */
export class Bursts {
  readonly #bursts = new LruMap<FileId, { readonly count: number; readonly lastMs: number }>(FILES_MAX);

  /** @returns the number of uses in the burst, this one included */
  countUse(file: FileId, nowMs: number): number {
    const known = this.#bursts.get(file);
    const count = known !== undefined && nowMs - known.lastMs < TOGETHER_MS ? known.count + 1 : 1;
    this.#bursts.set(file, { count, lastMs: nowMs });
    return count;
  }
}
