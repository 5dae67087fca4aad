import { Sequencer } from '../../base/sequencer.ts';
import type { Attributes, ContentVersion } from '../backend.ts';

/** Files of which the contents are known, or whose last write here is; where there are more, the contents of none are known. */
const FILES_MAX = 200_000;

/** The contents that files had when the cluster last answered, and that this mount did not write since. */
export class SeenContents {
  readonly #contents = new Map<number, ContentVersion>();
  /** Writes of this mount, by inode. */
  readonly #writes = new Sequencer<number>(undefined, FILES_MAX);

  /** @see Sequencer.request */
  request(): number {
    return this.#writes.request();
  }

  /**
   * Only the primary of a live file knows its contents. What has flags keeps its name.
   *
   * @param requestedAt sequence number of the request
   */
  learn({ inode, kind, live, contents, flags }: Attributes, requestedAt: number): void {
    if (kind === 'file' && !live && flags === undefined) this.settled(inode, contents, requestedAt);
  }

  /** The catalog knows the contents that this mount has written. @param writtenAt sequence number from after the write */
  settled(inode: number, contents: ContentVersion, writtenAt: number): void {
    if (!this.#writes.isValid(writtenAt, inode)) return;
    if (this.#contents.size >= FILES_MAX) this.#contents.clear();
    this.#contents.set(inode, contents);
  }

  of(inode: number): ContentVersion | undefined {
    return this.#contents.get(inode);
  }

  /** This mount writes the file. */
  written(inode: number): void {
    this.#contents.delete(inode);
    this.#writes.changed(inode);
  }
}
