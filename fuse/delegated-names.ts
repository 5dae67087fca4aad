import type { Attributes } from './backend.ts';

/** Directories that are remembered, and names in one of them. */
const DIRECTORIES_MAX = 2_000;
const NAMES_MAX = 100_000;

/** What is known of a name: `doubt` while it is being changed, or where it is not known what became of that. */
export type NameState = 'free' | 'file' | 'other' | 'doubt';

/** A directory that is delegated to this mount, and what is known of its names. */
export class DelegatedDirectory {
  /** Its mode decides about what is made in it. */
  readonly attributes: Attributes;
  /** A name that is not known is free. */
  readonly #isComplete: boolean;
  readonly #names = new Map<string, NameState>();
  /** Changes made or noted here, counted: an answer that was asked for before one of them may be older. */
  changes = 0;

  constructor(attributes: Attributes, names: Iterable<readonly [string, NameState]>, isComplete: boolean) {
    this.attributes = attributes;
    this.#names = new Map(names);
    this.#isComplete = isComplete;
  }

  get count(): number {
    return this.#names.size;
  }

  /** @returns `doubt` where nothing is known, too */
  stateOf(name: string): NameState {
    return this.#names.get(name) ?? (this.#isComplete ? 'free' : 'doubt');
  }

  changed(name: string, state: NameState): void {
    this.changes++;
    if (state === 'free' && this.#isComplete) this.#names.delete(name);
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

  constructor(isDelegated: (directory: number) => boolean) {
    this.#isDelegated = isDelegated;
  }

  /** @returns undefined where it is not delegated now */
  of(directory: number): DelegatedDirectory | undefined {
    const known = this.#directories.get(directory);
    return known !== undefined && this.#isDelegated(directory) ? known : undefined;
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
