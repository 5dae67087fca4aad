import { LruMap } from '../base/bounded-map.ts';
import { ServiceError } from '../base/errors.ts';
import type { ContentVersion } from '../wire/catalog-api.ts';
import { contentVersionCompare } from '../wire/content-version.ts';
import {
  type AcknowledgedRequest,
  type FlushResult,
  UNSYNCED_REQUESTS_MAX,
  type WriteResult,
} from '../wire/http-api.ts';
import { REQUEST_WINDOW } from './request-window.ts';

const FILES_MAX = 20_000;
/** Of one file. As many more may be acknowledged while they are flushed, in as many further epochs. */
const CHANGES_MAX = UNSYNCED_REQUESTS_MAX / 2;

/** Changes of a file's contents that were acknowledged are gone: all its servers have lost their power before a flush. */
export class ChangesLost extends ServiceError {
  constructor(file: number) {
    const why = 'changes that were acknowledged before are gone; all its servers have lost their power since';
    super('storage', `File ${file} is flushed, but ${why}`);
  }
}

export interface UnsyncedChange {
  /** What it made. */
  readonly contents: ContentVersion;
  /** Null where the file was created with its contents. */
  readonly request: AcknowledgedRequest | null;
}

interface UnsyncedFile {
  /** The last one of each epoch: contents that include it include the others of that epoch. Oldest epoch first. */
  changes: readonly UnsyncedChange[];
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
    add(this.change(file), { contents, request: null });
  }

  find(file: number): UnsyncedFile | undefined {
    return this.#files.get(file);
  }

  /** @param known to a handle, should it have been forgotten here */
  change(file: number, known: UnsyncedFile = { changes: [], lost: 0, reported: 0 }): UnsyncedFile {
    const unsynced = this.#files.get(file) ?? known;
    this.#files.set(file, unsynced);
    return unsynced;
  }

  /** Some of the file's changes are gone. */
  lose(unsynced: UnsyncedFile): void {
    unsynced.lost = ++this.#lossLast;
  }

  /** These changes are flushed. */
  clean(file: number, unsynced: UnsyncedFile, flushed: readonly UnsyncedChange[]): void {
    unsynced.changes = unsynced.changes.filter((change) => !flushed.includes(change));
    if (unsynced.changes.length === 0 && unsynced.lost === 0) this.#files.delete(file);
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

  /** Acknowledged and not flushed: what is sent from now on follows them, unless they are lost. */
  get changes(): readonly UnsyncedChange[] {
    return this.#find()?.changes ?? [];
  }

  /** @returns the lowest number of these changes in the session; Infinity where there is none */
  lowestOf(session: number): number {
    const numbers = this.changes.map(({ request }) =>
      request?.session === session ? request.number : Infinity,
    );
    return Math.min(...numbers);
  }

  /**
   * Whether these are to be flushed before the change of this number is sent: of a session a server keeps the results of the last
   * `SESSION_WINDOW` numbers, of which half may be under way.
   */
  isFull(session: number, number: number): boolean {
    return this.changes.length >= CHANGES_MAX || number - this.lowestOf(session) >= REQUEST_WINDOW;
  }

  /** @param sent `changes` when the change was sent */
  acknowledged(
    { before, contents }: WriteResult,
    request: AcknowledgedRequest,
    sent: readonly UnsyncedChange[],
  ): void {
    const unsynced = this.#changed();
    if (before !== undefined && isBehind(before, sent)) this.#files.lose(unsynced);
    add(unsynced, { contents, request });
  }

  /**
   * What a flush has answered; `report` says the rest.
   *
   * @param sent `changes` when the flush was sent
   */
  flushed({ contents, lost = false }: FlushResult, sent: readonly UnsyncedChange[]): void {
    const isLost = lost || isBehind(contents, sent);
    const unsynced = isLost ? this.#changed() : this.#find();
    if (unsynced === undefined) return;
    if (isLost) this.#files.lose(unsynced);
    this.#files.clean(this.#file, unsynced, sent);
  }

  /** @throws ChangesLost once, where changes that were acknowledged before are gone */
  report(): void {
    const unsynced = this.#find();
    if (unsynced === undefined || unsynced.lost <= this.#reported) return;
    this.#reported = unsynced.lost;
    unsynced.reported = unsynced.lost;
    throw new ChangesLost(this.#file);
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

/** Whether contents are older than what a change has made: it is gone, whatever made them. */
function isBehind(contents: ContentVersion, changes: readonly UnsyncedChange[]): boolean {
  return changes.some((change) => contentVersionCompare(contents, change.contents) < 0);
}

function add(unsynced: UnsyncedFile, change: UnsyncedChange): void {
  const { epoch } = change.contents;
  const isNewer = ({ contents }: UnsyncedChange): boolean =>
    contents.epoch === epoch && contentVersionCompare(contents, change.contents) >= 0;
  if (unsynced.changes.some(isNewer)) return;
  const others = unsynced.changes.filter(({ contents }) => contents.epoch !== epoch);
  unsynced.changes = [...others, change].sort((a, b) => contentVersionCompare(a.contents, b.contents));
}
