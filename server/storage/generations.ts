import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { GenerationRows } from './generation-rows.ts';
import type { ObjectRow } from './index-rows.ts';

/** One state is kept from before the first unsynced change; see FORMAT.md, "Loss of power". */
export class Generations {
  readonly #file: FileId;
  readonly #rows: GenerationRows;
  /** The generation that changes are recorded against. Its state is the one after `#baseSeq`. */
  #current: number;
  #baseSeq: number;
  /** The index has the generation's state: something was applied since it began. */
  #saved = false;
  /** The newest generation whose state is known to be synced; −1 for none since the file was loaded. */
  #durable: number;
  /** The index may have generations older than the durable one. */
  #olderKept: boolean;

  /** @param isNew the index has nothing of the replica yet */
  constructor(file: FileId, rows: GenerationRows, seq: number, isNew: boolean) {
    this.#file = file;
    this.#rows = rows;
    const newest = isNew ? null : rows.newest(file);
    this.#current = newest === null ? 0 : newest + 1;
    this.#durable = newest === null ? 0 : -1;
    this.#olderKept = newest !== null;
    this.#baseSeq = seq;
  }

  /** @returns the current generation if its state has this version of the object, else null */
  having(row: ObjectRow, installedCounter: number): number | null {
    const isSince = row.versionEpoch === installedCounter && row.versionSeq > this.#baseSeq;
    return isSince ? null : this.#current;
  }

  /**
   * Commits an unsynced change; the state before is kept until the contents are synced.
   * @param commit calls `keep` in its transaction, before all else
   */
  async keeping(before: FileState, commit: (keep: () => void) => Promise<void>): Promise<void> {
    const saves = !this.#saved;
    const forgets = saves && this.#olderKept && this.#durable >= 0;
    await commit(() => {
      if (forgets) this.#rows.drop(this.#file, this.#durable);
      if (saves) this.#rows.put(this.#file, this.#current, before);
    });
    this.#saved = true;
    if (forgets) this.#olderKept = false;
  }

  /** Called in the transaction that replaces the object: keeps it if the current generation's state has it. */
  keepObject(row: ObjectRow, installedCounter: number): void {
    const generation = this.having(row, installedCounter);
    if (generation !== null) this.#rows.putUndo(this.#file, generation, row);
  }

  keepObjects(first: number, last: number, installedCounter: number): void {
    this.#rows.putUndoRange(this.#file, this.#current, first, last, installedCounter, this.#baseSeq);
  }

  /** In the transaction of a state that is synced before it counts: no older state is restored after it. */
  forgetAll(): void {
    this.#rows.drop(this.#file, Number.MAX_SAFE_INTEGER);
  }

  /**
   * Records what is applied from now on against the committed state.
   * @returns the generation of that state, if it is not known to be synced; else null
   */
  advance(seq: number): number | null {
    if (this.#saved) this.#next(seq);
    return this.#current > this.#durable ? this.#current : null;
  }

  synced(generation: number): boolean {
    if (generation <= this.#durable) return false;
    this.#durable = generation;
    this.#olderKept = true;
    return true;
  }

  installed(seq: number): void {
    this.#next(seq);
    this.#durable = this.#current;
    this.#olderKept = false;
  }

  #next(seq: number): void {
    this.#current++;
    this.#baseSeq = seq;
    this.#saved = false;
  }
}
