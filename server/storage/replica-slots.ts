import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import { rowsOf } from './object-rows.ts';
import { SlotMap } from './slot-map.ts';

const TRIM_BYTES_MIN = 16 * 1024 * 1024;

const NOWHERE = { index: -2, slot: -2 };

type SlotIndex = Pick<IndexDatabase, 'objectsUpTo' | 'borrowers' | 'generations' | 'lent'>;

/**
 * Slots of one replica's container. A slot is reused once nothing needs it: neither the committed state, nor an older
 * one that a loss of power may restore, nor a borrower, nor a read in progress.
 */
export class ReplicaSlots {
  readonly #world: World;
  readonly #file: FileId;
  readonly #index: SlotIndex;
  /** The slots in use; null until `load` or `createEmpty`. */
  #map: SlotMap | null = null;
  #lastPlaced = NOWHERE;
  /** End of the slots that were in use since the container was last truncated. */
  #placedEnd = 0;

  /** Slots that only older states refer to, with the newest generation that does. */
  #retired: { readonly slot: number; readonly generation: number }[] = [];
  /** Slots in use to which a generation also refers, with a smaller length. */
  readonly #inOlderState = new Map<number, number>();

  /** Lent slots by borrower, and the number of borrowers of each. Known once `#map` is. */
  readonly #lentTo = new Map<FileId, number[]>();
  readonly #lent = new Map<number, number>();
  /** Lent slots that no state of this file refers to. */
  readonly #onlyLent = new Set<number>();

  /** Slots that reads in progress use, with their number. */
  readonly #pins = new Map<number, number>();
  readonly #freeWhenUnpinned = new Set<number>();
  #nonePinned: (() => void) | null = null;

  constructor(world: World, file: FileId, index: SlotIndex) {
    this.#world = world;
    this.#file = file;
    this.#index = index;
  }

  createEmpty(): void {
    this.#map = new SlotMap();
  }

