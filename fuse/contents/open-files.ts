import { constants } from 'node:fs';
import { assert } from '../../base/assert.ts';
import { dateOfNs } from '../../base/dates.ts';
import { nowNs } from '../../base/times.ts';
import { allDone } from '../all-done.ts';
import type { Answered } from '../answered.ts';
import type { Attributes } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import { Inodes } from '../metadata/inodes.ts';
import { FLUSH_ALL, type FlushScope, type PendingKind } from '../pending/pending-ops.ts';
import { Settles } from '../pending/settles.ts';
import type { Caller, FileKernel } from '../transport.ts';
import type { FileParts } from './contents-parts.ts';
import { isForWriting } from './file-handles.ts';
import { FreeSpace } from './free-space.ts';
import { OpenFile, type OpenFileParts } from './open-file.ts';
import { Privileges } from './privileges.ts';
import { StalePageChecks } from './stale-page-checks.ts';
import { UnlinkedFiles } from './unlinked-files.ts';
import { WrittenPages } from './written-pages.ts';

/** Files that are open on this mount, from the first open until they are settled. */
export class OpenFiles implements PendingKind {
  readonly inodes: Inodes;
  readonly freeSpace: FreeSpace;
  readonly privileges: Privileges;
  readonly orphans: UnlinkedFiles;
  readonly #parts: FileParts;
  readonly #fileParts: OpenFileParts;
  readonly #pages: WrittenPages;
  readonly #open = new Map<number, OpenFile>();
  #pageChecks: StalePageChecks | null = null;
  readonly #settles: Settles;
  kernel: FileKernel | null = null;

  constructor(parts: FileParts, writtenBytesMax: number) {
    const { world, backend, cache, accesses, log, pending } = parts;
    this.#parts = parts;
    this.#settles = new Settles(log);
    this.#pages = new WrittenPages(writtenBytesMax);
    const openFile = (inode: number): OpenFile | undefined => this.#open.get(inode);
    this.inodes = new Inodes(world, backend, cache, openFile, accesses, pending);
    this.freeSpace = new FreeSpace(world, () => backend.space());
    this.privileges = new Privileges(backend, this.inodes);
    const kernel = (): FileKernel | null => this.kernel;
    this.#fileParts = {
      ...{ ...parts, freeSpace: this.freeSpace },
      get kernel() {
        return kernel();
      },
      dropPages: (inode) => this.#dropLostPages(inode),
    };
    this.orphans = new UnlinkedFiles(world, backend, () => this.#open.keys(), log);
  }

  /** Called once the kernel has mounted the file system: pages of open files are checked from then on. */
  mounted(kernel: FileKernel): void {
    this.kernel = kernel;
    // Over `fuse-native` the kernel cannot drop pages.
    if (!kernel.checksAttributesBeforeReads) return;
    const check = async (file: OpenFile): Promise<void> => void (await this.confirm(file, true));
    const { world, cache } = this.#parts;
    this.#pageChecks = new StalePageChecks(world, cache.ttlMs, () => this.#open.values(), check);
  }

