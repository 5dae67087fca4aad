import { RecentMap } from '../../base/recent-map.ts';
import { Sequencer } from '../../base/sequencer.ts';
import { isLater, laterNs } from '../../base/times.ts';
import type { Attributes, CommandOf, NotedRead } from '../../wire/catalog-api.ts';

type NotedAccess = CommandOf<'note-accesses'>['accesses'][number];

/** Cached names; beyond this, the oldest directory is forgotten as a whole. */
const NAMES_MAX = 200_000;
const CHANGED_MAX = 50_000;

export interface NamedPlace {
  readonly parent: number;
  readonly name: string;
}

/** What a command of this client is about to change. */
export interface OwnChange {
  readonly names: readonly NamedPlace[];
  /** Inodes whose attributes change, without the directories of `names`. */
  readonly inodes: readonly number[];
}

export interface OwnOutcome {
  /** The inodes of the names after the change; null: there is no such name. */
  readonly names: readonly (NamedPlace & { readonly inode: number | null })[];
  /** Modification and change time of the directories of all names after the change, in nanoseconds. */
  readonly atNs: string;
  /** By how many the directory's subdirectories have increased; may be negative. */
  readonly directories: number;
}

interface Directory {
  readonly names: Map<string, number | null>;
  readonly pages: Map<string, Page>;
}

/** A directory as the answered commands have left it, while further own commands change names in it. */
interface BeforeOwn {
  readonly attributes: Attributes;
  /** The latest time that an own command has given the directory; null before the first was answered. */
  readonly atNs: string | null;
  /** False once two commands reported different times: it is unknown which was executed last. */
  readonly isCertain: boolean;
}

export interface Page {
  readonly countMax: number;
  readonly names: readonly string[];
  readonly more: boolean;
}

/** A cache of names and inodes. An answer requested before a recall or an own change is not cached after it. */
export class CatalogCache {
  readonly #attributes = new RecentMap<number, Attributes>();
  readonly #directories = new Map<number, Directory>();
  readonly #sequencer = new Sequencer<number | string>(undefined, CHANGED_MAX);
  /** Directories in which only own commands change names: their attributes after the commands answered so far. */
  readonly #beforeOwn = new Map<number, BeforeOwn>();
  #names = 0;

  /** @returns `requestedAt` of `learn…`, for a query that is about to be sent */
  request(): number {
    return this.#sequencer.request();
  }

  attributes(inode: number): Attributes | undefined {
    return this.#attributes.get(inode);
  }

