import type { Attributes, FileSystemBackend, ListedPage } from './backend.ts';
import type { Inodes } from './inodes.ts';
import { LookAhead } from './look-ahead.ts';

/** Directories whose last listing is remembered. */
const LISTED_MAX = 64;

interface Listed {
  readonly page: ListedPage;
  readonly mark: number;
  readonly heardMs: number;
}

/** What names stand for: as remembered, or as the cluster tells, one by one or many at once. */
export class Names {
  readonly #backend: Pick<FileSystemBackend, 'lookup' | 'list'>;
  readonly #inodes: Inodes;
  readonly #lookAhead: LookAhead;
  readonly #windowMs: number;
  /** Whole directories as they were listed last, those that were used last at the end. */
  readonly #listed = new Map<number, Listed>();

  /** @param windowMs names that are looked up further apart do not belong together; 0: each is asked for by itself */
  constructor(backend: Pick<FileSystemBackend, 'lookup' | 'list'>, inodes: Inodes, windowMs: number) {
    this.#backend = backend;
    this.#inodes = inodes;
    this.#windowMs = windowMs;
    this.#lookAhead = new LookAhead(async (parent, after, countMax) => {
      const { entries, more } = await this.list(parent, after, countMax);
      return { count: entries.length, more };
    }, windowMs);
  }

  /** @throws ServiceError `not-found` */
  async lookup(parent: number, name: string): Promise<Attributes> {
    const found = await this.#find(parent, name);
    return this.#inodes.present(found);
  }

  /** @returns the page, of which everything is remembered */
  async list(parent: number, after: string, countMax: number): Promise<ListedPage> {
    const { cache } = this.#inodes;
    const listed = after === '' ? this.#listedOf(parent) : undefined;
    if (listed !== undefined && listed.entries.length <= countMax) return listed;
    const { mark } = cache;
    const heardMs = performance.now();
    const page = await this.#backend.list(parent, after, countMax);
    cache.heardPage(parent, page, mark);
    this.#listed.delete(parent);
    if (after === '' && !page.more) this.#listed.set(parent, { page, mark, heardMs });
    for (const oldest of this.#listed.keys()) {
      if (this.#listed.size <= LISTED_MAX) break;
      this.#listed.delete(oldest);
    }
    return page;
  }

  /** Only where nobody else can have changed a name; what else it tells is as old as other things that are believed. */
  #listedOf(parent: number): ListedPage | undefined {
    const listed = this.#listed.get(parent);
    if (listed === undefined || performance.now() - listed.heardMs > this.#windowMs) return undefined;
    return this.#inodes.cache.hasSameNames(parent, listed.mark) ? listed.page : undefined;
  }

  async #find(parent: number, name: string): Promise<Attributes> {
    const known = this.#known(parent, name);
    if (known !== undefined) return known;
    if (await this.#lookAhead.reach(parent, name)) {
      const reached = this.#known(parent, name);
      if (reached !== undefined) return reached;
    }
    const { cache } = this.#inodes;
    const { mark } = cache;
    const attributes = await this.#backend.lookup(parent, name);
    cache.heardEntry(parent, name, attributes, mark);
    this.#lookAhead.found(parent, name);
    return attributes;
  }

  #known(parent: number, name: string): Attributes | undefined {
    const attributes = this.#inodes.cache.entry(parent, name);
    if (attributes !== undefined) this.#lookAhead.used(parent);
    return attributes;
  }
}
