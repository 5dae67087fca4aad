import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import { crc32Of } from './checksum.ts';
import type { Chunk, Container, Containers } from './container.ts';
import { bytesWithout, type Removed, removedWithin } from './contents.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import type { DraftOutcome, ObjectDraft } from './object-draft.ts';
import { entryOf, type Mend, readSoundRow } from './object-rows.ts';
import type { ReplicaSlots } from './replica-slots.ts';
import type { FetchedObject } from './store.ts';

interface ObjectWriterOptions {
  readonly file: FileId;
  readonly objectBytes: number;
  readonly index: Pick<IndexDatabase, 'object'>;
  readonly containers: Containers;
  readonly slots: ReplicaSlots;
  readonly mend: Mend;
}

/** Writes into free slots. The caller commits the returned rows, or frees their slots; a failed write frees them. */
export class ObjectWriter {
  readonly #options: ObjectWriterOptions;

  constructor(options: ObjectWriterOptions) {
    this.#options = options;
  }

  /** Writes the drafts. @param epoch counter of their operations' epoch @returns their rows, in the same order */
  async write(drafts: readonly ObjectDraft[], epoch: number): Promise<ObjectRow[]> {
    if (drafts.length === 0) return [];
    await this.#options.slots.load();
    return this.#use((container) => this.#writeTo(container, drafts, epoch));
  }

  /** As `write`, for a new replica, which has no container yet; the new container stays unsynced. */
  async writeFirst(drafts: readonly ObjectDraft[], epoch: number): Promise<ObjectRow[]> {
    const { containers, file, slots } = this.#options;
    slots.createEmpty();
    return this.#writeDrafts([], drafts, epoch, (chunks) => containers.writeOnce(file, chunks));
  }

  /**
   * Writes whole objects with the versions of their entries.
   * @param slotOf takes a slot for the object of an index
   * @returns their rows, in the same order
   */
  async add(objects: readonly FetchedObject[], slotOf: (index: number) => number): Promise<ObjectRow[]> {
    const { objectBytes, slots } = this.#options;
    await slots.load();
    const rows = objects.map(({ entry }): ObjectRow => ({ ...entryOf(entry), slot: slotOf(entry.index) }));
    try {
      await this.#use((container) =>
        container.write(
          rows.map(({ slot, length }, at) => ({
            position: slot * objectBytes,
            buffers: [(objects[at] as FetchedObject).bytes],
            byteCount: length,
          })),
        ),
      );
      return rows;
    } catch (error) {
      for (const { slot } of rows) slots.free(slot);
      throw error;
    }
  }

  /** Removes a byte range of the file from these objects. @returns each changed one before and after; null if empty */
  async clear(
    indexes: readonly number[],
    removed: Removed,
    epoch: number,
    seq: number,
  ): Promise<(readonly [ObjectRow, ObjectRow | null])[]> {
    const { file, objectBytes, slots } = this.#options;
    await slots.load();
    const changes: (readonly [ObjectRow, ObjectRow | null])[] = [];
    try {
      for (const index of indexes) {
        const row = this.#options.index.object(file, index);
        if (row === null) continue;
        const part = removedWithin(removed, index, row.length, objectBytes);
        if (part.from >= part.to) continue;
        if (part.from === 0 && part.to === row.length) changes.push([row, null]);
        else changes.push([row, await this.#copyWithout(row, part, epoch, seq)]);
      }
    } catch (error) {
      for (const [, after] of changes) if (after !== null) slots.free(after.slot);
      throw error;
    }
    return changes;
  }

  /**
   * Copies an object without some bytes to a new slot. In the old slot, zeros or, after a truncation, the next append
   * would overwrite bytes to which the synced state may still refer.
   */
  #copyWithout(row: ObjectRow, part: Removed, versionEpoch: number, versionSeq: number): Promise<ObjectRow> {
    const { file, objectBytes, slots, mend } = this.#options;
    return this.#use(async (container) => {
      const whole = await readSoundRow(mend, container, file, row, objectBytes);
      const bytes = bytesWithout(whole, part);
      const { length } = bytes;
      const slot = slots.takeAny();
      try {
        await container.write([{ position: slot * objectBytes, buffers: [bytes], byteCount: length }]);
      } catch (error) {
        slots.free(slot);
        throw error;
      }
      return { index: row.index, versionEpoch, versionSeq, length, crc32: crc32Of([bytes]), slot };
    });
  }

  async #use<Result>(work: (container: Container) => Promise<Result>): Promise<Result> {
    const done = await this.#options.containers.use(this.#options.file, true, work);
    assert(done !== null, 'The container was created');
    return done;
  }

  /** Writes the drafts after reading the objects of which they keep a part, which repairs damaged ones. */
  async #writeTo(container: Container, drafts: readonly ObjectDraft[], epoch: number): Promise<ObjectRow[]> {
    const { file, objectBytes, mend } = this.#options;
    const bases = await Promise.all(
      drafts.map((draft) =>
        draft.needsBase ? readSoundRow(mend, container, file, draft.base as ObjectRow, objectBytes) : null,
      ),
    );
    return this.#writeDrafts(bases, drafts, epoch, (chunks) => container.write(chunks));
  }

  async #writeDrafts(
    bases: readonly (Uint8Array | null)[],
    drafts: readonly ObjectDraft[],
    epoch: number,
    write: (chunks: readonly Chunk[]) => Promise<void>,
  ): Promise<ObjectRow[]> {
    const { objectBytes, slots } = this.#options;
    const outcomes = drafts.map((draft, at) => draft.finish(bases[at] ?? null));
    const placed = this.#takeSlots(drafts, outcomes);
    try {
      const writing = write(
        outcomes.map((outcome, at) => {
          const begin = outcome.kind === 'append' ? (drafts[at]?.base?.length ?? 0) : 0;
          return {
            position: (placed[at] as number) * objectBytes + begin,
            buffers: outcome.buffers,
            byteCount: outcome.length - begin,
          } satisfies Chunk;
        }),
      );
      // Computed while the thread pool writes.
      const rows = drafts.map((draft, at) => {
        const outcome = outcomes[at] as DraftOutcome;
        return {
          index: draft.index,
          versionEpoch: epoch,
          versionSeq: draft.seq,
          length: outcome.length,
          crc32: draft.checksum(),
          slot: placed[at] as number,
        } satisfies ObjectRow;
      });
      await writing;
      return rows;
    } catch (error) {
      for (const [at, outcome] of outcomes.entries()) {
        if (outcome.kind === 'fresh') slots.free(placed[at] as number);
      }
      throw error;
    }
  }

  /** Takes a slot for every fresh draft, adjacent ones for adjacent objects. Appends stay where they are. */
  #takeSlots(drafts: readonly ObjectDraft[], outcomes: readonly DraftOutcome[]): number[] {
    const { file, index, slots } = this.#options;
    const placed: number[] = [];
    let at = 0;
    while (at < drafts.length) {
      const draft = drafts[at] as ObjectDraft;
      if (outcomes[at]?.kind === 'append') {
        placed.push((draft.base as ObjectRow).slot);
        at++;
        continue;
      }
      let count = 1;
      while (outcomes[at + count]?.kind === 'fresh' && drafts[at + count]?.index === draft.index + count)
        count++;
      const first = slots.takeRun(draft.index, count, () =>
        draft.base === null && draft.index > 0 ? index.object(file, draft.index - 1) : null,
      );
      for (let slot = first; slot < first + count; slot++) placed.push(slot);
      at += count;
    }
    return placed;
  }
}
