import { LruMap } from '../base/bounded-map.ts';
import { ServiceError } from '../base/errors.ts';
import type { FileId } from '../base/ids.ts';
import type { Attributes, ContentVersion } from '../wire/catalog-api.ts';
import type { CallOptions } from './router.ts';

/** Files of snapshots of which it is remembered where their contents are. */
const KNOWN_MAX = 10_000;
/** The contents move once at the most while somebody reads: from the file itself to the one that preserves them. */
const ATTEMPTS_MAX = 3;

/** Where contents are that a snapshot shows, and of which version they are. */
export interface Shown {
  readonly attributes: Attributes;
  readonly source: FileId;
  readonly asOf: ContentVersion;
}

/**
 * Reads what snapshots show of files. As long as a file has not changed since, its own contents are the snapshot's; then another file has them.
 * Whoever reads says which version he means, and is refused by a file that has moved on: then the catalog is asked again.
 */
export class ShownFiles {
  readonly #ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>;
  readonly #known = new LruMap<string, Shown>(KNOWN_MAX);

  /** @param ask asks the catalog how the snapshot shows the file */
  constructor(ask: (file: FileId, snapshot: number, options: CallOptions) => Promise<Attributes>) {
    this.#ask = ask;
  }

  /**
   * @param read what is to be done with the contents; `precondition-failed` from it means that the file has moved on
   * @throws ServiceError `integrity` where nobody has the contents any more
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
        // Also where the snapshot was removed, and with it what preserved the contents.
        const code = error instanceof ServiceError ? error.code : null;
        if (code !== 'precondition-failed' && code !== 'not-found') throw error;
        this.#known.delete(key);
        if (code === 'not-found' && attempt > 1) throw error;
      }
    }
    throw new ServiceError(
      'integrity',
      `The contents of file ${file} that snapshot ${snapshot} shows are not there any more: they were lost with the power of a majority`,
    );
  }

  async #look(file: FileId, snapshot: number, options: CallOptions): Promise<Shown> {
    const attributes = await this.#ask(file, snapshot, options);
    const source = (attributes.source ?? file) as FileId;
    return { attributes, source, asOf: attributes.contents };
  }
}
