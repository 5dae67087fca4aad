import type { Attributes, FileSystemBackend, ListedPage } from './backend.ts';
import type { Inodes } from './inodes.ts';
import { LookAhead } from './look-ahead.ts';

/** What names stand for: as remembered, or as the cluster tells, one by one or many at once. */
export class Names {
  readonly #backend: Pick<FileSystemBackend, 'lookup' | 'list'>;
  readonly #inodes: Inodes;
  readonly #lookAhead: LookAhead;

  /** @param windowMs names that are looked up further apart do not belong together; 0: each is asked for by itself */
  constructor(backend: Pick<FileSystemBackend, 'lookup' | 'list'>, inodes: Inodes, windowMs: number) {
    this.#backend = backend;
    this.#inodes = inodes;
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
    const { mark } = cache;
    const page = await this.#backend.list(parent, after, countMax);
    cache.heardPage(parent, page, mark);
    return page;
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
