import { ServiceError } from '../base/errors.ts';
import type { ContentVersion } from '../wire/catalog-api.ts';
import { contentVersionCompare } from '../wire/content-version.ts';
import type { FileState, WriteResult } from '../wire/http-api.ts';

/**
 * Changes of one file that were acknowledged here and not flushed yet. A majority has applied them; when all servers lose their
 * power they may be gone, and the contents are of an earlier version than a change that was answered.
 */
export class UnsyncedChanges {
  #newest: ContentVersion | null = null;
  #areLost = false;

  /** The newest contents that an unsynced change has made: to be compared with answers to what is sent from now on. */
  get newest(): ContentVersion | null {
    return this.#newest;
  }

  /** @param sent `newest` when the change was sent */
  acknowledged({ before, contents }: WriteResult, sent: ContentVersion | null): void {
    if (sent !== null && before !== undefined && contentVersionCompare(before, sent) < 0)
      this.#areLost = true;
    if (this.#newest === null || contentVersionCompare(contents, this.#newest) > 0) this.#newest = contents;
  }

  /**
   * @param sent `newest` when the flush was sent
   * @throws ServiceError `storage`, once, where changes that were acknowledged before are gone
   */
  flushed({ file, contents }: FileState, sent: ContentVersion | null): void {
    const areLost = this.#areLost || (sent !== null && contentVersionCompare(contents, sent) < 0);
    this.#areLost = false;
    if (areLost || this.#newest === sent) this.#newest = null;
    if (!areLost) return;
    const why = 'changes that were acknowledged before are gone; all its servers have lost their power since';
    throw new ServiceError('storage', `File ${file} is flushed, but ${why}`);
  }
}
