import type { Attributes, ContentVersion } from '../backend.ts';

/** Files of which the contents are known; where there are more, those of none are. */
const FILES_MAX = 200_000;

/**
 * The contents that files had when the cluster was last asked about them, and were not written here since. An answer that was asked for before a
 * write of this mount may be older than the write: `mark` is taken before asking.
 */
export class SeenContents {
  readonly #contents = new Map<number, ContentVersion>();
  /** Files that were written here since their contents were known: the value of `mark` then. */
  readonly #writes = new Map<number, number>();
  /** Writes of this mount, counted. */
  mark = 0;

  /** Only the primary of a live file knows its contents. */
  learn({ inode, kind, live, contents }: Attributes, mark: number): void {
    if (kind === 'file' && !live && mark === this.mark) this.#set(inode, contents);
  }

  /** The count of this mount's writes of the file, for `settled`. */
  markOf(inode: number): number {
    return this.#writes.get(inode) ?? 0;
  }

  /** The catalog knows the contents that this mount has written. @param mark as it was then */
  settled(inode: number, contents: ContentVersion, mark: number): void {
    if (mark !== 0 && mark === this.#writes.get(inode)) this.#set(inode, contents);
  }

  #set(inode: number, contents: ContentVersion): void {
    if (this.#contents.size >= FILES_MAX) this.#contents.clear();
    this.#contents.set(inode, contents);
    this.#writes.delete(inode);
  }

  of(inode: number): ContentVersion | undefined {
    return this.#contents.get(inode);
  }

  /** This mount writes the file. */
  written(inode: number): void {
    this.#contents.delete(inode);
    if (this.#writes.size >= FILES_MAX) this.#writes.clear();
    this.#writes.set(inode, ++this.mark);
  }
}