  get inodes(): readonly number[] {
    return [...this.#attributes.entries().map(([inode]) => inode), ...this.#beforeOwn.keys()];
  }

  /** A directory without effects of own commands in flight. Valid while delegated: no other client has seen these. */
  attributesBeforeOwnChanges(directory: number): Attributes | undefined {
    return this.#beforeOwn.get(directory)?.attributes;
  }

  /** @returns null for a name that does not exist, undefined if that is not known */
  name(parent: number, name: string): number | null | undefined {
    return this.#directories.get(parent)?.names.get(name);
  }

  page(parent: number, after: string, countMax: number): Page | undefined {
    const page = this.#directories.get(parent)?.pages.get(after);
    return page?.countMax === countMax ? page : undefined;
  }

  /** Caches attributes, which the catalog grants except for live files. */
  learn(attributes: Attributes, requestedAt: number): void {
    if (attributes.live || !this.#sequencer.isValid(requestedAt, attributes.inode)) return;
    this.#attributes.set(attributes.inode, attributes);
  }

  /** Caches the inode of a name, unless that has changed since the request. @param inode null if there is none */
  learnName(parent: number, name: string, inode: number | null, requestedAt: number): void {
    const keys = [directoryKey(parent), nameKey(parent, name)];
    if (!keys.every((key) => this.#sequencer.isValid(requestedAt, key))) return;
    const { names } = this.#directory(parent);
    if (!names.has(name)) this.#names++;
    names.set(name, inode);
    this.#evictOldest();
  }

  learnPage(parent: number, after: string, page: Page, requestedAt: number): void {
    // A listing is as valid as its directory's own attributes: any change of a name invalidates it.
    const keys = [directoryKey(parent), parent];
    if (!keys.every((key) => this.#sequencer.isValid(requestedAt, key))) return;
    this.#directory(parent).pages.set(after, page);
    this.#names += page.names.length;
    this.#evictOldest();
  }

  /** Handles a recall: drops the inode's attributes, the names in it, and answers requested before. */
  forget(inode: number): void {
    this.#sequencer.changed(inode);
    this.#sequencer.changed(directoryKey(inode));
    this.#attributes.delete(inode);
    this.#beforeOwn.delete(inode);
    this.#dropDirectory(inode);
  }

  forgetAll(): void {
    this.#sequencer.changedAll();
    this.#attributes.clear();
    this.#beforeOwn.clear();
    this.#directories.clear();
    this.#names = 0;
  }

  /** The catalog has recorded a read of this client, without a recall. Cached attributes as in `seen` get its time. */
  noteAccess({ inode, accessedNs: to, seen }: NotedAccess): void {
    // An answer in flight may be older.
    this.#sequencer.changed(inode);
    const isSeen = (known?: Attributes): known is Attributes =>
      known?.accessedNs === seen.accessedNs && known.changedNs === seen.changedNs;
    const attributes = this.#attributes.get(inode);
    if (isSeen(attributes)) this.#attributes.set(inode, { ...attributes, accessedNs: to });
    const before = this.#beforeOwn.get(inode);
    if (before !== undefined && isSeen(before.attributes))
      this.#beforeOwn.set(inode, { ...before, attributes: { ...before.attributes, accessedNs: to } });
  }

  /** The catalog has recorded a read by any client. @returns whether cached attributes got a new access time */
  noteRead({ inode, accessedNs, changedNs }: NotedRead): boolean {
    const seen = this.#attributes.get(inode) ?? this.#beforeOwn.get(inode)?.attributes;
    const isNewer =
      seen !== undefined && seen.changedNs === changedNs && isLater(accessedNs, seen.accessedNs);
    if (isNewer) this.noteAccess({ inode, accessedNs, seen });
    else this.#sequencer.changed(inode);
    return isNewer;
  }

  /** Begins an own change: until its end, what it names is neither valid nor cached. @returns `since` of its end */
  beginChange(change: OwnChange): number {
    const before = [...directoriesOf(change)].map(
      (parent) => [parent, this.#attributes.get(parent)] as const,
    );
    for (const key of this.#dropChanged(change)) this.#sequencer.begin(key);
    const changesNamesOnly = (parent: number): boolean => !change.inodes.includes(parent);
    for (const [parent, attributes] of before)
      if (attributes !== undefined && changesNamesOnly(parent))
        this.#beforeOwn.set(parent, { attributes, atNs: null, isCertain: true });
    return this.#sequencer.latest;
  }

  /**
   * Ends an own change, for which the catalog recalls nothing from this client. If no other change interfered, caches
   * its names, and their directories with the new times and link counts. `outcome` is null if unknown.
   */
  endChange(
    change: OwnChange,
    since: number,
    outcome: OwnOutcome | null = null,
    granted: Attributes | null = null,
  ): void {
    const isCurrent = granted !== null && !granted.live && this.#isOnlyChange(granted.inode, since);
    const names = (outcome?.names ?? []).filter((place) => this.#isOnlyNameChange(place, since));
    for (const key of this.#dropChanged(change)) this.#sequencer.end(key);
    for (const parent of directoriesOf(change)) this.#endNameChanges(parent, outcome);
    if (isCurrent) this.#attributes.set(granted.inode, granted);
    if (outcome === null) return;
    for (const { parent, name, inode } of names) this.learnName(parent, name, inode, this.request());
  }

  /** Applies a command's outcome to a directory; its attributes are cached again when no other own change is left. */
  #endNameChanges(parent: number, outcome: OwnOutcome | null): void {
    const before = this.#beforeOwn.get(parent);
    if (before === undefined) return;
    this.#beforeOwn.delete(parent);
    if (outcome === null) return;
    const after = directoryAfter(before, outcome);
    if (this.#sequencer.changing(parent) > 0) this.#beforeOwn.set(parent, after);
    else if (after.isCertain) this.#attributes.set(parent, after.attributes);
  }

  /** Whether the directory was cached throughout, and no other change of the name was in flight. */
  #isOnlyNameChange({ parent, name }: NamedPlace, since: number): boolean {
    const isKnown = this.#directories.has(parent) || this.#beforeOwn.has(parent);
    if (!isKnown || !this.#sequencer.isValid(since, directoryKey(parent))) return false;
    return this.#isOnlyChange(nameKey(parent, name), since);
  }

  /** Whether the own change that began at `since` is the only change of the subject since then. */
  #isOnlyChange(key: number | string, since: number): boolean {
    return this.#sequencer.changing(key) === 1 && this.#sequencer.isUnchanged(since, key);
  }

  /** Drops what an own change names. @returns the keys of its subjects for the sequencer */
  #dropChanged({ names, inodes }: OwnChange): ReadonlySet<number | string> {
    const keys = new Set<number | string>(inodes);
    for (const { parent, name } of names) {
      keys.add(parent).add(nameKey(parent, name));
      const directory = this.#directories.get(parent);
      if (directory?.names.delete(name)) this.#names--;
      if (directory === undefined || directory.pages.size === 0) continue;
      for (const page of directory.pages.values()) this.#names -= page.names.length;
      directory.pages.clear();
    }
    for (const key of keys) if (typeof key === 'number') this.#attributes.delete(key);
    for (const inode of inodes) this.#beforeOwn.delete(inode);
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

  #dropDirectory(inode: number): void {
    const directory = this.#directories.get(inode);
    if (directory === undefined) return;
    this.#names -= directory.names.size;
    for (const page of directory.pages.values()) this.#names -= page.names.length;
    this.#directories.delete(inode);
  }

  #evictOldest(): void {
    while (this.#names > NAMES_MAX) {
      const [oldest] = this.#directories.keys();
      if (oldest === undefined) return;
      this.#dropDirectory(oldest);
    }
  }
}

export function directoriesOf({ names }: Pick<OwnChange, 'names'>): ReadonlySet<number> {
  return new Set(names.map(({ parent }) => parent));
}

/**
 * @returns a directory after a change of names in it. Of two concurrent changes, the one answered first may have been
 *   executed last; its time is then the directory's, if the server's clock was set back in between
 */
function directoryAfter(before: BeforeOwn, { atNs, directories }: OwnOutcome): BeforeOwn {
  const latestNs = before.atNs === null ? atNs : laterNs(before.atNs, atNs);
  const links = before.attributes.links + directories;
  return {
    attributes: { ...before.attributes, links, modifiedNs: latestNs, changedNs: latestNs },
    atNs: latestNs,
    isCertain: before.isCertain && (before.atNs === null || before.atNs === atNs),
  };
}

function nameKey(parent: number, name: string): string {
  return `${parent}/${name}`;
}

/** Key of a directory that is recalled as a whole: an own change of one name leaves the other names valid. */
function directoryKey(inode: number): string {
  return `${inode}/`;
}
