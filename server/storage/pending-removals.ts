import type { FileId } from '../../base/ids.ts';
import type { IndexGuard } from './index-guard.ts';
import type { PendingRemoval } from './index-rows.ts';
import type { IndexStatements } from './index-statements.ts';

/** The pending removals of all files, at most one each. */
export class PendingRemovals {
  readonly #statements: IndexStatements;
  readonly #guard: IndexGuard;
  readonly #byFile = new Map<FileId, PendingRemoval>();

  constructor(statements: IndexStatements, guard: IndexGuard) {
    this.#statements = statements;
    this.#guard = guard;
    this.reloadAll();
  }

  get(file: FileId): PendingRemoval | null {
    return this.#byFile.get(file) ?? null;
  }

  files(): FileId[] {
    return [...this.#byFile.keys()];
  }

  /** Called after each commit that may have changed the file's: reads then follow the index. */
  reload(file: FileId): void {
    const removal = this.#guard.read(() => this.#statements.removalGet.get(file));
    if (removal === undefined) this.#byFile.delete(file);
    else this.#byFile.set(file, removal);
  }

  /** As `reload`, for all files. */
  reloadAll(): void {
    const rows = this.#guard.read(() => this.#statements.removalList.all());
    this.#byFile.clear();
    for (const { file, ...removal } of rows) this.#byFile.set(file as FileId, removal);
  }

  /** @returns `first` to `last` without the objects that are removed */
  visible(file: FileId, first: number, last: number): readonly (readonly [number, number])[] {
    const removal = this.#byFile.get(file);
    if (removal === undefined || last < removal.first || first > removal.last) return [[first, last]];
    const parts: (readonly [number, number])[] = [];
    if (first < removal.first) parts.push([first, removal.first - 1]);
    if (last > removal.last) parts.push([removal.last + 1, last]);
    return parts;
  }

  // Changes, within `commit` only -------------------------------------------------------------------------

  put(file: FileId, { first, last, generation, epoch, seq }: PendingRemoval): void {
    this.#statements.removalPut.run(file, first, last, generation, epoch, seq);
  }

  delete(file: FileId): void {
    this.#statements.removalDelete.run(file);
  }
}
