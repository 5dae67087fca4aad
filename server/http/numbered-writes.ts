import { BoundedMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';
import { NumberedRequests } from '../requests/numbered-requests.ts';

/** Files whose sessions are kept; the least recently written one begins new sessions. */
const FILES_MAX = 1_000;

/**
 * Sessions and numbers for this server's writes, by file. A file remembers the last 64 sessions that wrote it, and
 * refuses the first request of a session that it may have forgotten: with one session per write it would refuse some of
 * more than 64 concurrent writers.
 */
export class NumberedWrites {
  readonly #random53: () => number;
  readonly #files = new BoundedMap<FileId, NumberedRequests>(FILES_MAX);

  constructor(random53: () => number) {
    this.#random53 = random53;
  }

  requestsOf(file: FileId): NumberedRequests {
    const requests = this.#files.get(file) ?? new NumberedRequests(this.#random53);
    this.#files.set(file, requests);
    return requests;
  }
}
