import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import type { ListedName } from './delegated-directories.ts';
import { namesCompare } from './name-order.ts';

export const LIST_COUNT = 1000;
/** Pages whose entries stay in memory: the one being read, and a few for programs that seek. */
const RECENT_PAGES_MAX = 4;

export interface ListedEntry extends ListedName {
  /** A read that continues after this entry starts at the next position, which is one more. */
  readonly position: number;
}

export type List = (
  directory: number,
  after: string,
  countMax: number,
) => Promise<{ readonly entries: readonly ListedName[]; readonly more: boolean }>;

interface Page {
  /** It has the names after `after`, up to `last`. */
  readonly after: string;
  readonly last: string;
  readonly firstPosition: number;
  /** A digest of each name: names keep their positions when the page is listed again. */
  readonly digests: Uint32Array;
}

/**
 * One pass of a program through a directory, in the order of names. An entry that exists all the time is returned once
 * and keeps its position (`seekdir`); others may be returned or not, as POSIX allows. Only a few pages keep their
 * entries; each other entry takes four bytes.
 */
export class Listing {
  readonly #list: List;
  readonly #inode: number;
  readonly #firstPosition: number;
  readonly #pages: Page[] = [];
  readonly #recentEntries = new BoundedMap<number, readonly ListedEntry[]>(RECENT_PAGES_MAX);
  #complete = false;
  #lastRequest: Promise<void> = Promise.resolve();

  /** @param firstPosition position of the first entry */
  constructor(inode: number, list: List, firstPosition = 0) {
    this.#inode = inode;
    this.#firstPosition = firstPosition;
    this.#list = list;
  }

  /** @returns at most `countMax` entries from `position`; none at the end of the directory */
  async read(position: number, countMax: number): Promise<readonly ListedEntry[]> {
    for (let at = Math.max(position, this.#firstPosition); ; ) {
      const index = await this.#pageIndexOf(at);
      if (index === null) return [];
      const entries = await this.#entries(index);
      const from = entries.findIndex((entry) => entry.position >= at);
      if (from !== -1) return entries.slice(from, from + countMax);
      // The rest of this page has been removed since.
      const { firstPosition, digests } = this.#page(index);
      at = firstPosition + digests.length;
    }
  }

  #page(index: number): Page {
    const stretch = this.#pages[index];
    assert(stretch !== undefined, 'A page that is asked for was listed');
    return stretch;
  }

  /** The index of the page with `position`; null beyond the end. */
  async #pageIndexOf(position: number): Promise<number | null> {
    for (;;) {
      const last = this.#pages.at(-1);
      if (last !== undefined && position < last.firstPosition + last.digests.length) break;
      if (this.#complete) return null;
      // Requests are sequential: concurrent reads append a page once.
      const listed = this.#lastRequest.then(() => this.#appendPage(last));
      this.#lastRequest = listed.catch(() => undefined);
      await listed;
    }
    return this.#pages.findLastIndex(({ firstPosition }) => firstPosition <= position);
  }

  async #appendPage(last: Page | undefined): Promise<void> {
    if (this.#pages.at(-1) !== last || this.#complete) return;
    const after = last?.last ?? '';
    const firstPosition = last === undefined ? this.#firstPosition : last.firstPosition + last.digests.length;
    const { entries, more } = await this.#requestEntries(after);
    this.#complete = !more;
    const end = entries.at(-1);
    if (end === undefined) {
      this.#complete = true;
      return;
    }
    const digests = Uint32Array.from(entries, ({ name }) => digest(name));
    this.#pages.push({ after, last: end.name, firstPosition, digests });
    this.#recentEntries.set(
      this.#pages.length - 1,
      entries.map((entry, index) => ({ ...entry, position: firstPosition + index })),
    );
  }

  async #entries(index: number): Promise<readonly ListedEntry[]> {
    const kept = this.#recentEntries.get(index);
    const entries = kept ?? (await this.#relistPage(this.#page(index)));
    this.#recentEntries.set(index, entries);
    return entries;
  }

  /** The remaining entries of a page, at their positions. */
  async #relistPage({ after, last, firstPosition, digests }: Page): Promise<ListedEntry[]> {
    const remaining: ListedEntry[] = [];
    let from = after;
    for (let found = 0; ; ) {
      const { entries, more } = await this.#requestEntries(from);
      for (const entry of entries) {
        const index = digests.indexOf(digest(entry.name), found);
        // A name that did not exist then has no position.
        if (index === -1) continue;
        found = index + 1;
        remaining.push({ ...entry, position: firstPosition + index });
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

/** FNV-1a over UTF-16 code units. About one in ten thousand pages has two equal digests. */
function digest(name: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < name.length; index++) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
