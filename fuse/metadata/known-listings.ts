import { Sequencer } from '../../base/sequencer.ts';
import type { World } from '../../base/world.ts';
import type { ListedPage, NodeKind } from '../backend.ts';
import type { NamePlace } from '../transport.ts';
import { namesCompare } from './name-order.ts';

/** Directories whose last listing is remembered. */
const DIRECTORIES_MAX = 64;

export interface ListedName {
  readonly name: string;
  readonly inode: number;
  readonly kind: NodeKind;
}

/** What a name stands for after a change made here; null: for nothing. */
export interface NameChange {
  readonly place: NamePlace;
  readonly now: Omit<ListedName, 'name'> | null;
}

interface Known {
  /** All of the directory, in the order of names. */
  readonly entries: readonly ListedName[];
  /** Sequence number of the request, in milliseconds. */
  readonly requestedAt: number;
}

/**
 * Directories as they were listed a moment ago, with the names that were changed here since. They are valid only while no other
 * client changes the directory. The outcome of a change here is known if no other change of the directory is under way beside it.
 */
export class KnownListings {
  readonly #world: World;
  readonly #ageMaxMs: number;
  readonly #isDelegated: (directory: number) => boolean;
  /** The latest last. */
  readonly #known = new Map<number, Known>();
  /** Own changes of names, by directory. */
  readonly #sequencer: Sequencer<number>;

  /**
   * @param ageMaxMs how long a listing is valid after its request; 0: never
   * @param isDelegated whether no other client changes the directory now
   */
  constructor(world: World, ageMaxMs: number, isDelegated: (directory: number) => boolean) {
    this.#world = world;
    this.#ageMaxMs = ageMaxMs;
    this.#isDelegated = isDelegated;
    this.#sequencer = new Sequencer(() => world.nowMs());
  }

  /** @see Sequencer.request */
  request(): number {
    return this.#sequencer.request();
  }

  /** @returns all entries, in the order of names; undefined where they are not known */
  of(directory: number): readonly ListedName[] | undefined {
    const known = this.#current(directory);
    return known !== undefined && this.#isDelegated(directory) ? known.entries : undefined;
  }

  /** @param page all of the directory. @param requestedAt sequence number of the request */
  learn(directory: number, { entries }: ListedPage, requestedAt: number): void {
    if (this.#ageMaxMs === 0 || !this.#sequencer.isValid(requestedAt, directory)) return;
    this.#known.delete(directory);
    const names = entries.map(({ name, attributes: { inode, kind } }) => ({ name, inode, kind }));
    this.#known.set(directory, { entries: names, requestedAt });
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= DIRECTORIES_MAX) break;
      this.#known.delete(oldest);
    }
  }

  /** Names may have changed: the delegation began or ended, or the outcome of an own change is unknown. */
  forget(directory: number): void {
    this.#known.delete(directory);
    this.#sequencer.changed(directory);
  }

  /**
   * A change of names by this mount.
   *
   * @param places all names that it may change
   * @param after the names that it has changed; null where that is unknown
   */
  async changing<Result>(
    places: readonly NamePlace[],
    change: () => Promise<Result>,
    after: (result: Result) => readonly NameChange[] | null,
  ): Promise<Result> {
    const directories = new Set(places.map(({ parent }) => parent));
    for (const directory of directories) this.#began(directory);
    let changes: readonly NameChange[] | null = null;
    try {
      const result = await change();
      changes = after(result);
      return result;
    } finally {
      for (const directory of directories) this.#ended(directory, changes);
    }
  }

  /** @returns what a name stands for; undefined where that is not known, or it is free */
  entry({ parent, name }: NamePlace): ListedName | undefined {
    return this.of(parent)?.find((entry) => entry.name === name);
  }

  #current(directory: number): Known | undefined {
    const known = this.#known.get(directory);
    if (known === undefined || this.#world.nowMs() - known.requestedAt <= this.#ageMaxMs) return known;
    this.#known.delete(directory);
    return undefined;
  }

  #began(directory: number): void {
    // Of two at a time it is unknown which the cluster has executed first.
    if (this.#sequencer.changing(directory) > 0) this.forget(directory);
    this.#sequencer.begin(directory);
  }

  #ended(directory: number, changes: readonly NameChange[] | null): void {
    this.#sequencer.end(directory);
    const known = this.#current(directory);
    if (known === undefined || changes === null) {
      this.forget(directory);
      return;
    }
    let { entries } = known;
    for (const { place, now } of changes)
      if (place.parent === directory) entries = changed(entries, place.name, now);
    this.#known.set(directory, { ...known, entries });
  }
}

function changed(
  entries: readonly ListedName[],
  name: string,
  now: NameChange['now'],
): readonly ListedName[] {
  const [place, isThere] = placeOf(entries, name);
  const replacement = now === null ? [] : [{ name, inode: now.inode, kind: now.kind }];
  return entries.toSpliced(place, isThere ? 1 : 0, ...replacement);
}

/** @returns where the name is, or would be, and whether it is */
function placeOf(entries: readonly ListedName[], name: string): readonly [number, boolean] {
  let [from, to] = [0, entries.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    const order = namesCompare(entries[middle]?.name ?? '', name);
    if (order === 0) return [middle, true];
    if (order < 0) from = middle + 1;
    else to = middle;
  }
  return [from, false];
}
