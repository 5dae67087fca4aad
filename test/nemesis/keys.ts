/** The keys that clients use: a few at a time, and new ones once old ones have become hard to judge. */

/** Of operations with an unknown outcome on one key: each doubles the states that a checker must consider. */
const UNKNOWN_MAX = 6;
/** Of appended values, or changes of a file; beyond it a read of all of it becomes slow. */
const CHANGES_MAX = 250;
const RENEW_PAUSE_MS = 500;

export type KeyKind = 'object' | 'list' | 'file' | 'entry';

/** Has keys of one kind: a file with several objects, a list, a file of bytes, or a name. */
export interface Holder {
  readonly kind: KeyKind;
  /** The number of the file, or of the name. */
  readonly number: number;
  changes: number;
  unknown: number;
}

export const OBJECT_BYTES = 4096;
export const OBJECTS_PER_FILE = 3;
export const RECORD_BYTES = 16;
/** Files of bytes are changed around the boundary of two objects. */
export const FILE_LOW = OBJECT_BYTES - 100;
export const FILE_HIGH = OBJECT_BYTES + 100;

/** Creates a holder and resolves to its number, or to null if the servers refuse at the moment. */
export type HolderMaker = (kind: KeyKind) => Promise<number | null>;

export class Keys {
  /** All that were ever in use, for the reads at the end. */
  readonly all: Holder[] = [];
  readonly #active: (Holder | null)[];
  readonly #kinds: readonly KeyKind[];
  readonly #make: HolderMaker;
  readonly #making = new Set<number>();
  #ended = false;

  /** @param kinds one for each holder that is in use at a time */
  constructor(kinds: readonly KeyKind[], make: HolderMaker) {
    this.#kinds = kinds;
    this.#active = kinds.map(() => null);
    this.#make = make;
  }

  /** Creates the first holders. */
  async fill(): Promise<void> {
    for (const place of this.#kinds.keys()) await this.#renew(place);
    if (this.#active.includes(null)) throw new Error('The servers do not let files be made');
  }

  /** @returns holders of a kind that are in use; at least one */
  of(kind: KeyKind): readonly Holder[] {
    return this.#active.filter((holder) => holder !== null).filter((holder) => holder.kind === kind);
  }

  /** @returns those that clients may change; none if all wait for their replacement */
  writable(kind: KeyKind): readonly Holder[] {
    return this.of(kind).filter((holder) => holder.unknown < UNKNOWN_MAX);
  }

  /** @returns the numbers of all files that were ever in use */
  files(): readonly number[] {
    return this.all.filter(({ kind }) => kind !== 'entry').map(({ number }) => number);
  }

  /** Counts a change of a holder, and replaces it after too many. Call it after each change. */
  changed(holder: Holder, isUnknown: boolean): void {
    holder.changes++;
    if (isUnknown) holder.unknown++;
    const limit = holder.kind === 'list' || holder.kind === 'file' ? CHANGES_MAX : Infinity;
    const isWorn = holder.changes >= limit || holder.unknown >= UNKNOWN_MAX;
    const place = this.#active.indexOf(holder);
    if (isWorn && place >= 0) this.#renewLater(place);
  }

  /** Replaces a holder in the background; repeats until it succeeds. */
  #renewLater(place: number): void {
    void this.#renew(place).then((isDone) => {
      if (!isDone && !this.#ended) setTimeout(() => this.#renewLater(place), RENEW_PAUSE_MS).unref();
    });
  }

  /** Stops replacing holders. */
  end(): void {
    this.#ended = true;
  }

  /** @returns whether there is a new one, or another call creates it */
  async #renew(place: number): Promise<boolean> {
    if (this.#making.has(place)) return true;
    this.#making.add(place);
    const kind = this.#kinds[place] as KeyKind;
    const number = await this.#make(kind);
    this.#making.delete(place);
    if (number === null) return false;
    const holder = { kind, number, changes: 0, unknown: 0 };
    this.#active[place] = holder;
    this.all.push(holder);
    return true;
  }
}
