import type { Attributes } from '../wire/catalog-api.ts';

/** Names that are remembered; of the directory that was heard of the longest time ago all go at once. */
const NAMES_MAX = 200_000;
/** Inodes of which it is remembered when they were last forgotten. */
const STAMPS_MAX = 50_000;

/** A name of a directory that was changed, or is being changed, by a command of this client. */
export interface NamedPlace {
  readonly parent: number;
  readonly name: string;
}

/** What a command of this client is going to change. */
export interface OwnChange {
  readonly names: readonly NamedPlace[];
  /** Inodes of which attributes change, the directories of the names left out. */
  readonly inodes: readonly number[];
}

interface Directory {
  /** Null for a name that is not there. */
  readonly names: Map<string, number | null>;
  /** Pages of listings, by the name after which they begin. */
  readonly pages: Map<string, Page>;
}

export interface Page {
  readonly countMax: number;
  readonly names: readonly string[];
  readonly more: boolean;
}

/**
 * What a client was told of names and inodes, for as long as the catalog's primary has not called it back. What was
 * asked for before something was forgotten is not learned after it: `mark` is taken before asking.
 */
export class Memory {
  readonly #attributes = new Map<number, Attributes>();
  readonly #directories = new Map<number, Directory>();
  /** When, by count, something was forgotten: inodes by number, names as text. What is not here: `#floor` at the latest. */
  readonly #stamps = new Map<number | string, number>();
  /** What own commands under way are going to change. */
  readonly #changing = new Map<number | string, number>();
  #names = 0;
  #mark = 0;
  #floor = 0;

  get mark(): number {
    return this.#mark;
  }

  attributes(inode: number): Attributes | undefined {
    return this.#attributes.get(inode);
  }

  /** @returns null for a name that is not there, undefined where that is not known */
  name(parent: number, name: string): number | null | undefined {
    return this.#directories.get(parent)?.names.get(name);
  }

  page(parent: number, after: string, countMax: number): Page | undefined {
    const page = this.#directories.get(parent)?.pages.get(after);
    return page?.countMax === countMax ? page : undefined;
  }

  /** Only the attributes of a file that is live are not the catalog's to grant. */
  learn(attributes: Attributes, mark: number): void {
    if (attributes.live || !this.#isFresh(attributes.inode, mark)) return;
    this.#attributes.set(attributes.inode, attributes);
  }

  learnName(parent: number, name: string, inode: number | null, mark: number): void {
    if (!this.#isFreshDirectory(parent, mark) || !this.#isFresh(nameKey(parent, name), mark)) return;
    const { names } = this.#directory(parent);
    if (!names.has(name)) this.#names++;
    names.set(name, inode);
    this.#bound();
  }

  learnPage(parent: number, after: string, page: Page, mark: number): void {
    // A listing is one with its directory's own attributes: any change of a name ends it.
    if (!this.#isFreshDirectory(parent, mark) || !this.#isFresh(parent, mark)) return;
    this.#directory(parent).pages.set(after, page);
    this.#names += page.names.length;
    this.#bound();
  }

  /** Called back: attributes of the inode, names in it, and whatever was asked for before. */
  forget(inode: number): void {
    this.#stamp(inode);
    this.#stamp(directoryKey(inode));
    this.#attributes.delete(inode);
    this.#forgetDirectory(inode);
  }

  forgetAll(): void {
    this.#mark++;
    this.#floor = this.#mark;
    this.#stamps.clear();
    this.#attributes.clear();
    this.#directories.clear();
    this.#names = 0;
  }

  /** The catalog knows of a read, which calls nothing back: what is remembered has the access time, too. @param from that of before */
  accessed(inode: number, from: string, to: string): void {
    // An answer that is under way may be of before.
    this.#stamp(inode);
    const known = this.#attributes.get(inode);
    if (known?.accessedNs === from) this.#attributes.set(inode, { ...known, accessedNs: to });
  }

  /** From here until `changed`, nothing of it is believed or learned. */
  changing(change: OwnChange): void {
    for (const key of this.#forgetOwn(change)) this.#changing.set(key, (this.#changing.get(key) ?? 0) + 1);
  }

  changed(change: OwnChange): void {
    for (const key of this.#forgetOwn(change)) {
      const count = this.#changing.get(key) ?? 0;
      if (count <= 1) this.#changing.delete(key);
      else this.#changing.set(key, count - 1);
    }
  }

  /** @returns the keys of all that the change concerns */
  #forgetOwn({ names, inodes }: OwnChange): (number | string)[] {
    const keys: (number | string)[] = [...inodes];
    for (const { parent, name } of names) {
      keys.push(parent, nameKey(parent, name));
      const directory = this.#directories.get(parent);
      if (directory?.names.delete(name)) this.#names--;
      for (const page of directory?.pages.values() ?? []) this.#names -= page.names.length;
      directory?.pages.clear();
    }
    for (const key of keys) {
      this.#stamp(key);
      if (typeof key === 'number') this.#attributes.delete(key);
    }
    return keys;
  }

  #isFresh(key: number | string, mark: number): boolean {
    if (mark < this.#floor || this.#changing.has(key)) return false;
    return (this.#stamps.get(key) ?? 0) <= mark;
  }

  #isFreshDirectory(parent: number, mark: number): boolean {
    return mark >= this.#floor && (this.#stamps.get(directoryKey(parent)) ?? 0) <= mark;
  }

  #stamp(key: number | string): void {
    this.#mark++;
    this.#stamps.delete(key);
    this.#stamps.set(key, this.#mark);
    if (this.#stamps.size <= STAMPS_MAX) return;
    // Answers that are under way now are not learned; those that come after them are.
    this.#floor = this.#mark;
    this.#stamps.clear();
  }

  #directory(parent: number): Directory {
    let directory = this.#directories.get(parent);
    if (directory === undefined) {
      directory = { names: new Map(), pages: new Map() };
      this.#directories.set(parent, directory);
    }
    return directory;
  }

  #forgetDirectory(inode: number): void {
    const directory = this.#directories.get(inode);
    if (directory === undefined) return;
    this.#names -= directory.names.size;
    for (const page of directory.pages.values()) this.#names -= page.names.length;
    this.#directories.delete(inode);
  }

  #bound(): void {
    while (this.#names > NAMES_MAX) {
      const [oldest] = this.#directories.keys();
      if (oldest === undefined) return;
      this.#forgetDirectory(oldest);
    }
  }
}

function nameKey(parent: number, name: string): string {
  return `${parent}/${name}`;
}

/** Of what was called back as a whole: a change of one name by this client leaves the others alone. */
function directoryKey(inode: number): string {
  return `${inode}/`;
}
