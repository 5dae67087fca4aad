import type { FileId } from '../../base/ids.ts';
import type { Generations } from './generations.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow, PendingRemoval } from './index-rows.ts';
import type { ReplicaSlots } from './replica-slots.ts';
import type { Slices } from './slices.ts';

export interface RangeRemovalParts {
  readonly file: FileId;
  readonly index: Pick<
    IndexDatabase,
    'commit' | 'deleteObjects' | 'lastRow' | 'putObject' | 'removals' | 'rowsUpTo'
  >;
  readonly slots: Pick<ReplicaSlots, 'load' | 'retire'>;
  readonly generations: Pick<Generations, 'isRestorable' | 'keepRemoved' | 'removalOf'>;
  readonly slices: Slices;
}

/**
 * Removes many objects of a replica. The transaction of the operation only records their range, which reads ignore from
 * then on; slices delete the rows, in ascending order, also after a restart. Until a slice has passed an object, it
 * must not be written.
 */
export class RangeRemoval {
  readonly #parts: RangeRemovalParts;

  constructor(parts: RangeRemovalParts) {
    this.#parts = parts;
  }

  get #pending(): PendingRemoval | null {
    return this.#parts.index.removals.get(this.#parts.file);
  }

  get isPending(): boolean {
    return this.#pending !== null;
  }

  /**
   * Called in the operation's transaction, while none is pending. Reads ignore the objects once `removals` is reloaded,
   * in the tick in which the operation is applied.
   * @param first the first object that has a row
   */
  begin(first: number, last: number, epochCounter: number): void {
    const { file, index, generations } = this.#parts;
    // Objects behind the last one may be written at once.
    index.removals.put(file, generations.removalOf(first, index.lastRow(file, last), epochCounter));
  }

  /**
   * Puts new objects, behind all that are here, as if they were removed: reads ignore them until a transaction deletes
   * the removal, and slices delete them if a restart comes before that.
   * @param owned called once a row has been put, and owns its slot
   */
  async putHidden(rows: readonly ObjectRow[], owned: (row: ObjectRow) => void): Promise<void> {
    const { file, index, slices } = this.#parts;
    const first = index.lastRow(file, Number.MAX_SAFE_INTEGER) + 1;
    const last = rows.reduce((highest, row) => Math.max(highest, row.index), first);
    await index.commit(() => index.removals.put(file, { first, last, generation: -1, epoch: 0, seq: 0 }));
    index.removals.reload(file);
    for (let at = 0; at < rows.length; at += slices.rowsMax) {
      const some = rows.slice(at, at + slices.rowsMax);
      const putSome = (): void => {
        for (const row of some) index.putObject(file, row);
      };
      await slices.run(() => index.commit(putSome));
      for (const row of some) owned(row);
    }
  }

  /** Deletes rows until none of the objects `first` to `last` has one that is removed. */
  async finish(first = 0, last = Number.MAX_SAFE_INTEGER): Promise<void> {
    for (;;) {
      const pending = this.#pending;
      if (pending === null || last < pending.first || first > pending.last) return;
      await this.slice();
    }
  }

  /** Deletes the next rows; their slots are free once no older state needs them. */
  slice(): Promise<void> {
    return this.#parts.slices.run(async () => {
      const { file, index, slots, generations, slices } = this.#parts;
      await slots.load();
      const pending = this.#pending;
      if (pending === null) return;
      const { first, last, generation, epoch, seq } = pending;
      const rows = index.rowsUpTo(file, first, last, slices.rowsMax);
      const end = rows.length < slices.rowsMax ? last : (rows.at(-1)?.index ?? last);
      const isKept = generations.isRestorable(generation);
      await index.commit(() => {
        if (isKept) generations.keepRemoved(pending, first, end);
        index.deleteObjects(file, first, end);
        if (end === last) index.removals.delete(file);
        else index.removals.put(file, { ...pending, first: end + 1, generation: isKept ? generation : -1 });
      });
      index.removals.reload(file);
      // A sync may have ended meanwhile.
      const isNeeded = generations.isRestorable(generation);
      for (const { slot, versionEpoch, versionSeq } of rows) {
        const isLater = versionEpoch === epoch && versionSeq > seq;
        slots.retire(slot, isNeeded && !isLater ? generation : null);
      }
    });
  }
}
