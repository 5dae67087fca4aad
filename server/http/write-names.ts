import { BoundedMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';
import { RequestNames } from './request-names.ts';

/** Files whose sessions are kept; of the one that was written least recently new sessions begin. */
const FILES_MAX = 1_000;

/**
 * Names of writes that this server sends, by file. Writes of one file share a few sessions: a file remembers the last 64
 * sessions that wrote it, and refuses the first request of a session that it may have forgotten. With a session for each
 * write, more than 64 writers at a time would make it refuse some of them.
 */
export class WriteNames {
  readonly #random53: () => number;
  /** The file that was written least recently first. */
  readonly #files = new BoundedMap<FileId, RequestNames>(FILES_MAX);

  /** @param random53 draws a random integer from 1 to 2^53 − 1 */
  constructor(random53: () => number) {
    this.#random53 = random53;
  }

  /** @returns the names of one file; a name is released by the object that gave it */
  of(file: FileId): RequestNames {
    const names = this.#files.get(file) ?? new RequestNames(this.#random53);
    this.#files.set(file, names);
    return names;
  }
}