  /** Adds a handle. @throws ErrnoError `ESTALE`: a name that the kernel has cached may be another file's now */
  async open(inode: number, flags: number, caller: Caller): Promise<OpenFile> {
    const writing = isForWriting(flags);
    // Linux requires write permission for it, however the file is opened.
    const truncates = (flags & constants.O_TRUNC) !== 0;
    const { thread = 0 } = caller;
    const isRepetition = this.inodes.cache.kernel.refusedOpens.isRepetition(thread, inode);
    const attributes = await this.#attributesToOpen(inode, thread, isRepetition);
    if (attributes.kind === 'directory') throw new ErrnoError('EISDIR', `Inode ${inode} is a directory`);
    if (attributes.kind !== 'file') throw new ErrnoError('ENXIO', `Inode ${inode} has no contents`);
    this.#assertNameCurrent(attributes, thread, isRepetition);
    if (writing || truncates) assertMayChange(attributes, flags, nowNs(this.#parts.world));
    const file = this.#addHandle(attributes, writing);
    // Another client has unlinked it since the look-up.
    if (attributes.links === 0) this.orphans.add(inode);
    try {
      if (writing && file.source.isStoringPages) await file.source.invalidate();
      // An open does not wait for pending bytes of other handles; a read does.
      if (!file.writes.dirty) await file.present(attributes);
      if ((writing || truncates) && attributes.policy === 'read-only') await this.#assertUnsealed(file);
      if (writing && truncates) {
        await this.privileges.clear(file, caller);
        this.inodes.cache.attributes.written(inode);
        await file.truncate(0);
      } else if (truncates) await this.truncate(inode, 0, caller, false);
    } catch (error) {
      this.close(file, writing);
      throw error;
    }
    return file;
  }

  /** From the look-up just before the open, else the cluster. @param isRepetition it repeats a refused open */
  async #attributesToOpen(inode: number, thread: number, isRepetition: boolean): Promise<Answered> {
    if (isRepetition) return this.inodes.request(inode);
    return this.inodes.cache.lookedUpToOpen(inode) ?? (await this.inodes.requestToOpen(inode, thread));
  }

  /**
   * Refuses an open of an unlinked file: the kernel may have opened by a cached name that another client has given to
   * another file. After `ESTALE` it looks the name up again. It caches no name of a file that was unlinked here.
   */
  #assertNameCurrent({ inode, links }: Attributes, thread: number, isRepetition: boolean): void {
    if (links > 0 || isRepetition || this.orphans.has(inode)) return;
    const { cache } = this.inodes;
    const { refusedOpens } = cache.kernel;
    if (this.#open.has(inode) && !cache.isNameCached(inode)) return;
    refusedOpens.refuse(thread, inode, cache.namesOf(inode));
    cache.attributes.drop(inode);
    throw new ErrnoError('ESTALE', `File ${inode} was unlinked`);
  }

  /** Opens a file that was just created, for the handle that created it. */
  async created(attributes: Attributes, writing: boolean): Promise<OpenFile> {
    const file = this.#addHandle(attributes, writing);
    file.unsettled = true;
    // Another client may have found its name already, and read it.
    if (file.source.isStoringPages) await file.source.invalidate();
    if (this.freeSpace.isShort) await this.#commitOrAbort(file, writing);
    return file;
  }

  /** Commits a new file while space is short: the program that creates it gets the error if there is none. */
  async #commitOrAbort(file: OpenFile, writing: boolean): Promise<void> {
    try {
      await file.flush(true);
    } catch (error) {
      // Before the answer, so that no program finds the file afterwards. It fails with the same error.
      file.unsettled = false;
      await file.settle().catch(() => undefined);
      this.close(file, writing);
      throw error;
    }
  }

  /** Commits a file that mknod(2) created. No program has it open, so it is settled at once. */
  async commitUnopened(attributes: Attributes): Promise<void> {
    const file = this.#addHandle(attributes, true);
    file.unsettled = true;
    try {
      await file.flush(true);
    } finally {
      this.close(file, true);
    }
  }

