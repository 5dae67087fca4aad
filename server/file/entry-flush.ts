import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { FileStore } from '../storage/store.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { isUnchangedSinceCreation } from './creation-operations.ts';

/** Flushes of one call, each of which ended in another epoch of the catalog than the one before. */
const FLUSHES_MAX = 8;
const RETRY_MS = 500;

export interface EntryFlushParts {
  flush(): Promise<void>;
  epoch(): number;
  /** Whether the catalog asks the primary for the size of the file, or has the contents that it has here. */
  knows(): Promise<boolean>;
  mark(): Promise<unknown>;
}

/**
 * Makes the file's entry in the catalog, and the mark under which it is written, survive a loss of power. A loss of
 * power of all members of the catalog may take the mark before the flush, but the catalog has another epoch after it:
 * the flush covers what was answered in its own epoch, and for older answers the catalog is asked.
 */
export class EntryFlush {
  readonly #parts: EntryFlushParts;
  /** An epoch of the catalog, not later than that in which it has set the mark; null if unknown. */
  #markedIn: number | null;
  #flushed: Promise<void> | null = null;

  constructor(parts: EntryFlushParts, markedIn: number | null) {
    this.#parts = parts;
    this.#markedIn = markedIn;
  }

  /** A new mark was set, and has to be flushed: else a loss of power would leave the catalog with an older size. */
  marked(epoch: number): void {
    this.#markedIn = epoch;
    this.#flushed = null;
  }

  flush(): Promise<void> {
    if (this.#flushed !== null) return this.#flushed;
    const flushed = this.#flush().catch((error: unknown) => {
      if (this.#flushed === flushed) this.#flushed = null;
      throw error;
    });
    this.#flushed = flushed;
    return flushed;
  }

  async #flush(): Promise<void> {
    const { flush, epoch } = this.#parts;
    let since = this.#markedIn ?? (await this.#ensureKnown());
    for (let flushes = 1; ; flushes++) {
      await flush();
      if (epoch() === since) return;
      if (flushes === FLUSHES_MAX) break;
      since = await this.#ensureKnown();
    }
    throw new ServiceError('no-majority', "The catalog's primary changed during every flush: retry later", {
      retryAfterMs: RETRY_MS,
    });
  }

  /** Sets a mark if the catalog lost the one before. @returns an epoch of the catalog not later than its answer's */
  async #ensureKnown(): Promise<number> {
    const { epoch, knows, mark } = this.#parts;
    const since = epoch();
    if (!(await knows())) await mark();
    return since;
  }
}

/**
 * Whether the catalog asks the primary for the size, or has these contents, which are those of the replica here.
 * @throws ServiceError `not-found` if the file was deleted for good, or the catalog lost its creation with its power
 */
export async function isInCatalog(
  store: FileStore,
  catalog: CatalogAccess,
  file: FileId,
  contents: ContentVersion,
): Promise<boolean> {
  const known = await catalog.attributes(file);
  const record = store.record(file);
  // A file that was created with contents is lost or kept together with them.
  if (contents.epoch === 0 || (record !== null && isUnchangedSinceCreation(record, store.attributes(file))))
    return true;
  return known.live || contentVersionCompare(known.contents, contents) >= 0;
}
