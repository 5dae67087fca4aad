import type { FileId } from '../../base/ids.ts';
import type { FileState } from './contents.ts';
import type { IndexGuard } from './index-guard.ts';
import { type Generation, type ObjectRow, stateOf, stateValues } from './index-rows.ts';
import { type IndexStatements, putFileRow } from './index-statements.ts';

/** States that a loss of power may restore, and the objects that only they have. Changed within a commit only. */
export class GenerationRows {
  readonly #statements: IndexStatements;
  readonly #guard: IndexGuard;

  constructor(statements: IndexStatements, guard: IndexGuard) {
    this.#statements = statements;
    this.#guard = guard;
  }

  /** @returns the slots that restorable states refer to, each with the newest generation that does */
  undoSlots(file: FileId): { readonly slot: number; readonly generation: number }[] {
    return this.#guard.read(() => this.#statements.undoSlots.all(file));
  }

  newest(file: FileId): number | null {
    return this.#guard.read(() => this.#statements.generationNewest.get(file) ?? null);
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

  deleteBelow(file: FileId, below: number): void {
    this.#statements.generationDrop.run(file, below);
    this.#statements.undoDrop.run(file, below);
  }

  /** Restores the state of `generation`, which is the file's newest, and deletes the generation. */
  rollBack(file: FileId, generation: Generation): void {
    const { record } = generation.state;
    this.#statements.objectsDeleteSince.run(file, record.installed.counter, record.seq);
    this.#statements.undoRestore.run(file, generation.number);
    putFileRow(this.#statements, file, generation.state);
    this.#statements.generationDelete.run(file, generation.number);
    this.#statements.undoDelete.run(file, generation.number);
  }
}
