import { constants } from 'node:fs';
import { contentsName } from '../answered.ts';
import { ErrnoError } from '../errno.ts';
import type { HandleNumbers } from '../handle-numbers.ts';
import { ErrorCursor, type ErrorSequence } from '../pending/error-sequence.ts';
import type { Opened } from '../transport.ts';
import type { OpenFile } from './open-file.ts';
import { ReadPosition } from './read-ahead.ts';

/** A file as opened by one call of open(2). */
export interface FileHandle {
  readonly file: OpenFile;
  readonly writing: boolean;
  readonly appending: boolean;
  /** O_SYNC or O_DSYNC: every write survives a loss of power before it is answered. */
  readonly persisting: boolean;
  readonly position: ReadPosition;
  readonly isNoAtime: boolean;
  hasRead: boolean;
  /** The kernel has pages of an earlier open, and may answer reads without a request. */
  hasPages: boolean;
  readonly errors: ErrorCursor;
  /** After a split write Linux returns a short count in place of this error, and calls fsync, which must return it. */
  errorForSync: { readonly error: unknown } | null;
}

export class FileHandles {
  readonly #errors: ErrorSequence;
  readonly #byHandle = new Map<number, FileHandle>();
  readonly #numbers: HandleNumbers;

  constructor(errors: ErrorSequence, numbers: HandleNumbers) {
    this.#errors = errors;
    this.#numbers = numbers;
  }

  add(file: OpenFile, flags: number): Opened {
    const handle = this.#numbers.next();
    const appending = (flags & constants.O_APPEND) !== 0;
    this.#byHandle.set(handle, {
      file,
      writing: isForWriting(flags),
      appending,
      persisting: (flags & (constants.O_SYNC | constants.O_DSYNC)) !== 0,
      position: new ReadPosition(),
      isNoAtime: (flags & constants.O_NOATIME) !== 0,
      hasRead: false,
      hasPages: false,
      errors: new ErrorCursor(this.#errors, file.inode),
      errorForSync: null,
    });
    return {
      handle,
      // Appends go to the cluster's end of the file, which the kernel's cache cannot know.
      directIo: appending,
      linked: file.known.attributes.links > 1,
      // The version after pending bytes is not known yet.
      version: file.writes.dirty ? null : contentsName(file.inode, file.known.attributes.contents),
    };
  }

  of(handle: number): FileHandle {
    const opened = this.#byHandle.get(handle);
    if (opened === undefined) throw new ErrnoError('EBADF', `No handle ${handle} is open`);
    return opened;
  }

  delete(handle: number): void {
    this.#byHandle.delete(handle);
  }
}

/** @throws the latest error of a write since the last sync of the descriptor */
export function throwFailed({ errors }: FileHandle): void {
  const error = errors.check();
  if (error !== undefined) throw error;
}

export function isForWriting(flags: number): boolean {
  return (flags & (constants.O_WRONLY | constants.O_RDWR)) !== 0;
}
