import type { Attributes } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import type { HandleNumbers } from '../handle-numbers.ts';
import type { DirectoryPage } from '../transport.ts';
import { type List, Listing } from './listing.ts';
import type { Names } from './names.ts';

/** `.` and `..`, which the cluster does not list. */
const OWN_COUNT = 2;

interface DirectoryHandle {
  readonly inode: number;
  readonly isNoAtime: boolean;
  listing: Listing;
  attributes: Attributes | undefined;
}

export class Directories {
  readonly #names: Names;
  readonly #open = new Map<number, DirectoryHandle>();
  readonly #numbers: HandleNumbers;

  constructor(names: Names, numbers: HandleNumbers) {
    this.#names = names;
    this.#numbers = numbers;
  }

  /** Adds a handle. @param attributes as last known. @param isNoAtime its reads do not count as accesses */
  open(inode: number, attributes: Attributes | undefined, isNoAtime = false): number {
    const handle = this.#numbers.next();
    this.#open.set(handle, { inode, attributes, isNoAtime, listing: this.#listing(inode) });
    return handle;
  }

  inodeOf(handle: number): number | undefined {
    return this.#open.get(handle)?.inode;
  }

  update(attributes: Attributes): void {
    for (const directory of this.#handles(attributes.inode)) directory.attributes = attributes;
  }

  lastOf(inode: number): Attributes | undefined {
    return this.#handles(inode).find(({ attributes }) => attributes !== undefined)?.attributes;
  }

  #handles(inode: number): DirectoryHandle[] {
    return [...this.#open.values()].filter((directory) => directory.inode === inode);
  }

  countsAsAccess(handle: number): boolean {
    return this.#open.get(handle)?.isNoAtime === false;
  }

  /** @param offset 0, or the position after an entry that this handle returned since a read at 0 */
  async read(handle: number, offset: number, countMax: number): Promise<DirectoryPage> {
    const directory = this.#open.get(handle);
    if (directory === undefined) throw new ErrnoError('EBADF', `No directory handle ${handle} is open`);
    const { inode } = directory;
    // A read from the beginning, also after `rewinddir`, has to list the current entries.
    if (offset === 0) directory.listing = this.#listing(inode);
    const entries = await directory.listing.read(offset, countMax);
    if (offset >= OWN_COUNT) return { entries };
    const own = [
      { name: '.', kind: 'directory', inode, position: 0 },
      { name: '..', kind: 'directory', inode: null, position: 1 },
    ] as const;
    return { entries: [...own.slice(offset), ...entries] };
  }

  release(handle: number): void {
    this.#open.delete(handle);
  }

  #listing(inode: number): Listing {
    const list: List = (...page) => this.#names.list(...page);
    return new Listing(inode, list, OWN_COUNT);
  }
}
