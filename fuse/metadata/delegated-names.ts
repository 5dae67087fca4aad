import type { Attributes, ListedPage } from '../backend.ts';

/** Directories that are remembered, and names in one of them. */
const DIRECTORIES_MAX = 2_000;
export const NAMES_MAX = 100_000;
/** Files that got a second name here: where there are more, all names are forgotten. */
const LINKED_MAX = 10_000;

/**
 * What has a name: the inode of a file without another name, a file, something else, or nothing. `doubt` also while the name is
 * being changed, or where the outcome of that is unknown.
 */
export type NameState = 'free' | 'file' | 'other' | 'doubt' | number;

export function nameStateOf({ kind, links, inode }: Attributes): NameState {
  if (kind !== 'file') return 'other';
  return links === 1 ? inode : 'file';
}

/** A directory that is delegated to this mount, and what is known of its names. */
export class DelegatedDirectory {
  /** Its mode decides about what is created in it. */
  readonly attributes: Attributes;
  /** Names up to here, in their order, are known; null: all are, and all others are free. */
  #knownThrough: string | null;
  readonly #names = new Map<string, NameState>();
  /** Counts own changes: an answer that was requested before one of them is not valid. */
  changes = 0;

  /**
   * @param page its first names, as they were when it was delegated
   * @param changed names that may have changed since
   */
  constructor(attributes: Attributes, page: ListedPage, changed: Iterable<string> = []) {
    this.attributes = attributes;
    this.#knownThrough = '';
    for (const name of changed) this.#names.set(name, 'doubt');
    this.learn(page);
  }

  /** The name after which others are unknown; null where all are known. */
  get knownThrough(): string | null {
    return this.#knownThrough;
  }

  get count(): number {
    return this.#names.size;
  }

  stateOf(name: string): NameState {
    return this.#names.get(name) ?? (this.#knownThrough === null ? 'free' : 'doubt');
  }

  /** @param page the names after `knownThrough`, requested since it was delegated: own changes since count for more */
  learn({ entries, more }: ListedPage): void {
    for (const { name, attributes } of entries)
      if (!this.#names.has(name)) this.#names.set(name, nameStateOf(attributes));
    this.#knownThrough = more ? (entries.at(-1)?.name ?? this.#knownThrough) : null;
  }

  changed(name: string, state: NameState): void {
    this.changes++;
    if (state === 'free' && this.#knownThrough === null) this.#names.delete(name);
    else this.#names.set(name, state);
  }

  /** @param changes as it was at the request */
  heard(name: string, state: NameState, changes: number): void {
    if (changes === this.changes) this.#names.set(name, state);
  }
}

/** Names in the directories that are delegated to this mount. */
export class DelegatedNames {
  readonly #isDelegated: (directory: number) => boolean;
  readonly #directories = new Map<number, DelegatedDirectory>();
  readonly #linked = new Set<number>();

  constructor(isDelegated: (directory: number) => boolean) {
    this.#isDelegated = isDelegated;
  }

  /** @returns undefined where it is not delegated now */
  of(directory: number): DelegatedDirectory | undefined {
    const known = this.#directories.get(directory);
    return known !== undefined && this.#isDelegated(directory) ? known : undefined;
  }

  /** The file has a second name, whatever is known of its first one. */
  linked(inode: number): void {
    this.#linked.add(inode);
    if (this.#linked.size <= LINKED_MAX) return;
    this.#linked.clear();
    this.endAll();
  }

  isLinked(inode: number): boolean {
    return this.#linked.has(inode);
  }

  begin(directory: DelegatedDirectory): void {
    this.#directories.set(directory.attributes.inode, directory);
    for (const oldest of this.#directories.keys()) {
      if (this.#directories.size <= DIRECTORIES_MAX) return;
      this.#directories.delete(oldest);
    }
  }

  changed(directory: number, name: string, state: NameState): void {
    const known = this.#directories.get(directory);
    known?.changed(name, state);
    if (known !== undefined && known.count > NAMES_MAX) this.#directories.delete(directory);
  }

  end(directory: number): void {
    this.#directories.delete(directory);
  }

  endAll(): void {
    this.#directories.clear();
  }
}
