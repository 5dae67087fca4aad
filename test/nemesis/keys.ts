/** What the clients act on: a few keys at a time, and new ones where old ones have become hard to judge. */

/** Operations of unknown outcome on one key; each of them doubles what a checker has to think of. */
const UNKNOWN_MAX = 6;
/** Appended values, and changes of a file; then reading all of it becomes dear. */
const CHANGES_MAX = 250;
const RENEW_PAUSE_MS = 500;

export type KeyKind = 'object' | 'list' | 'file' | 'entry';

/** What holds keys of one kind: a file with several objects, a list, a file of bytes, or a name. */
export interface Holder {
  readonly kind: KeyKind;
  /** Number of the file; of names, which of them. */
  readonly number: number;
  changes: number;
  unknown: number;
}

export const OBJECT_BYTES = 4096;
export const OBJECTS_PER_FILE = 3;
export const RECORD_BYTES = 16;
/** Files of bytes are changed around the border of two objects. */
export const FILE_LOW = OBJECT_BYTES - 100;
export const FILE_HIGH = OBJECT_BYTES + 100;

/** Makes holders; resolves to null where the servers do not let it for now. */
export type HolderMaker = (kind: KeyKind) => Promise<number | null>;

export class Keys {
  /** All there ever were, for the reads at the end. */
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

  /** Makes the first holders. */
  async fill(): Promise<void> {
    for (const place of this.#kinds.keys()) await this.#renew(place);
    if (this.#active.includes(null)) throw new Error('The servers do not let files be made');
  }

  /** @returns holders of a kind that are in use; at least one */
  of(kind: KeyKind): readonly Holder[] {
    return this.#active.filter((holder) => holder !== null).filter((holder) => holder.kind === kind);
  }

  /** @returns those of them that may be changed further; perhaps none, until there are new ones */
  writable(kind: KeyKind): readonly Holder[] {
    return this.of(kind).filter((holder) => holder.unknown < UNKNOWN_MAX);
  }

  /** Numbers of all files there ever were. */
  files(): readonly number[] {
    return this.all.filter(({ kind }) => kind !== 'entry').map(({ number }) => number);
  }

  /** To be told of every change, so that worn holders are replaced. */
  changed(holder: Holder, isUnknown: boolean): void {
    holder.changes++;
    if (isUnknown) holder.unknown++;
    const limit = holder.kind === 'list' || holder.kind === 'file' ? CHANGES_MAX : Infinity;
    const isWorn = holder.changes >= limit || holder.unknown >= UNKNOWN_MAX;
    const place = this.#active.indexOf(holder);
    if (isWorn && place >= 0) this.#renewLater(place);
  }

  /** In the background, and again and again until the servers let it. */
  #renewLater(place: number): void {
    void this.#renew(place).then((isDone) => {
      if (!isDone && !this.#ended) setTimeout(() => this.#renewLater(place), RENEW_PAUSE_MS).unref();
    });
  }

  /** No more holders are made. */
  end(): void {
    this.#ended = true;
  }

  /** @returns whether there is a new one, or somebody else sees to it */
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
