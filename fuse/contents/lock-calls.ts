import type { LockRequest, Log } from '../transport.ts';
import { type FileHandles, throwFailed } from './file-handles.ts';
import type { OpenLocks } from './locks.ts';
import type { OpenFile } from './open-file.ts';
import type { OpenFiles } from './open-files.ts';

export class LockCalls {
  readonly #files: Pick<OpenFiles, 'dropPages'>;
  readonly #handles: FileHandles;
  readonly #log: Log;

  constructor(files: Pick<OpenFiles, 'dropPages'>, handles: FileHandles, log: Log) {
    this.#files = files;
    this.#handles = handles;
    this.#log = log;
  }

  lockHolder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    return this.#locksOf(this.#handles.of(handle).file).holder(handle, request);
  }

  /** Locks or unlocks. What was written under a lock is stored before it is released or weakened. */
  async lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void> {
    const opened = this.#handles.of(handle);
    const { file } = opened;
    if (request.type === 'unlock') {
      if (file.locks === null) return;
      await this.#flushWrites(file);
      await file.locks.lock(handle, request, false, signal);
      if (opened.writing) throwFailed(opened);
      return;
    }
    const locks = this.#locksOf(file);
    // This may weaken a lock, like an unlock; a lock of flock is released before it is changed.
    if (locks.isOwner(handle, request) && (request.type === 'shared' || request.kind === 'flock')) {
      await this.#flushWrites(file);
      if (opened.writing) throwFailed(opened);
    }
    await locks.lock(handle, request, waits, signal);
    try {
      await file.refresh(() => this.#files.dropPages(file));
      await file.lostPagesDropped();
    } catch (error) {
      // After an error the program assumes that it has no lock.
      await locks.lock(handle, { ...request, type: 'unlock' }, false, signal);
      throw error;
    }
  }

  async #flushWrites(file: OpenFile): Promise<void> {
    await file.writes.drain();
    await file.lostPagesDropped();
  }

  #locksOf(file: OpenFile): OpenLocks {
    return file.openLocks((lost) => {
      this.#log('error', 'locks were lost', { file: file.inode, locks: lost.length });
    });
  }
}