  /** Called after an unlink of the last name. A file that is open here is kept until its close. */
  unlinked(inode: number): void {
    if (this.#open.has(inode)) this.orphans.add(inode);
  }

  openFile(inode: number): OpenFile | undefined {
    return this.#open.get(inode);
  }

  isOpenForWriting(inode: number): boolean {
    return (this.#open.get(inode)?.writerCount ?? 0) > 0;
  }

  get openForWritingCount(): number {
    return [...this.#open.values()].filter(({ writerCount }) => writerCount > 0).length;
  }

  /** Truncates a file, which need not be open. @param isByPath the program passed a path, not a descriptor */
  async truncate(inode: number, sizeBytes: number, caller: Caller, isByPath: boolean): Promise<void> {
    const attributes = await this.#attributesToTruncate(inode, caller, isByPath);
    this.inodes.assertNamed(attributes);
    const file = this.#addHandle(attributes, true);
    try {
      if (file.source.isStoringPages) await file.source.invalidate();
      await this.privileges.clear(file, caller);
      await file.truncate(sizeBytes);
    } finally {
      this.close(file, true);
    }
    this.inodes.cache.attributes.forget(inode);
  }

  /** By path, of the file that has the name now, as for an open; by descriptor, of this inode. */
  async #attributesToTruncate(inode: number, { thread = 0 }: Caller, isByPath: boolean): Promise<Attributes> {
    const { cache } = this.inodes;
    const { refusedOpens } = cache.kernel;
    const isRepetition = isByPath && refusedOpens.isRepetition(thread, inode);
    if (isRepetition || (isByPath && cache.isNameCached(inode)))
      return this.#attributesToOpen(inode, thread, isRepetition);
    return (
      this.#open.get(inode)?.known.attributes ?? cache.lookedUp(inode) ?? (await this.inodes.request(inode))
    );
  }

  /**
   * Requests the version: bytes that were fetched of an older one are not read any more.
   * @param dropsPages has the kernel drop pages that another client has changed
   * @returns false if the cluster does not report the version
   */
  async confirm(file: OpenFile, dropsPages = false): Promise<boolean> {
    const askedMs = this.#parts.world.nowMs();
    try {
      const attributes = await this.inodes.request(file.inode);
      file.known.confirm(attributes, askedMs);
      if (dropsPages) await file.refreshPages(attributes, () => this.dropPages(file));
      return true;
    } catch (error) {
      // The read gets the same error, or does not use fetched bytes.
      this.#parts.log('debug', 'contents are not confirmed', { file: file.inode, error: String(error) });
      return false;
    }
  }

  async dropPages({ inode }: Pick<OpenFile, 'inode'>): Promise<void> {
    this.inodes.cache.attributes.forget(inode);
    await this.kernel?.invalidateInode(inode);
  }

  /** Drops the kernel's pages, which show lost bytes. Over `fuse-native` it cannot drop them. */
  async #dropLostPages(inode: number): Promise<void> {
    if (this.kernel?.checksAttributesBeforeReads !== true) return;
    try {
      await this.dropPages({ inode });
    } catch (error) {
      this.#parts.log('warn', 'pages of lost bytes are not dropped', { file: inode, error: String(error) });
    }
  }

  /** Stores pending writes; their errors go into the sequence. @throws why an uncommitted file cannot be stored */
  async flush(scope: FlushScope): Promise<void> {
    const files = [...this.#open.values()];
    const meant = files.filter(
      ({ inode }) => scope.kind === 'all' || (scope.kind === 'inode' && scope.inode === inode),
    );
    await allDone(meant.map((file) => file.flush()));
  }

  /** After the unmount: stores and settles all files. */
  async stop(): Promise<void> {
    this.orphans.stop();
    this.#pageChecks?.stop();
    // Programs that have the file open get the failure.
    await this.flush(FLUSH_ALL).catch(() => undefined);
    await Promise.all([...this.#open.values()].map((file) => file.locks?.close()));
    for (const file of this.#open.values()) {
      const { failure } = file.writes;
      if (failure !== null)
        this.#parts.log('error', 'writes were lost', { file: file.inode, error: String(failure.error) });
      // No program can write any more, although handles may be open.
      file.writerCount = 0;
      if (file.unsettled) this.#settle(file);
    }
    await this.#settles.flush(FLUSH_ALL);
  }

  /** Counts one more handle, which `close` ends; opens the file unless it is open. */
  #addHandle(attributes: Attributes, writing: boolean): OpenFile {
    let file = this.#open.get(attributes.inode);
    if (file === undefined) {
      const { inode, replicas, contents } = attributes;
      const backend = this.#parts.backend.openFile(inode, replicas, contents);
      file = new OpenFile(this.#fileParts, attributes, backend, this.#pages.of(inode, contents));
      this.#open.set(attributes.inode, file);
    }
    file.handleCount++;
    if (writing) file.writerCount++;
    return file;
  }

  /** Ends a handle. The last one that writes settles the file; the last of all closes it. */
  close(file: OpenFile, writing: boolean): void {
    file.handleCount--;
    if (writing) file.writerCount--;
    if (file.writerCount === 0 && file.unsettled && !this.orphans.has(file.inode)) this.#settle(file);
    if (file.handleCount > 0) return;
    assert(!file.source.isStoringPages, 'The next open knows nothing of pages on their way');
    // While the file was open, this mount's attributes were newer than those requested before its writes were stored.
    if (file.written || file.writes.failure !== null)
      this.inodes.cache.attributes.closed(file.inode, (before) => file.withOwnWrites(before));
    file.locks?.close().catch((error: unknown) => {
      this.#parts.log('error', 'locks of a closed file are not released', { error: String(error) });
    });
    file.closed();
    this.#open.delete(file.inode);
    if (this.orphans.has(file.inode)) this.#parts.accesses.forget(file.inode);
    this.orphans.delete(file.inode);
  }

  #settle(file: OpenFile): void {
    file.unsettled = false;
    this.#settles.add(file);
  }

  /** Called at an open for writing, so that the program gets the error before its first write. */
  async #assertUnsealed(file: OpenFile): Promise<void> {
    await this.#settles.sealed(file.inode);
    const { sealed = false } = await file.state();
    if (sealed) throw new ErrnoError('EROFS', `File ${file.inode} is sealed`);
  }
}

/** Called at an open for writing. @throws ErrnoError `EPERM` if the flags forbid it; the primary checks each write */
function assertMayChange(
  { inode, flags: kept = [], retainUntilNs }: Attributes,
  flags: number,
  wallNs: bigint,
): void {
  const appends = (flags & constants.O_APPEND) !== 0 && (flags & constants.O_TRUNC) === 0;
  if (kept.includes('immutable') || (kept.includes('append-only') && !appends))
    throw new ErrnoError('EPERM', `Cannot open file ${inode} to change it: it is ${kept.join(' and ')}`);
  if (retainUntilNs !== undefined && BigInt(retainUntilNs) > wallNs)
    throw new ErrnoError(
      'EPERM',
      `Cannot open file ${inode} to change it: it is retained until ${dateOfNs(retainUntilNs)}`,
    );
}
