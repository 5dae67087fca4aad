import { Sequencer } from '../base/sequencer.ts';
import type { Attributes, CommandOf } from '../wire/catalog-api.ts';

type NotedAccess = CommandOf<'note-accesses'>['accesses'][number];

/** Names that are remembered; of the directory that was heard of the longest time ago all go at once. */
const NAMES_MAX = 200_000;
/** Inodes, names and directories whose last change is remembered. */
const CHANGED_MAX = 50_000;

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

/** What has become of a change of names. */
export interface OwnOutcome {
  /** What names stand for since; null: for nothing. */
  readonly names: readonly (NamedPlace & { readonly inode: number | null })[];
  /** The times, in nanoseconds, that the directories of all names of the change have since. */
  readonly atNs: string;
  /** So many more directories are in them. */
  readonly directories: number;
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
 * What a client learned of names and inodes, until the catalog's primary recalls it. An answer that was requested before a
 * recall or an own change is not learned after it.
 */
export class Memory {
  readonly #attributes = new Map<number, Attributes>();
  readonly #directories = new Map<number, Directory>();
  /** Recalls and own changes: inodes by number, names as text. */
  readonly #sequencer = new Sequencer<number | string>(undefined, CHANGED_MAX);
  /** Of directories in which one own command is changing names, and nobody else anything: what was known before. */
  readonly #before = new Map<number, Attributes>();
  #names = 0;

  /** @see Sequencer.request */
  request(): number {
    return this.#sequencer.request();
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
  learn(attributes: Attributes, requestedAt: number): void {
    if (attributes.live || !this.#sequencer.isValid(requestedAt, attributes.inode)) return;
    this.#attributes.set(attributes.inode, attributes);
  }

  learnName(parent: number, name: string, inode: number | null, requestedAt: number): void {
    const keys = [directoryKey(parent), nameKey(parent, name)];
    if (!keys.every((key) => this.#sequencer.isValid(requestedAt, key))) return;
    const { names } = this.#directory(parent);
    if (!names.has(name)) this.#names++;
    names.set(name, inode);
    this.#bound();
  }

  learnPage(parent: number, after: string, page: Page, requestedAt: number): void {
    // A listing is one with its directory's own attributes: any change of a name ends it.
    const keys = [directoryKey(parent), parent];
    if (!keys.every((key) => this.#sequencer.isValid(requestedAt, key))) return;
    this.#directory(parent).pages.set(after, page);
    this.#names += page.names.length;
    this.#bound();
  }

  /** Recalled: attributes of the inode, names in it, and answers that were requested before. */
  forget(inode: number): void {
    this.#sequencer.changed(inode);
    this.#sequencer.changed(directoryKey(inode));
    this.#attributes.delete(inode);
    this.#before.delete(inode);
    this.#forgetDirectory(inode);
  }

  forgetAll(): void {
    this.#sequencer.changedAll();
    this.#attributes.clear();
    this.#before.clear();
    this.#directories.clear();
    this.#names = 0;
  }

  /** The catalog knows of a read, which recalls nothing: attributes that did not change since have the access time, too. */
  accessed({ inode, accessedNs: to, seen }: NotedAccess): void {
    // An answer that is under way may be of before.
    this.#sequencer.changed(inode);
    for (const known of [this.#attributes, this.#before]) {
      const attributes = known.get(inode);
      if (attributes?.accessedNs === seen.accessedNs && attributes.changedNs === seen.changedNs)
        known.set(inode, { ...attributes, accessedNs: to });
    }
  }

  /** From here until `changed`, nothing of it is valid or learned. @returns the sequence number for `changed` */
  changing(change: OwnChange): number {
    const before = [...directoriesOf(change)].map(
      (parent) => [parent, this.#attributes.get(parent)] as const,
    );
    for (const key of this.#forgetOwn(change)) this.#sequencer.begin(key);
    for (const [parent, attributes] of before)
      if (attributes !== undefined) this.#before.set(parent, attributes);
    return this.#sequencer.latest;
  }

  /**
   * The catalog calls nothing back from a client for its own change. What was remembered of a directory is what it was but for that, if
   * nothing else happened to it meanwhile.
   *
   * @param since as `changing` has returned it
   * @param outcome null where it is not known what has become of it
   */
  changed(change: OwnChange, since: number, outcome: OwnOutcome | null = null): void {
    const names = (outcome?.names ?? []).filter((place) => this.#isOwnAlone(place, since));
    const before = [...directoriesOf(change)].map((parent) => [parent, this.#before.get(parent)] as const);
    for (const key of this.#forgetOwn(change)) this.#sequencer.end(key);
    if (outcome === null) return;
    for (const [parent, attributes] of before)
      if (attributes !== undefined) this.#attributes.set(parent, afterwards(attributes, outcome));
    for (const { parent, name, inode } of names) this.learnName(parent, name, inode, this.request());
  }

  /** Whether the directory was known all the time since a change of the name was begun, and no other change of it was under way. */
  #isOwnAlone({ parent, name }: NamedPlace, since: number): boolean {
    const isKnown = this.#directories.has(parent) || this.#before.has(parent);
    if (!isKnown || !this.#sequencer.isValid(since, directoryKey(parent))) return false;
    const key = nameKey(parent, name);
    return this.#sequencer.changing(key) === 1 && this.#sequencer.isUnchanged(since, key);
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
      if (typeof key !== 'number') continue;
      this.#attributes.delete(key);
      this.#before.delete(key);
    }
    return keys;
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

function directoriesOf({ names }: OwnChange): ReadonlySet<number> {
  return new Set(names.map(({ parent }) => parent));
}

/** @returns a directory's attributes after a change of names in it */
function afterwards(before: Attributes, { atNs, directories }: OwnOutcome): Attributes {
  return { ...before, links: before.links + directories, modifiedNs: atNs, changedNs: atNs };
}

function nameKey(parent: number, name: string): string {
  return `${parent}/${name}`;
}

/** Of a directory that was recalled as a whole: a change of one name by this client leaves the others alone. */
function directoryKey(inode: number): string {
  return `${inode}/`;
}
