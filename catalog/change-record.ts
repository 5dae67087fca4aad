/** A change of a directory entry, or of a file's contents. */
export type NameChange =
  | {
      readonly kind: 'created' | 'replaced' | 'removed';
      readonly parent: number;
      readonly name: string;
      readonly inode: number;
    }
  | { readonly kind: 'modified'; readonly inode: number };

/** What commands changed: inodes whose cached copies must be recalled, and changes for those that watch directories. */
export class ChangeRecord {
  /** Inodes with changed rows, entries or extended attributes since `forgetTouched`. */
  readonly #touched = new Set<number>();
  /** Changes of commands that were not undone, since the last `take`. */
  #changes: NameChange[] = [];
  #changesBefore = 0;

  begin(): void {
    this.#changesBefore = this.#changes.length;
  }

  undo(): void {
    this.#changes.length = this.#changesBefore;
  }

  touch(inode: number): void {
    this.#touched.add(inode);
  }

  touched(): number[] {
    return [...this.#touched];
  }

  forgetTouched(): void {
    this.#touched.clear();
  }

  add(change: NameChange): void {
    this.#changes.push(change);
  }

  take(): readonly NameChange[] {
    const taken = this.#changes;
    this.#changes = [];
    return taken;
  }
}
