import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import type { CallOptions } from './router.ts';

const KNOWN_MAX = 10_000;
/** The contents move at most once during a read: from the file itself to the one that preserves them. */
const ATTEMPTS_MAX = 3;

/** The file that has the contents of a file in a snapshot, and their version. */
export interface Shown {
  readonly attributes: Attributes;
  readonly source: FileId;
  readonly asOf: ContentVersion;
}

/**
 * Reads files of snapshots. Until a file changes, its own contents are the snapshot's; then another file preserves
 * them. A read has the expected version, and a file that has changed refuses it: then the catalog is asked again.
 */
export class ShownFiles {
  readonly #ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>;
  readonly #known = new LruMap<string, Shown>(KNOWN_MAX);

  constructor(ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>) {
    this.#ask = ask;
  }

  /**
   * @param read uses the contents; `precondition-failed` from it means that the file has changed
   * @throws ServiceError `integrity` if no file has the contents any more
   */
  async use<Result>(
    file: FileId,
    snapshot: number,
    options: CallOptions,
    read: (shown: Shown) => Promise<Result>,
  ): Promise<Result> {
    const key = `${file}@${snapshot}`;
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const shown = this.#known.get(key) ?? (await this.#look(file, snapshot, options));
      this.#known.set(key, shown);
      try {
        return await read(shown);
      } catch (error) {
        // Also after the removal of the snapshot, and of the preserving file with it.
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

  async #look(file: FileId, snapshot: number, options: CallOptions): Promise<Shown> {
    const attributes = await this.#ask(file, snapshot, options);
    const source = (attributes.source ?? file) as FileId;
    return { attributes, source, asOf: attributes.contents };
  }
}
