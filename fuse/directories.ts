import type { FileSystemBackend } from './backend.ts';
import { ErrnoError } from './errno.ts';
import type { Inodes } from './inodes.ts';
import { Listing } from './listing.ts';
import type { DirectoryPage } from './transport.ts';

/** Entries that are answered to one call of the kernel, whose buffer holds about that. */
const PAGE_COUNT = 128;
/** `.` and `..`, which the cluster knows nothing of. */
const OWN_COUNT = 2;

type PageEntry = DirectoryPage['entries'][number];

interface DirectoryHandle {
  readonly inode: number;
  listing: Listing;
}

/** Directories that are open on this mount. */
export class Directories {
  readonly #backend: FileSystemBackend;
  readonly #inodes: Inodes;
  readonly #open = new Map<number, DirectoryHandle>();
  /** Handles of directories are even, those of files odd: the kernel may ask about either by its handle alone. */
  #handleLast = 0;

  constructor(backend: FileSystemBackend, inodes: Inodes) {
    this.#backend = backend;
    this.#inodes = inodes;
  }

  open(inode: number): number {
    this.#handleLast += 2;
    const handle = this.#handleLast;
    this.#open.set(handle, { inode, listing: this.#listing(inode) });
    return handle;
  }

  /** @returns undefined where no directory is open under the handle */
  inodeOf(handle: number): number | undefined {
    return this.#open.get(handle)?.inode;
  }

  /** @param offset 0, or `next` of an entry that was told under this handle since a read at 0 */
  async read(handle: number, offset: number): Promise<DirectoryPage> {
    const directory = this.#open.get(handle);
    if (directory === undefined) throw new ErrnoError('EBADF', `No directory handle ${handle} is open`);
    const { inode } = directory;
    // From the beginning, by `rewinddir` too, it is told what is there now.
    if (offset === 0) directory.listing = this.#listing(inode);
    const own: PageEntry[] = [
      { name: '.', kind: 'directory', inode, next: 1 },
      { name: '..', kind: 'directory', inode: null, next: OWN_COUNT },
    ];
    const entries = await directory.listing.read(Math.max(0, offset - OWN_COUNT), PAGE_COUNT);
    const told = entries.map(({ position, ...entry }) => ({ ...entry, next: OWN_COUNT + position + 1 }));
    return { entries: [...own.slice(offset), ...told] };
  }

  release(handle: number): void {
    this.#open.delete(handle);
  }

  #listing(inode: number): Listing {
    const { cache } = this.#inodes;
    const list: FileSystemBackend['list'] = async (directory, after, countMax) => {
      const { mark } = cache;
      const listed = await this.#backend.list(directory, after, countMax);
      for (const { name, attributes } of listed.entries) {
        // Where a live file's primary has not answered in time, a listing has what the catalog knows.
        cache.heardEntry(directory, name, attributes, mark, !attributes.live);
      }
      return listed;
    };
    return new Listing(inode, list);
  }
}
