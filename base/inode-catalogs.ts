import { assert } from './assert.ts';
import { type CatalogNumber, catalogOfInode, inodesOf, ROOT_CATALOG, ROOT_NUMBERS_END } from './ids.ts';

/** Numbers from `first` to before `end`. */
export interface NumberRange {
  readonly first: number;
  readonly end: number;
}

/** Numbers that the root catalog gave out, and whose inodes moved to the catalog of their volume. */
export interface MovedNumbers extends NumberRange {
  readonly catalog: number;
}

/** Whether the ranges ascend without common numbers, all of them the root catalog's. */
export function areMovedNumbers(ranges: readonly MovedNumbers[]): boolean {
  return ranges.every(
    ({ first, end }, at) => first >= (ranges[at - 1]?.end ?? 1) && end > first && end <= ROOT_NUMBERS_END,
  );
}

/** Whether both have the same ranges, in the same order. */
export function areSameRanges(some: readonly MovedNumbers[], others: readonly MovedNumbers[]): boolean {
  return (
    some.length === others.length &&
    some.every(({ first, end, catalog }, at) => {
      const other = others[at];
      return first === other?.first && end === other.end && catalog === other.catalog;
    })
  );
}

/**
 * Which catalog has an inode: the one that gave out its number, unless the inode moved with its volume. Numbers never
 * change, and a range that moved stays with its catalog.
 */
export class InodeCatalogs {
  static readonly NONE_MOVED = new InodeCatalogs([]);

  readonly moved: readonly MovedNumbers[];
  readonly #ranges = new Map<CatalogNumber, readonly NumberRange[]>();

  /** @param moved ascending, without common numbers */
  constructor(moved: readonly MovedNumbers[]) {
    assert(areMovedNumbers(moved), 'Ranges of moved numbers ascend');
    this.moved = moved;
  }

  catalogOf(inode: number): CatalogNumber {
    const range = rangeEndingBehind(this.moved, inode);
    if (range !== undefined && inode >= range.first) return range.catalog as CatalogNumber;
    return catalogOfInode(inode);
  }

  /** The smallest number from `from` on whose inode the catalog may have; null if there is none. */
  nextOf(catalog: CatalogNumber, from: number): number | null {
    const range = rangeEndingBehind(this.#rangesOf(catalog), from);
    return range === undefined ? null : Math.max(range.first, from);
  }

  /** Ascending; each has a number. */
  #rangesOf(catalog: CatalogNumber): readonly NumberRange[] {
    const known = this.#ranges.get(catalog);
    if (known !== undefined) return known;
    const own = inodesOf(catalog);
    const ranges =
      catalog === ROOT_CATALOG
        ? without(own, this.moved)
        : [...this.moved.filter((range) => range.catalog === catalog), own];
    this.#ranges.set(catalog, ranges);
    return ranges;
  }
}

/** The first range with an end above `number`; `ranges` ascend. */
function rangeEndingBehind<Range extends NumberRange>(
  ranges: readonly Range[],
  number: number,
): Range | undefined {
  let [low, high] = [0, ranges.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ranges[middle]?.end ?? 0) > number) high = middle;
    else low = middle + 1;
  }
  return ranges[low];
}

/** What is left of `whole` without the ascending ranges `taken`, which lie in it. */
function without(whole: NumberRange, taken: readonly NumberRange[]): NumberRange[] {
  const firsts = [whole.first, ...taken.map(({ end }) => end)];
  const ends = [...taken.map(({ first }) => first), whole.end];
  return firsts
    .map((first, at) => ({ first, end: ends[at] ?? first }))
    .filter(({ first, end }) => first < end);
}
