import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { GenerationRows } from './generation-rows.ts';
import type { ObjectRow, PendingRemoval } from './index-rows.ts';

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
  /** A transaction has begun to delete those, and more of their objects are left than one transaction deletes. */
  #hasRest = false;
  readonly #rowsPerSlice: number;

  /** @param isNew the index has nothing of the replica yet */
  constructor(file: FileId, rows: GenerationRows, seq: number, isNew: boolean, rowsPerSlice: number) {
    this.#file = file;
    this.#rows = rows;
    this.#rowsPerSlice = rowsPerSlice;
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
    const durable = this.#durable;
    let hasRest = false;
    await commit(() => {
      if (forgets) hasRest = this.#rows.deleteBelow(this.#file, durable, this.#rowsPerSlice);
      if (saves) this.#rows.put(this.#file, this.#current, before);
    });
    this.#isStateSaved = true;
    if (forgets) this.#noteDeleted(durable, hasRest);
  }

  /** Whether `deleteSlice` has something to do. */
  get hasRest(): boolean {
    return this.#hasRest;
  }

  /** Deletes more objects of generations that are not restored any more. */
  async deleteSlice(commit: (work: () => void) => Promise<void>): Promise<void> {
    const durable = this.#durable;
    let hasRest = false;
    await commit(() => {
      hasRest = this.#rows.deleteBelow(this.#file, durable, this.#rowsPerSlice);
    });
    this.#noteDeleted(durable, hasRest);
  }

  #noteDeleted(below: number, hasRest: boolean): void {
    this.#hasRest = hasRest;
    // A sync that ended meanwhile made the next generation durable.
    this.#hasOlder = hasRest || this.#durable > below;
  }

  /** Called in the transaction that replaces the object: keeps it if the current generation's state has it. */
  keepObject(row: ObjectRow, installedCounter: number): void {
    const generation = this.generationWith(row, installedCounter);
    if (generation !== null) this.#rows.putUndo(this.#file, generation, row);
  }

  keepObjects(first: number, last: number, installedCounter: number): void {
    this.#rows.putUndoRange(this.#file, this.#current, first, last, installedCounter, this.#baseSeq);
  }

  /** @returns the objects `first` to `last` as the current generation's state has them, to be removed in slices */
  removalOf(first: number, last: number, installedCounter: number): PendingRemoval {
    return { first, last, generation: this.#current, epoch: installedCounter, seq: this.#baseSeq };
  }

  /** Called in the transaction that deletes some of these objects. */
  keepRemoved({ generation, epoch, seq }: PendingRemoval, first: number, last: number): void {
    this.#rows.putUndoRange(this.#file, generation, first, last, epoch, seq);
  }

  /** Whether a loss of power may restore the state of this generation. */
  isRestorable(generation: number): boolean {
    return generation >= Math.max(0, this.#durable);
  }

  /** Called in the transaction that installs a synced state: no older state is restored after it. */
  forgetAll(): void {
    this.#hasRest = this.#rows.deleteBelow(this.#file, Number.MAX_SAFE_INTEGER, this.#rowsPerSlice);
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
    this.#hasOlder = this.#hasRest;
  }

  #next(seq: number): void {
    this.#current++;
    this.#baseSeq = seq;
    this.#isStateSaved = false;
  }
}
