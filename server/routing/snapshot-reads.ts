import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import type { CallOptions } from './router.ts';

const KNOWN_MAX = 10_000;
/** During a read the contents move at most once: from the file itself to the one that preserves them. */
const ATTEMPTS_MAX = 3;

/** Where the contents are that a file has in a snapshot: in the file `source`, as its version `asOf`. */
export interface SnapshotContents {
  readonly attributes: Attributes;
  readonly source: FileId;
  readonly asOf: ContentVersion;
}

/**
 * Reads files of snapshots. Until a file changes, its own contents are the snapshot's; then another one preserves them.
 * A read names the expected version, and a file that has changed refuses it: then the catalog is queried again.
 */
export class SnapshotReads {
  readonly #ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>;
  readonly #known = new LruMap<string, SnapshotContents>(KNOWN_MAX);

  constructor(ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>) {
    this.#ask = ask;
  }

  /**
   * Calls `read` with the contents of the file in the snapshot, and again with newly queried ones if it fails with
   * `precondition-failed` (the file has changed) or, once, `not-found`.
   * @throws ServiceError `integrity` if no file has the contents any more
   */
  async use<Result>(
    file: FileId,
    snapshot: number,
    options: CallOptions,
    read: (shown: SnapshotContents) => Promise<Result>,
  ): Promise<Result> {
    const key = `${file}@${snapshot}`;
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const shown = this.#known.get(key) ?? (await this.#query(file, snapshot, options));
      this.#known.set(key, shown);
      try {
        return await read(shown);
      } catch (error) {
        // `not-found`: the snapshot may have been removed, and the preserving file with it.
        const code = error instanceof ServiceError ? error.code : null;
        if (code !== 'precondition-failed' && code !== 'not-found') throw error;
        this.#known.delete(key);
        if (code === 'not-found' && attempt > 1) throw error;
      }
    }
    throw new ServiceError(
      'integrity',
      `The contents of file ${file} in snapshot ${snapshot} were lost ` +
        'in a power failure of a majority of its servers',
    );
  }

  async #query(file: FileId, snapshot: number, options: CallOptions): Promise<SnapshotContents> {
    const attributes = await this.#ask(file, snapshot, options);
    const source = (attributes.source ?? file) as FileId;
    return { attributes, source, asOf: attributes.contents };
  }
}
