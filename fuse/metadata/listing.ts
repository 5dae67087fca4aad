import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import type { ListedName } from './delegated-directories.ts';
import { namesCompare } from './name-order.ts';

export const LIST_COUNT = 1000;
/** Stretches whose entries are kept: the one being read, and a few for programs that seek. */
const KEPT_MAX = 4;

export interface ListedEntry extends ListedName {
  /** A read that continues after this entry starts at the next position, which is one more. */
  readonly position: number;
}

export type List = (
  directory: number,
  after: string,
  countMax: number,
) => Promise<{ readonly entries: readonly ListedName[]; readonly more: boolean }>;

interface Stretch {
  /** It has the names after `after`, up to `last`. */
  readonly after: string;
  readonly last: string;
  readonly first: number;
  /** A digest of each name, by which its position is found again. */
  readonly digests: Uint32Array;
}

/**
 * One pass of a program through a directory, in the order of names. An entry that exists all the time is returned once
 * and keeps its position (`seekdir`); others may be returned or not, as POSIX allows. Only a few stretches keep their
 * entries; each other entry takes four bytes.
 */
export class Listing {
  readonly #list: List;
  readonly #inode: number;
  readonly #first: number;
  readonly #stretches: Stretch[] = [];
  readonly #kept = new BoundedMap<number, readonly ListedEntry[]>(KEPT_MAX);
  #complete = false;
  #listed: Promise<void> = Promise.resolve();

  /** @param first position of the first entry */
  constructor(inode: number, list: List, first = 0) {
    this.#inode = inode;
    this.#first = first;
    this.#list = list;
  }

  /** @returns at most `countMax` entries from `position`; none at the end of the directory */
  async read(position: number, countMax: number): Promise<readonly ListedEntry[]> {
    for (let at = Math.max(position, this.#first); ; ) {
      const index = await this.#stretchIndexOf(at);
      if (index === null) return [];
      const entries = await this.#entries(index);
      const from = entries.findIndex((entry) => entry.position >= at);
      if (from !== -1) return entries.slice(from, from + countMax);
      // The rest of this stretch has been removed since.
      const { first, digests } = this.#stretch(index);
      at = first + digests.length;
    }
  }

  #stretch(index: number): Stretch {
    const stretch = this.#stretches[index];
    assert(stretch !== undefined, 'A stretch that is asked for was listed');
    return stretch;
  }

  /** The index of the stretch with `position`; null beyond the end. */
  async #stretchIndexOf(position: number): Promise<number | null> {
    for (;;) {
      const last = this.#stretches.at(-1);
      if (last !== undefined && position < last.first + last.digests.length) break;
      if (this.#complete) return null;
      // Requests are sequential, even for concurrent reads.
      const listed = this.#listed.then(() => this.#listNext(last));
      this.#listed = listed.catch(() => undefined);
      await listed;
    }
    return this.#stretches.findLastIndex(({ first }) => first <= position);
  }

  async #listNext(last: Stretch | undefined): Promise<void> {
    if (this.#stretches.at(-1) !== last || this.#complete) return;
    const after = last?.last ?? '';
    const first = last === undefined ? this.#first : last.first + last.digests.length;
    const { entries, more } = await this.#requestEntries(after);
    this.#complete = !more;
    const end = entries.at(-1);
    if (end === undefined) {
      this.#complete = true;
      return;
    }
    const digests = Uint32Array.from(entries, ({ name }) => digest(name));
    this.#stretches.push({ after, last: end.name, first, digests });
    this.#kept.set(
      this.#stretches.length - 1,
      entries.map((entry, index) => ({ ...entry, position: first + index })),
    );
  }

  async #entries(index: number): Promise<readonly ListedEntry[]> {
    const kept = this.#kept.get(index);
    const entries = kept ?? (await this.#listAgain(this.#stretch(index)));
    this.#kept.set(index, entries);
    return entries;
  }

  /** The remaining entries of a stretch, at their positions. */
  async #listAgain({ after, last, first, digests }: Stretch): Promise<ListedEntry[]> {
    const remaining: ListedEntry[] = [];
    let from = after;
    for (let found = 0; ; ) {
      const { entries, more } = await this.#requestEntries(from);
      for (const entry of entries) {
        const index = digests.indexOf(digest(entry.name), found);
        // A name that did not exist then has no position.
        if (index === -1) continue;
        found = index + 1;
        remaining.push({ ...entry, position: first + index });
      }
      const end = entries.at(-1);
      if (!more || end === undefined || found === digests.length) return remaining;
      if (namesCompare(end.name, last) >= 0) return remaining;
      from = end.name;
    }
  }

  #requestEntries(after: string): ReturnType<List> {
    return this.#list(this.#inode, after, LIST_COUNT);
  }
}

/** FNV-1a over UTF-16 code units. About one in ten thousand stretches has two equal digests. */
function digest(name: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < name.length; index++) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
