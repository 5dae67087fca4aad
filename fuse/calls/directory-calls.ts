import { constants } from 'node:fs';
import type { Answered } from '../answered.ts';
import { ErrnoError, type ErrnoName, errnoName, isNotFound } from '../errno.ts';
import type { Directories } from '../metadata/directories.ts';
import { ErrorCursor, type ErrorScope } from '../pending/error-sequence.ts';
import { FLUSH_ALL, type FlushScope } from '../pending/pending-ops.ts';
import type { DirectoryPage } from '../transport.ts';
import type { CallParts } from './call-parts.ts';
import type { InodeCalls } from './inode-calls.ts';

/** Errors of dropped operations that are wrong for `fsync`: it reports them as EIO. */
const CALL_ERRNOS: ReadonlySet<ErrnoName> = new Set([
  'EEXIST',
  'EACCES',
  'ENOENT',
  'EISDIR',
  'ENOTDIR',
  'EBUSY',
]);

export class DirectoryCalls {
  readonly #parts: CallParts;
  readonly #directories: Directories;
  readonly #inodeCalls: Pick<InodeCalls, 'recordRemoved'>;
  readonly #errorCursors = new Map<number, ErrorCursor>();

  constructor(parts: CallParts, directories: Directories, inodeCalls: Pick<InodeCalls, 'recordRemoved'>) {
    this.#parts = parts;
    this.#directories = directories;
    this.#inodeCalls = inodeCalls;
  }

  async openDirectory(inode: number, flags = 0): Promise<number> {
    const last = this.#parts.inodes.cache.attributes.lastOf(inode);
    const isNoAtime = (flags & constants.O_NOATIME) !== 0;
    const handle = this.#directories.open(inode, last, isNoAtime);
    this.#errorCursors.set(handle, this.#cursorOf(inode));
    return handle;
  }

  async readDirectory(handle: number, offset: number, countMax: number): Promise<DirectoryPage> {
    const { accesses, inodes } = this.#parts;
    const page = await this.#listedPage(handle, offset, countMax);
    const inode = this.#directories.countsAsAccess(handle) ? this.#directories.inodeOf(handle) : undefined;
    const attributes = inode === undefined ? undefined : inodes.cache.attributes.lastOf(inode);
    // Its attributes are unknown while a name in it changes: the next listing records the access.
    if (attributes !== undefined) accesses.recordRead(attributes);
    return page;
  }

  /** @returns a page without entries if the directory was removed, here or by another client (`not-found`) */
  async #listedPage(handle: number, offset: number, countMax: number): Promise<DirectoryPage> {
    const { removed, root } = this.#parts;
    const inode = this.#directories.inodeOf(handle) ?? root;
    if (removed.of(inode) !== undefined) return { entries: [] };
    try {
      return await this.#directories.read(handle, offset, countMax);
    } catch (error) {
      if (!isNotFound(error) || inode === root) throw error;
      await this.#inodeCalls.recordRemoved(inode);
      if (removed.of(inode) === undefined) throw error;
      return { entries: [] };
    }
  }

  /** Cached attributes of a listed name; undefined for a file that is open here, of which they may be too old. */
  listed(parent: number, name: string): Answered | undefined {
    const { accesses, backend, inodes } = this.#parts;
    const attributes = inodes.cache.entry(parent, name) ?? backend.granted(parent, name);
    if (attributes === undefined || inodes.isOpen(attributes.inode)) return undefined;
    return accesses.withReads(attributes);
  }

  async releaseDirectory(handle: number): Promise<void> {
    this.#directories.release(handle);
    this.#errorCursors.delete(handle);
  }

  trackErrors(handle: number): void {
    this.#errorCursors.set(handle, this.#cursorOf(this.#parts.root));
  }

  /** `fsync` of a directory: flushes its pending operations, of the root all, and throws errors of earlier ones. */
  async persistDirectory(inode: number, handle = 0): Promise<void> {
    const { backend, pending, root } = this.#parts;
    const scope: FlushScope = inode === root ? FLUSH_ALL : { kind: 'directory', inode };
    await pending.flush(scope).catch((error: unknown) => {
      throw syncFailure(error);
    });
    await backend.persistNames('cluster');
    const cursor = this.#errorCursors.get(handle) ?? this.#cursorOf(inode);
    const error = cursor.checkAndAdvance();
    if (error !== undefined) throw syncFailure(error);
  }

  /** A descriptor's cursor in the errors of a directory; the root's are those of the volume. */
  #cursorOf(directory: number): ErrorCursor {
    const { pending, root } = this.#parts;
    const scope: ErrorScope = directory === root ? 'volume' : directory;
    return new ErrorCursor(pending.errors, scope);
  }
}

function syncFailure(error: unknown): unknown {
  if (!CALL_ERRNOS.has(errnoName(error))) return error;
  return new ErrnoError('EIO', `Earlier changes are not stored: ${String(error)}`);
}
