import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import { rowsOf } from './object-rows.ts';
import { SlotMap } from './slot-map.ts';
import { SlotSet, slotsOf } from './slot-set.ts';

const TRIM_BYTES_MIN = 16 * 1024 * 1024;

const NOWHERE = { index: -2, slot: -2 };

const UNDO_PER_TICK = 2_000;

type SlotIndex = Pick<IndexDatabase, 'rowsUpTo' | 'borrowers' | 'generations'>;

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

  /** Slots that only older states refer to, by the newest generation that does. */
  readonly #retired = new Map<number, SlotSet>();
  /** Slots in use to which a generation also refers, with a smaller length. */
  readonly #inOlderState = new Map<number, number>();

  /** Lent slots by borrower. Known once `#map` is. */
  readonly #lentTo = new Map<FileId, SlotSet>();
  /** Lent slots that no state of this file refers to. */
  readonly #onlyLent = new SlotSet();
  /** Borrowers that were removed since `load` began, while it is in progress. */
  #endedWhileLoading: Set<FileId> | null = null;

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
    const ended = new Set<FileId>();
    this.#endedWhileLoading = ended;
    const map = new SlotMap();
    const rowsUpTo = this.#index.rowsUpTo.bind(this.#index);
    for await (const rows of rowsOf(this.#world, { objectsUpTo: rowsUpTo }, this.#file)) {
      for (const { slot } of rows) if (slot >= 0) map.take(slot);
    }
    await this.#loadOlder(map);
    for (const borrower of this.#index.borrowers(this.#file)) {
      for await (const rows of rowsOf(this.#world, { objectsUpTo: rowsUpTo }, borrower)) {
        for (const row of rows) {
          if (row.slot >= 0) continue;
          const slot = -1 - row.slot;
          this.#lendTo(borrower).add(slot);
          if (map.has(slot)) continue;
          map.take(slot);
          this.#onlyLent.add(slot);
        }
      }
    }
    this.#map = map;
    this.#placedEnd = map.end;
    this.#endedWhileLoading = null;
    for (const borrower of ended) this.endLoans(borrower);
  }

  /** Takes the slots that generations refer to, in the order of these: the newest one of each slot counts. */
  async #loadOlder(map: SlotMap): Promise<void> {
    let last = { generation: -1, index: -1 };
    for (;;) {
      const { generation, index } = last;
      const some = this.#index.generations.undoAfter(this.#file, generation, index, UNDO_PER_TICK);
      for (const { slot, generation: newest } of some) if (slot >= 0) this.#takeOlder(map, slot, newest);
      if (some.length < UNDO_PER_TICK) return;
      last = some.at(-1) ?? last;
      await this.#world.nextTick();
    }
  }

  #takeOlder(map: SlotMap, slot: number, generation: number): void {
    let isRetired = false;
    for (const slots of this.#retired.values()) if (slots.delete(slot)) isRetired = true;
    if (!isRetired && map.has(slot)) {
      this.#inOlderState.set(slot, generation);
      return;
    }
    if (!isRetired) map.take(slot);
    this.#retiredBy(generation).add(slot);
  }

  #retiredBy(generation: number): SlotSet {
    const known = this.#retired.get(generation);
    if (known !== undefined) return known;
    const slots = new SlotSet();
    this.#retired.set(generation, slots);
    return slots;
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
    const bit = 1 << (slot & 31);
    this.#freeWord(slot >>> 5, bit, this.#pins.has(slot) ? bit : 0);
  }

  #freeAll(slots: SlotSet): void {
    const pinned = new SlotSet();
    for (const slot of this.#pins.keys()) if (slot >= 0) pinned.add(slot);
    for (let at = 0; at < slots.length; at++) this.#freeWord(at, slots.word(at), pinned.word(at));
  }

  /** As `free`, for slots of a word of a `SlotSet`: a million of them take a few milliseconds. */
  #freeWord(at: number, bits: number, pinnedBits: number): void {
    if (bits === 0) return;
    const lentBits = bits & this.#lentWord(at);
    this.#onlyLent.addWord(at, lentBits);
    const waiting = bits & ~lentBits & pinnedBits;
    for (const slot of slotsOf(at, waiting)) this.#freeWhenUnpinned.add(slot);
    this.#map?.freeWord(at, bits & ~lentBits & ~waiting);
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
    if (slot < 0) return;
    const needed = generation ?? this.#inOlderState.get(slot);
    this.#inOlderState.delete(slot);
    if (needed === undefined) this.free(slot);
    else this.#retiredBy(needed).add(slot);
  }

  /** No state before this generation is restored any more: frees the slots that only those need. */
  freeOlder(generation: number): void {
    for (const [retired, slots] of this.#retired) {
      if (retired >= generation) continue;
      this.#retired.delete(retired);
      this.#freeAll(slots);
    }
    for (const [slot, newest] of this.#inOlderState) if (newest < generation) this.#inOlderState.delete(slot);
  }

  freeAllOlder(): void {
    for (const slots of this.#retired.values()) this.#freeAll(slots);
    this.#retired.clear();
    this.#inOlderState.clear();
  }

  // Borrowers -----------------------------------------------------------------------------------------------------

  /** Records loans of slots to a borrower. If the slots are not loaded yet, `load` reads the loans from the index. */
  lend(borrower: FileId, slots: readonly number[]): void {
    if (this.#map === null) return;
    const lent = this.#lendTo(borrower);
    for (const slot of slots) lent.add(slot);
  }

  /** Ends all loans to the borrower, whose replica was removed; frees slots that only they kept. */
  endLoans(borrower: FileId): void {
    if (this.#map === null) {
      this.#endedWhileLoading?.add(borrower);
      return;
    }
    const lent = this.#lentTo.get(borrower);
    if (lent === undefined) return;
    this.#lentTo.delete(borrower);
    const ended = new SlotSet();
    for (let at = 0; at < lent.length; at++) {
      const bits = lent.word(at) & this.#onlyLent.word(at) & ~this.#lentWord(at);
      if (bits === 0) continue;
      this.#onlyLent.deleteWord(at, bits);
      ended.addWord(at, bits);
    }
    this.#freeAll(ended);
  }

  #lendTo(borrower: FileId): SlotSet {
    const known = this.#lentTo.get(borrower);
    if (known !== undefined) return known;
    const slots = new SlotSet();
    this.#lentTo.set(borrower, slots);
    return slots;
  }

  /** Slots of the word that any borrower has. */
  #lentWord(at: number): number {
    let bits = 0;
    for (const slots of this.#lentTo.values()) bits |= slots.word(at);
    return bits;
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
