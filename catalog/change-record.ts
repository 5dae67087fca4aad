/** What happened to a name, or to the contents of a file that were written in place. */
export type NameChange =
  | {
      readonly kind: 'created' | 'replaced' | 'removed';
      readonly parent: number;
      readonly name: string;
      readonly inode: number;
    }
  | { readonly kind: 'modified'; readonly inode: number };

/** What commands have changed, for those who are to hear of it. */
export class ChangeRecord {
  /** Inodes of which a row, a name or an extended attribute was written since `forgetTouched`. */
  readonly #touched = new Set<number>();
  /** What commands have done that were not undone, since it was last taken. */
  #changes: NameChange[] = [];
  #changesBefore = 0;

  /** A command begins. */
  begin(): void {
    this.#changesBefore = this.#changes.length;
  }

  /** The command did nothing to names after all. */
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
