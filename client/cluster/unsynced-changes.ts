import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import {
  type AcknowledgedRequest,
  type FlushResult,
  UNSYNCED_REQUESTS_MAX,
  type WriteResult,
} from '../../wire/http-api.ts';
import { REQUEST_WINDOW } from '../transport/request-window.ts';

const FILES_MAX = 20_000;
/** Of one file. As many more may be acknowledged during a flush, in as many further epochs. */
const CHANGES_MAX = UNSYNCED_REQUESTS_MAX / 2;

/** Acknowledged changes of a file's contents are lost: all its servers had a power failure before a flush. */
export class ChangesLost extends ServiceError {
  constructor(file: number) {
    super(
      'storage',
      `Acknowledged changes of file ${file} are lost: all its servers lost power before a flush`,
    );
  }
}

export interface UnsyncedChange {
  readonly contents: ContentVersion;
  /** Null if the file was created with its contents. */
  readonly request: AcknowledgedRequest | null;
}

interface UnsyncedFile {
  /** The last change of each epoch, which includes the others of that epoch. Oldest epoch first. */
  changes: readonly UnsyncedChange[];
  /** Number of the last loss, 0 if there was none; and of the last one that a handle has reported. */
  lost: number;
  reported: number;
}

/**
 * Changes that were acknowledged to this client and are not flushed: of open files, and of the last 20,000 files
 * changed. A majority has applied them; a power failure of all servers may lose them, and then the contents have an
 * earlier version than an acknowledged change.
 *
 * A loss is reported as Linux reports writeback errors: once by each handle that existed when it was noticed, or by a
 * later handle if none has reported it.
 */
export class UnsyncedFiles {
  readonly #files = new LruMap<number, UnsyncedFile>(FILES_MAX);
  #lossLast = 0;

  of(file: number): UnsyncedChanges {
    return new UnsyncedChanges(this, file);
  }

  created(file: number, contents: ContentVersion): void {
    noteChange(this.entryOf(file), { contents, request: null });
  }

  find(file: number): UnsyncedFile | undefined {
    return this.#files.get(file);
  }

  entryOf(file: number, kept: UnsyncedFile = { changes: [], lost: 0, reported: 0 }): UnsyncedFile {
    const unsynced = this.#files.get(file) ?? kept;
    this.#files.set(file, unsynced);
    return unsynced;
  }

  noteLoss(unsynced: UnsyncedFile): void {
    unsynced.lost = ++this.#lossLast;
  }

  dropFlushed(file: number, unsynced: UnsyncedFile, flushed: readonly UnsyncedChange[]): void {
    unsynced.changes = unsynced.changes.filter((change) => !flushed.includes(change));
    if (unsynced.changes.length === 0 && unsynced.lost === 0) this.#files.delete(file);
  }
}

/** Unsynced changes of one file, for one handle. */
export class UnsyncedChanges {
  readonly #files: UnsyncedFiles;
  readonly #file: number;
  /** Number of the last loss that this handle has reported, or that was reported before it existed. */
  #reported: number;
  #lastEntry: UnsyncedFile | undefined;

  constructor(files: UnsyncedFiles, file: number) {
    this.#files = files;
    this.#file = file;
    this.#reported = this.#find()?.reported ?? 0;
  }

  /** Acknowledged and not flushed: later changes follow them, unless they are lost. */
  get changes(): readonly UnsyncedChange[] {
    return this.#find()?.changes ?? [];
  }

  /** @returns the smallest unsynced number of the session; `Infinity` if it has none */
  lowestOf(session: number): number {
    const numbers = this.changes.map(({ request }) =>
      request?.session === session ? request.number : Infinity,
    );
    return Math.min(...numbers);
  }

  /** Whether to flush before this number: servers keep the results of a session's last `SESSION_WINDOW` numbers. */
  isFull(session: number, number: number): boolean {
    return this.changes.length >= CHANGES_MAX || number - this.lowestOf(session) >= REQUEST_WINDOW;
  }

  /** Notes a change, and a loss if the contents before it are older than a change in `sent`, acknowledged earlier. */
  acknowledged(
    { before, contents }: WriteResult,
    request: AcknowledgedRequest,
    sent: readonly UnsyncedChange[],
  ): void {
    const unsynced = this.#entry();
    if (before !== undefined && isBehind(before, sent)) this.#files.noteLoss(unsynced);
    noteChange(unsynced, { contents, request });
  }

  /** Drops the changes `sent`, acknowledged before a flush was sent; notes a loss if its answer lacks one of them. */
  flushed({ contents, lost = false }: FlushResult, sent: readonly UnsyncedChange[]): void {
    const isLost = lost || isBehind(contents, sent);
    const unsynced = isLost ? this.#entry() : this.#find();
    if (unsynced === undefined) return;
    if (isLost) this.#files.noteLoss(unsynced);
    this.#files.dropFlushed(this.#file, unsynced, sent);
  }

  /** Reports a loss to this handle's caller. @throws ChangesLost once for each loss */
  report(): void {
    const unsynced = this.#find();
    if (unsynced === undefined || unsynced.lost <= this.#reported) return;
    this.#reported = unsynced.lost;
    unsynced.reported = unsynced.lost;
    throw new ChangesLost(this.#file);
  }

  #entry(): UnsyncedFile {
    this.#lastEntry = this.#files.entryOf(this.#file, this.#find());
    return this.#lastEntry;
  }

  /** A handle keeps the file's entry, however many other files are changed. */
  #find(): UnsyncedFile | undefined {
    this.#lastEntry = this.#files.find(this.#file) ?? this.#lastEntry;
    return this.#lastEntry;
  }
}

/** Whether contents are older than what a change has made: that change is lost. */
function isBehind(contents: ContentVersion, changes: readonly UnsyncedChange[]): boolean {
  return changes.some((change) => contentVersionCompare(contents, change.contents) < 0);
}

/** Notes a change in place of an earlier one of its epoch, unless a later one is noted. */
function noteChange(unsynced: UnsyncedFile, change: UnsyncedChange): void {
  const { epoch } = change.contents;
  const isNewer = ({ contents }: UnsyncedChange): boolean =>
    contents.epoch === epoch && contentVersionCompare(contents, change.contents) >= 0;
  if (unsynced.changes.some(isNewer)) return;
  const others = unsynced.changes.filter(({ contents }) => contents.epoch !== epoch);
  unsynced.changes = [...others, change].sort((a, b) => contentVersionCompare(a.contents, b.contents));
}
