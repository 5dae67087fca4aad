import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { IndexGuard } from './index-guard.ts';
import { type Generation, type ObjectRow, stateOf, stateValues, type UndoSlot } from './index-rows.ts';
import { type IndexStatements, putFileRow } from './index-statements.ts';
import { type Committer, commitInSlices, ROWS_PER_SLICE } from './slices.ts';

/** States that a loss of power may restore, and the objects that only they have. Changed within a commit only. */
export class GenerationRows {
  readonly #statements: IndexStatements;
  readonly #guard: IndexGuard;

  constructor(statements: IndexStatements, guard: IndexGuard) {
    this.#statements = statements;
    this.#guard = guard;
  }

  /** The next `countMax` objects of generations, in ascending order of these, after one. */
  undoAfter(file: FileId, generation: number, index: number, countMax: number): UndoSlot[] {
    return this.#guard.read(() => this.#statements.undoAfter.all(file, generation, index, countMax));
  }

  /** The newest generation of which anything is left; null for none. */
  newest(file: FileId): number | null {
    return this.#guard.read(() => {
      const state = this.#statements.generationNewest.get(file) ?? null;
      const object = this.#statements.undoNewest.get(file) ?? null;
      return state === null || object === null ? (state ?? object) : Math.max(state, object);
    });
  }

  all(file: FileId): Generation[] {
    const current = this.#guard.read(() => this.#statements.fileGet.get(file));
    if (current === undefined) return [];
    return this.#guard
      .read(() => this.#statements.generationList.all(file))
      .map((row) => ({
        number: row.generation,
        state: stateOf({ ...current, ...row }),
      }));
  }

  files(): FileId[] {
    return this.#guard.read(() => this.#statements.generationFiles.all() as FileId[]);
  }

  put(file: FileId, generation: number, state: FileState): void {
    this.#statements.generationPut.run(file, generation, ...stateValues(state));
  }

  putUndo(file: FileId, generation: number, row: ObjectRow): void {
    this.#statements.undoPut.run(
      file,
      generation,
      row.index,
      row.versionEpoch,
      row.versionSeq,
      row.length,
      row.crc32,
      row.slot,
    );
  }

  /** Keeps the objects `first` to `last`, but not those written after operation `seq` of the epoch. */
  putUndoRange(
    file: FileId,
    generation: number,
    first: number,
    last: number,
    epochCounter: number,
    seq: number,
  ): void {
    this.#statements.undoPutRange.run(generation, file, first, last, epochCounter, seq);
  }

  /**
   * Deletes the states of generations before `below`, so that none of them is restored any more, and up to `countMax`
   * of their objects. @returns whether objects are left, which later calls delete
   */
  deleteBelow(file: FileId, below: number, countMax: number): boolean {
    this.#statements.generationDrop.run(file, below);
    this.#statements.removalForget.run(file, below);
    const rest = this.#statements.undoSkip.get(file, below, countMax);
    this.#statements.undoDrop.run(file, Math.min(below, rest?.generation ?? below));
    if (rest !== undefined) this.#statements.undoDropBefore.run(file, rest.generation, rest.index);
    return rest !== undefined;
  }

  /** Deletes the generations of these files, whose contents are synced: none is restored any more. */
  async deleteAll(index: Committer, files: readonly FileId[]): Promise<void> {
    const left = [...files];
    await commitInSlices(index, () => {
      for (let count = 0; count < ROWS_PER_SLICE; count++) {
        const file = left.at(-1);
        if (file === undefined) return false;
        if (this.deleteBelow(file, Number.MAX_SAFE_INTEGER, ROWS_PER_SLICE)) return true;
        left.pop();
      }
      return true;
    });
  }

  /**
   * Restores the state of `generation`, which is the file's newest, and deletes the generation. A removal since then
   * has not happened: the rows that it has not deleted yet are part of the state. A removal that no state is older than
   * is completed first: the state may have objects in its range, as that of an installation whose objects came later.
   */
  rollBack(file: FileId, generation: Generation): void {
    const { record } = generation.state;
    this.#statements.removalRestore.run(file, generation.number);
    this.#statements.removalComplete.run(file, file, file);
    this.#statements.removalCompleted.run(file);
    this.#statements.objectsDeleteSince.run(file, record.installed.counter, record.seq);
    this.#statements.undoRestore.run(file, generation.number);
    putFileRow(this.#statements, file, generation.state);
    this.#statements.generationDelete.run(file, generation.number);
    this.#statements.undoDelete.run(file, generation.number);
  }
}
