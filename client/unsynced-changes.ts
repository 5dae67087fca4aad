import { LruMap } from '../base/bounded-map.ts';
import { ServiceError } from '../base/errors.ts';
import type { ContentVersion } from '../wire/catalog-api.ts';
import { contentVersionCompare } from '../wire/content-version.ts';
import type { FileState, WriteResult } from '../wire/http-api.ts';

const FILES_MAX = 20_000;

interface UnsyncedFile {
  /** The newest contents that an unsynced change has made. */
  newest: ContentVersion | null;
  /** Number of the last loss of this file; 0: none. */
  lost: number;
  /** Number of the last loss that a handle has reported. */
  reported: number;
}

/**
 * Changes that were acknowledged to this client and are not flushed yet: of open files, and of the last 20,000 that were
 * changed. A majority has applied them; when all servers lose their power they may be gone, and the contents are of an
 * earlier version than a change that was answered.
 *
 * A loss is reported as Linux reports errors of writeback: once by each handle that was there when it was noticed, or by a later
 * handle where none has reported it.
 */
export class UnsyncedFiles {
  readonly #files = new LruMap<number, UnsyncedFile>(FILES_MAX);
  #lossLast = 0;

  /** @returns what one handle of the file keeps */
  of(file: number): UnsyncedChanges {
    return new UnsyncedChanges(this, file);
  }

  /** A file was created with contents. */
  created(file: number, contents: ContentVersion): void {
    advance(this.change(file), contents);
  }

  find(file: number): UnsyncedFile | undefined {
    return this.#files.get(file);
  }

  /** @param known to a handle, should it have been forgotten here */
  change(file: number, known: UnsyncedFile = { newest: null, lost: 0, reported: 0 }): UnsyncedFile {
    const unsynced = this.#files.get(file) ?? known;
    this.#files.set(file, unsynced);
    return unsynced;
  }

  /** Some of the file's changes are gone. */
  lose(unsynced: UnsyncedFile): void {
    unsynced.lost = ++this.#lossLast;
  }

  /** All changes of the file are flushed. */
  clean(file: number, unsynced: UnsyncedFile): void {
    unsynced.newest = null;
    if (unsynced.lost === 0) this.#files.delete(file);
  }
}

/** Unsynced changes of one file, for one handle. */
export class UnsyncedChanges {
  readonly #files: UnsyncedFiles;
  readonly #file: number;
  /** Number of the last loss that was reported by this handle, or before it was there. */
  #reported: number;
  #known: UnsyncedFile | undefined;

  constructor(files: UnsyncedFiles, file: number) {
    this.#files = files;
    this.#file = file;
    this.#reported = this.#find()?.reported ?? 0;
  }

  /** The newest contents that an unsynced change has made: to be compared with answers to what is sent from now on. */
  get newest(): ContentVersion | null {
    return this.#find()?.newest ?? null;
  }

  /** @param sent `newest` when the change was sent */
  acknowledged({ before, inherited, contents }: WriteResult, sent: ContentVersion | null): void {
    const unsynced = this.#changed();
    const lacks = (known: ContentVersion | undefined): boolean =>
      sent !== null && known !== undefined && contentVersionCompare(known, sent) < 0;
    // Others may have changed the file since its epoch began, or the answer may be told once more: then `before` says nothing of a loss.
    const isOfEarlier = sent !== null && sent.epoch < contents.epoch;
    if (lacks(before) || (isOfEarlier && lacks(inherited))) this.#files.lose(unsynced);
    advance(unsynced, contents);
  }

  /**
   * @param sent `newest` when the flush was sent
   * @throws ServiceError `storage`, once, where changes that were acknowledged before are gone
   */
  flushed({ file, contents }: FileState, sent: ContentVersion | null): void {
    const isBehind = sent !== null && contentVersionCompare(contents, sent) < 0;
    const unsynced = isBehind ? this.#changed() : this.#find();
    if (unsynced === undefined) return;
    if (isBehind) this.#files.lose(unsynced);
    const areLost = unsynced.lost > this.#reported;
    if (areLost || unsynced.newest === sent) this.#files.clean(this.#file, unsynced);
    if (!areLost) return;
    this.#reported = unsynced.lost;
    unsynced.reported = unsynced.lost;
    const why = 'changes that were acknowledged before are gone; all its servers have lost their power since';
    throw new ServiceError('storage', `File ${file} is flushed, but ${why}`);
  }

  #changed(): UnsyncedFile {
    this.#known = this.#files.change(this.#file, this.#find());
    return this.#known;
  }

  /** A handle that is open does not forget what it has changed, however many other files are changed. */
  #find(): UnsyncedFile | undefined {
    this.#known = this.#files.find(this.#file) ?? this.#known;
    return this.#known;
  }
}

function advance(unsynced: UnsyncedFile, contents: ContentVersion): void {
  if (unsynced.newest === null || contentVersionCompare(contents, unsynced.newest) > 0)
    unsynced.newest = contents;
}
