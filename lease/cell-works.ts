import { assert } from '../base/assert.ts';
import type { CellWork } from './work.ts';

const PAGE_BITS = 6;
const PAGE_ROWS = 2 ** PAGE_BITS;
const OFFSET_MASK = PAGE_ROWS - 1;

interface Page {
  readonly works: (CellWork | null)[];
  count: number;
}

/** The works of rows, in small pages that exist only while a row of them has one: an idle row costs an eighth byte. */
export class CellWorks {
  readonly #pages: (Page | null)[] = [];

  get(row: number): CellWork | null {
    const page = this.#pages[row >>> PAGE_BITS];
    return page === undefined || page === null ? null : (page.works[row & OFFSET_MASK] as CellWork | null);
  }

  /** Adds the work of a row that has none. */
  add(row: number, work: CellWork): void {
    const pages = this.#pages;
    const index = row >>> PAGE_BITS;
    // One by one: an array that grows by a gap becomes a hash table.
    while (pages.length <= index) pages.push(null);
    let page = pages[index] as Page | null;
    if (page === null) {
      page = { works: new Array<CellWork | null>(PAGE_ROWS).fill(null), count: 0 };
      pages[index] = page;
    }
    assert(page.works[row & OFFSET_MASK] === null, 'A row has one work');
    page.works[row & OFFSET_MASK] = work;
    page.count++;
  }

  delete(row: number): void {
    const page = this.#pages[row >>> PAGE_BITS];
    assert(page !== undefined && page !== null, 'A deleted work was added');
    assert(page.works[row & OFFSET_MASK] !== null, 'A deleted work was added');
    page.works[row & OFFSET_MASK] = null;
    page.count--;
    if (page.count === 0) this.#pages[row >>> PAGE_BITS] = null;
  }
}
