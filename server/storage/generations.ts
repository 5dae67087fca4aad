import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { GenerationRows } from './generation-rows.ts';
import type { ObjectRow } from './index-rows.ts';

/** The states of one file that a loss of power may restore; see FORMAT.md, "Loss of power". */
export class Generations {
  readonly #file: FileId;
  readonly #rows: GenerationRows;
  /** The generation that changes are recorded against. Its state is the one after `#baseSeq`. */
  #current: number;
  #baseSeq: number;
  /** The index has the generation's state: something was applied since it began. */
  #isStateSaved = false;
  /** The newest generation whose state is known to be synced; −1 for none since the file was loaded. */
  #durable: number;
  /** The index may have generations older than the durable one. */
  #hasOlder: boolean;

  /** @param isNew the index has nothing of the replica yet */
  constructor(file: FileId, rows: GenerationRows, seq: number, isNew: boolean) {
    this.#file = file;
    this.#rows = rows;
    const newest = isNew ? null : rows.newest(file);
    this.#current = newest === null ? 0 : newest + 1;
    this.#durable = newest === null ? 0 : -1;
    this.#hasOlder = newest !== null;
    this.#baseSeq = seq;
  }

  /** @returns the current generation if its state has this version of the object, else null */
  generationWith(row: ObjectRow, installedCounter: number): number | null {
    const isSince = row.versionEpoch === installedCounter && row.versionSeq > this.#baseSeq;
    return isSince ? null : this.#current;
  }

  /**
   * Commits an unsynced change; the state before is kept until the contents are synced.
   * @param commit calls `keep` in its transaction, before all else
   */
  async commitKeepingState(before: FileState, commit: (keep: () => void) => Promise<void>): Promise<void> {
    const saves = !this.#isStateSaved;
    const forgets = saves && this.#hasOlder && this.#durable >= 0;
    await commit(() => {
      if (forgets) this.#rows.deleteBelow(this.#file, this.#durable);
      if (saves) this.#rows.put(this.#file, this.#current, before);
    });
    this.#isStateSaved = true;
    if (forgets) this.#hasOlder = false;
  }

  /** Called in the transaction that replaces the object: keeps it if the current generation's state has it. */
  keepObject(row: ObjectRow, installedCounter: number): void {
    const generation = this.generationWith(row, installedCounter);
    if (generation !== null) this.#rows.putUndo(this.#file, generation, row);
  }

  keepObjects(first: number, last: number, installedCounter: number): void {
    this.#rows.putUndoRange(this.#file, this.#current, first, last, installedCounter, this.#baseSeq);
  }

  /** Called in the transaction that installs a synced state: no older state is restored after it. */
  forgetAll(): void {
    this.#rows.deleteBelow(this.#file, Number.MAX_SAFE_INTEGER);
  }

  /** Before a sync: begins a generation if the current one has changes. @returns the newest; null if it is synced */
  advance(seq: number): number | null {
    if (this.#isStateSaved) this.#next(seq);
    return this.#current > this.#durable ? this.#current : null;
  }

  /** Called once the state of `generation` is synced. @returns false if that, or a later one, already was */
  synced(generation: number): boolean {
    if (generation <= this.#durable) return false;
    this.#durable = generation;
    this.#hasOlder = true;
    return true;
  }

  /** Called once a synced state was installed, with `seq` operations: changes are recorded against that. */
  installed(seq: number): void {
    this.#next(seq);
    this.#durable = this.#current;
    this.#hasOlder = false;
  }

  #next(seq: number): void {
    this.#current++;
    this.#baseSeq = seq;
    this.#isStateSaved = false;
  }
}
