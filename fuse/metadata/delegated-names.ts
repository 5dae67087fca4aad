import type { Attributes, ListedPage } from '../backend.ts';

/** Directories that are remembered, and names in one of them. */
const DIRECTORIES_MAX = 2_000;
export const NAMES_MAX = 100_000;
/** Files that got a second name here: where there are more, nothing is known of any name any more. */
const LINKED_MAX = 10_000;

/**
 * What is known of a name: the number of the file that has it, where that has no other name; `doubt` while it is being changed, or where it is not
 * known what became of that.
 */
export type NameState = 'free' | 'file' | 'other' | 'doubt' | number;

export function nameStateOf({ kind, links, inode }: Attributes): NameState {
  if (kind !== 'file') return 'other';
  return links === 1 ? inode : 'file';
}

/** A directory that is delegated to this mount, and what is known of its names. */
export class DelegatedDirectory {
  /** Its mode decides about what is made in it. */
  readonly attributes: Attributes;
  /** Names up to here, in their order, are known; null: all are, and a name that is not is free. */
  #knownThrough: string | null;
  readonly #names = new Map<string, NameState>();
  /** Changes made or noted here, counted: an answer that was asked for before one of them may be older. */
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

  /** After which name there are more that are not known; null where there are none. */
  get knownThrough(): string | null {
    return this.#knownThrough;
  }

  get count(): number {
    return this.#names.size;
  }

  /** @returns `doubt` where nothing is known, too */
  stateOf(name: string): NameState {
    return this.#names.get(name) ?? (this.#knownThrough === null ? 'free' : 'doubt');
  }

  /** @param page the names after `knownThrough`, asked for since it was delegated: what was changed here since is known better */
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

  /** @param changes as it was when that was asked for */
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

  /** The file has got a second name here, whatever is known of its first one. */
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