  async load(): Promise<void> {
    if (this.#map !== null) return;
    const map = new SlotMap();
    for await (const rows of rowsOf(this.#world, this.#index, this.#file)) {
      for (const { slot } of rows) if (slot >= 0) map.take(slot);
    }
    for (const { slot, generation } of this.#index.generations.undoSlots(this.#file)) {
      if (slot < 0) continue;
      if (map.has(slot)) {
        this.#inOlderState.set(slot, generation);
      } else {
        map.take(slot);
        this.#retired.push({ slot, generation });
      }
    }
    for (const borrower of this.#index.borrowers(this.#file)) {
      const slots = this.#index.lent.slots(borrower);
      this.#lend(borrower, slots);
      for (const slot of slots) {
        if (map.has(slot)) continue;
        map.take(slot);
        this.#onlyLent.add(slot);
      }
    }
    this.#map = map;
    this.#placedEnd = map.end;
  }

  get end(): number {
    assert(this.#map !== null, 'A container is truncated once the slots in use are known');
    return this.#map.end;
  }

  // New objects ---------------------------------------------------------------------------------------------------

  /** @returns a free slot; the caller frees it, or commits a state that refers to it */
  takeAny(): number {
    return this.#take(1, -1);
  }

  /**
   * Takes adjacent slots for `count` objects from `index` on, after the previous object's.
   * @param previous the previous object, if it was not placed last
   * @returns the first of them
   */
  takeRun(index: number, count: number, previous: () => ObjectRow | null = () => null): number {
    const last = this.#lastPlaced;
    const preferred = last.index === index - 1 ? last.slot : (previous()?.slot ?? -2);
    const first = this.#take(count, preferred + 1);
    this.#lastPlaced = { index: index + count - 1, slot: first + count - 1 };
    return first;
  }

  /** `takeRun` no longer prefers the slot behind the last one taken. */
  forgetLastPlaced(): void {
    this.#lastPlaced = NOWHERE;
  }

  #take(count: number, near: number): number {
    assert(this.#map !== null, 'The slots in use are known before another is taken');
    const first = this.#map.takeRun(count, near);
    this.#placedEnd = Math.max(this.#placedEnd, this.#map.end);
    return first;
  }

  /** No state of this file refers to the slot: it is free after its loans and reads. One below zero is the lender's. */
  free(slot: number): void {
    if (slot < 0) return;
    if (this.#lent.has(slot)) {
      this.#onlyLent.add(slot);
      return;
    }
    if (this.#pins.has(slot)) this.#freeWhenUnpinned.add(slot);
    else this.#map?.free(slot);
  }

  /** @returns whether enough slots at the end became free for the caller to truncate the container now */
  takeTrim(objectBytes: number): boolean {
    const end = this.#map?.end ?? this.#placedEnd;
    if (end >= this.#placedEnd) return false;
    if (end > 0 && (this.#placedEnd - end) * objectBytes < TRIM_BYTES_MIN) return false;
    this.#placedEnd = end;
    return true;
  }

  // Older states --------------------------------------------------------------------------------------------------

  /** Called after an append in place: `generation` has the shorter object, so `retire` keeps the slot for it. */
  keepForOlder(slot: number, generation: number): void {
    this.#inOlderState.set(slot, generation);
  }

  /** Frees a slot of no use to the committed state once no older one needs it: `generation`'s, or `keepForOlder`'s. */
  retire(slot: number, generation: number | null): void {
    const needed = generation ?? this.#inOlderState.get(slot);
    this.#inOlderState.delete(slot);
    if (needed === undefined) this.free(slot);
    else this.#retired.push({ slot, generation: needed });
  }

  /** No state before this generation is restored any more: frees the slots that only those need. */
  freeOlder(generation: number): void {
    const stillNeeded = [];
    for (const retired of this.#retired) {
      if (retired.generation < generation) this.free(retired.slot);
      else stillNeeded.push(retired);
    }
    this.#retired = stillNeeded;
    for (const [slot, newest] of this.#inOlderState) if (newest < generation) this.#inOlderState.delete(slot);
  }

  freeAllOlder(): void {
    for (const { slot } of this.#retired) this.free(slot);
    this.#retired = [];
    this.#inOlderState.clear();
  }

  // Borrowers -----------------------------------------------------------------------------------------------------

  /** Records loans of slots to a borrower. If the slots are not loaded yet, `load` reads the loans from the index. */
  lend(borrower: FileId, slots: readonly number[]): void {
    if (this.#map !== null) this.#lend(borrower, slots);
  }

  /** Ends all loans to the borrower, whose replica was removed; frees slots that only they kept. */
  endLoans(borrower: FileId): void {
    for (const slot of this.#lentTo.get(borrower) ?? []) {
      const count = (this.#lent.get(slot) as number) - 1;
      if (count > 0) this.#lent.set(slot, count);
      else {
        this.#lent.delete(slot);
        if (this.#onlyLent.delete(slot)) this.free(slot);
      }
    }
    this.#lentTo.delete(borrower);
  }

  #lend(borrower: FileId, slots: readonly number[]): void {
    const lentTo = this.#lentTo.get(borrower) ?? [];
    this.#lentTo.set(borrower, lentTo);
    for (const slot of slots) {
      lentTo.push(slot);
      this.#lent.set(slot, (this.#lent.get(slot) ?? 0) + 1);
    }
  }

  // Reads ---------------------------------------------------------------------------------------------------------

  get pinned(): boolean {
    return this.#pins.size > 0;
  }

  /** Keeps the slots of the rows from being reused until `unpin`. */
  pin(rows: readonly ObjectRow[]): void {
    for (const { slot } of rows) this.#pins.set(slot, (this.#pins.get(slot) ?? 0) + 1);
  }

  unpin(rows: readonly ObjectRow[]): void {
    for (const { slot } of rows) {
      const count = this.#pins.get(slot);
      assert(count !== undefined, 'What is unpinned was pinned');
      if (count > 1) {
        this.#pins.set(slot, count - 1);
        continue;
      }
      this.#pins.delete(slot);
      if (this.#freeWhenUnpinned.delete(slot)) this.#map?.free(slot);
    }
    if (this.#pins.size > 0) return;
    this.#nonePinned?.();
    this.#nonePinned = null;
  }

  async whenUnpinned(): Promise<void> {
    if (this.#pins.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#nonePinned = resolve;
    });
  }
}
