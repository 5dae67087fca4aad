import { Sequencer } from '../../base/sequencer.ts';
import type { Attributes, ContentVersion } from '../backend.ts';

/** Known contents, or files with recorded writes; beyond that, all are dropped. */
const FILES_MAX = 200_000;

/** The contents of files as the cluster last reported them, unless this mount has written them since. */
export class KnownVersions {
  readonly #contents = new Map<number, ContentVersion>();
  readonly #writes = new Sequencer<number>(undefined, FILES_MAX);

  request(): number {
    return this.#writes.request();
  }

  /** Skips live files, of which only the primary knows the contents, and those with flags, which keep their names. */
  learn({ inode, kind, live, contents, flags }: Attributes, requestedAt: number): void {
    if (kind === 'file' && !live && flags === undefined) this.settled(inode, contents, requestedAt);
  }

  /** Records the catalog's version, unless this mount has written since `writtenAt` (a sequence number). */
  settled(inode: number, contents: ContentVersion, writtenAt: number): void {
    if (!this.#writes.isValid(writtenAt, inode)) return;
    if (this.#contents.size >= FILES_MAX) this.#contents.clear();
    this.#contents.set(inode, contents);
  }

  of(inode: number): ContentVersion | undefined {
    return this.#contents.get(inode);
  }

  written(inode: number): void {
    this.#contents.delete(inode);
    this.#writes.changed(inode);
  }
}
