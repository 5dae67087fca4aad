import { Counts } from '../../base/counts.ts';
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
  /** When it was asked for. */
  readonly askedMs: number;
}

/** A question for the names of a directory. */
export interface Asked {
  readonly directory: number;
  readonly askedMs: number;
  /** Names were changed here since: whether the answer has them is not known. */
  isPast: boolean;
}

/**
 * Directories as they were listed a moment ago, with what was changed in them here since. They are true of those alone that nobody else
 * changes: what a change here leaves is known then, as long as no other one of the same directory is under way beside it.
 */
export class KnownListings {
  readonly #world: World;
  readonly #ageMaxMs: number;
  readonly #isHeld: (directory: number) => boolean;
  /** Those that were listed last at the end. */
  readonly #known = new Map<number, Known>();
  readonly #asked = new Set<Asked>();
  /** Directories with changes of names under way, and how many. */
  readonly #changing = new Counts<number>();

  /**
   * @param ageMaxMs nothing is told that was asked for longer ago, in milliseconds; 0: nothing is known
   * @param isHeld whether nobody else changes the directory
   */
  constructor(world: World, ageMaxMs: number, isHeld: (directory: number) => boolean) {
    this.#world = world;
    this.#ageMaxMs = ageMaxMs;
    this.#isHeld = isHeld;
  }

  /** @returns all entries, in the order of names; undefined where they are not known */
  of(directory: number): readonly ListedName[] | undefined {
    const known = this.#current(directory);
    return known !== undefined && this.#isHeld(directory) ? known.entries : undefined;
  }

  /** All of a directory is about to be asked for: `heard` or `unheard` follows. */
  asking(directory: number): Asked {
    const asked = { directory, askedMs: this.#world.nowMs(), isPast: this.#changing.has(directory) };
    this.#asked.add(asked);
    return asked;
  }

  heard(asked: Asked, { entries }: ListedPage): void {
    this.unheard(asked);
    const { directory, askedMs, isPast } = asked;
    if (isPast || this.#ageMaxMs === 0) return;
    this.#known.delete(directory);
    const names = entries.map(({ name, attributes: { inode, kind } }) => ({ name, inode, kind }));
    this.#known.set(directory, { entries: names, askedMs });
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= DIRECTORIES_MAX) break;
      this.#known.delete(oldest);
    }
  }

  unheard(asked: Asked): void {
    this.#asked.delete(asked);
  }

  /** Names of the directory may have changed: it came to be held, is no more, or it is not known what became of a change. */
  forget(directory: number): void {
    this.#known.delete(directory);
    for (const asked of this.#asked) if (asked.directory === directory) asked.isPast = true;
  }

  /**
   * A change of names by this mount.
   *
   * @param places all names that it may change
   * @param after what of that it has changed; null where that is not known
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
    if (known === undefined || this.#world.nowMs() - known.askedMs <= this.#ageMaxMs) return known;
    this.#known.delete(directory);
    return undefined;
  }

  #began(directory: number): void {
    // Of two at a time it is not known which one the cluster has made first.
    if (this.#changing.has(directory)) this.forget(directory);
    this.#changing.more(directory);
    for (const asked of this.#asked) if (asked.directory === directory) asked.isPast = true;
  }

  #ended(directory: number, changes: readonly NameChange[] | null): void {
    this.#changing.fewer(directory);
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
