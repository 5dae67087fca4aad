import { constants } from 'node:fs';
import {
  OPCODE,
  OPEN_KILL_PRIVILEGES,
  OPENED_FLAG,
  WRITE_KILL_PRIVILEGES,
} from '../../../fuse/kernel/protocol.ts';
import { killCapability, setLocked } from './attributes.ts';
import type { Dentry } from './dentries.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import { type Inode, STALE, STALE_WRITTEN } from './inode.ts';
import { ignoreKernelError, KernelError } from './kernel-error.ts';
import { Mutex } from './kernel-locks.ts';
import { LocalLocks } from './local-locks.ts';
import { type DirectoryEntry, longs, readDirectoryEntries, readLong, words } from './messages.ts';
import type { Names } from './names.ts';
import { PAGE_BYTES, type PageSource, ReadAheadState } from './page-cache.ts';
import { dropsPrivileges, isCapable } from './permissions.ts';
import { KERNEL } from './request-queue.ts';

/** max_read and max_write: 1 MiB. */
const REQUEST_BYTES_MAX = 1024 * 1024;
const WRITE_CACHE = 1 << 0;
const RELEASE_UNLOCKS_FLOCK = 1 << 1;
const KEEP_SIZE = 0x01;
const PUNCH_HOLE = 0x02;
const ZERO_RANGE = 0x10;
const FDATASYNC = 1;
const GETDENTS_BYTES = 32 * 1024;
const O_ACCMODE = 3;

/** What a mount must release after its last use: `struct fuse_file`. */
class Handle {
  readonly number: number;
  readonly flags: number;
  users = 1;
  /** Whether it may hold a lock of flock. */
  locks = false;

  constructor(number: number, flags: number) {
    this.number = number;
    this.flags = flags;
  }
}

/** Opens and releases files, and knows those that are mapped for writing. */
export class OpenFiles {
  readonly client: FuseClient;
  readonly names: Names;
  readonly locks = new LocalLocks();
  readonly #mapped = new Map<Inode, Set<OpenFile>>();
  /** Counts opens; its number is a file's owner for locks of flock. */
  #opened = 0;

  constructor(client: FuseClient, names: Names) {
    this.client = client;
    this.names = names;
    client.writeDirty = (inode, offset, bytes) => this.#writeDirty(inode, offset, bytes);
  }

  /** fuse_do_open and fuse_finish_open. */
  async open(call: Call, dentry: Dentry, inode: Inode, flags: number): Promise<OpenFile> {
    if (inode.isBad) throw new KernelError('EIO');
    const { client } = this;
    const truncates = (flags & constants.O_TRUNC) !== 0;
    const sent = flags & ~(constants.O_CREAT | constants.O_EXCL | constants.O_NOCTTY);
    const kills = truncates && !isCapable(call.task) ? OPEN_KILL_PRIVILEGES : 0;
    const opcode = inode.isDirectory ? OPCODE.opendir : OPCODE.open;
    const reply = await client.queue.request(call.task, opcode, inode.node, [words(sent, kills)]);
    const file = this.opened(dentry, inode, flags, readLong(reply), reply.readUInt32LE(8));
    if (inode.isDirectory) return file;
    if (truncates) {
      // fuse_truncate_update_attr
      inode.version = client.nextVersion();
      inode.sizeBytes = 0;
      inode.invalidate(STALE_WRITTEN);
      await client.pages(inode).truncate(0);
    } else if (!file.keepsCache) await client.dropPages(inode);
    return file;
  }

  opened(dentry: Dentry, inode: Inode, flags: number, handle: number, openedFlags: number): OpenFile {
    this.#opened++;
    return new OpenFile(this, this.#opened, dentry, inode, flags, new Handle(handle, openedFlags));
  }

  /** fuse_link_write_file: the file's handle writes changes through a mapping. */
  mapped(file: OpenFile): void {
    const { inode } = file;
    if (file.isWritable) this.#mapped.set(inode, (this.#mapped.get(inode) ?? new Set()).add(file));
  }

  closed(file: OpenFile): void {
    const files = this.#mapped.get(file.inode);
    files?.delete(file);
    if (files?.size === 0) this.#mapped.delete(file.inode);
  }

  /** fuse_writepages: writes pages that were changed through a mapping. */
  async #writeDirty(inode: Inode, offset: number, bytes: Buffer): Promise<void> {
    const file = [...(this.#mapped.get(inode) ?? [])].at(-1);
    if (file === undefined) throw new KernelError('EIO', 'No file is open for writing');
    await file.withHandle(async (handle) => {
      const body = [longs(handle, offset), words(bytes.length, WRITE_CACHE), longs(0), words(0, 0), bytes];
      await this.client.queue.request(KERNEL, OPCODE.write, inode.node, body, { force: true });
    });
    inode.invalidate(STALE.modified);
  }
}

/** An open file description: `struct file`. */
export class OpenFile {
  readonly dentry: Dentry;
  readonly inode: Inode;
  flags: number;
  position = 0;
  /** The number of descriptors and mappings. */
  references = 1;
  readonly positionLock = new Mutex();
  readonly #files: OpenFiles;
  readonly #number: number;
  readonly #handle: Handle;
  readonly #ahead = new ReadAheadState();
  #seenErrors: number;

  constructor(files: OpenFiles, number: number, dentry: Dentry, inode: Inode, flags: number, handle: Handle) {
    this.#files = files;
    this.#number = number;
    this.dentry = files.client.dentries.use(dentry);
    this.inode = inode;
    this.flags = flags & ~(constants.O_CREAT | constants.O_EXCL | constants.O_NOCTTY | constants.O_TRUNC);
    this.#handle = handle;
    this.#seenErrors = inode.writeErrors.count;
    inode.references++;
  }

  get handle(): number {
    return this.#handle.number;
  }

  get isReadable(): boolean {
    return (this.flags & O_ACCMODE) !== constants.O_WRONLY;
  }

  get isWritable(): boolean {
    return (this.flags & O_ACCMODE) !== constants.O_RDONLY;
  }

  get keepsCache(): boolean {
    return (this.#handle.flags & OPENED_FLAG.keepCache) !== 0;
  }

  get isDirect(): boolean {
    return (this.#handle.flags & OPENED_FLAG.directIo) !== 0;
  }

  /** The owner of its locks of flock. */
  get owner(): bigint {
    return 0x2_0000_0000n + BigInt(this.#number);
  }

  locksWhole(): void {
    this.#handle.locks = true;
  }

  /** Keeps the handle from being released while `run` uses it. */
  async withHandle<Value>(run: (handle: number) => Promise<Value>): Promise<Value> {
    this.#handle.users++;
    try {
      return await run(this.#handle.number);
    } finally {
      this.#put();
    }
  }

  /** filp_close: each close of a descriptor. @param owner of its locks of fcntl: the process */
  async flush(call: Call, owner: bigint): Promise<void> {
    if (this.inode.isDirectory) {
      this.#files.locks.remove(this.inode, 'posix', owner);
      return;
    }
    if (this.inode.isBad) throw new KernelError('EIO');
    if ((this.#handle.flags & OPENED_FLAG.noFlush) !== 0) return;
    await this.writeBack();
    const error = this.inode.takeWriteError();
    if (error !== null) throw new KernelError(error);
    const body = [longs(this.handle), words(0, 0), longs(owner)];
    await this.#request(call, OPCODE.flush, body, { force: true });
  }

  /** fput: the last reference releases the handle, and no program waits for that. */
  put(): void {
    this.references--;
    if (this.references > 0) return;
    this.#files.closed(this);
    if (this.inode.isDirectory) this.#files.locks.remove(this.inode, 'flock', this.owner);
    this.#put();
    this.#files.client.dentries.unuse(this.dentry);
    this.#files.client.put(this.inode);
  }

  #put(): void {
    this.#handle.users--;
    if (this.#handle.users > 0) return;
    const { client } = this.#files;
    const { inode } = this;
    const opcode = inode.isDirectory ? OPCODE.releasedir : OPCODE.release;
    const flags = this.#handle.locks ? RELEASE_UNLOCKS_FLOCK : 0;
    const body = [longs(this.handle), words(this.flags, flags), longs(this.owner)];
    inode.references++;
    client.queue
      .request(KERNEL, opcode, inode.node, body, { force: true, background: true })
      .catch(ignoreKernelError)
      .finally(() => client.put(inode));
  }

  // Reading.

  /** fuse_file_read_iter */
  async read(call: Call, offset: number, length: number): Promise<Buffer> {
    if (this.inode.isBad) throw new KernelError('EIO');
    if (this.isDirect) return this.#readDirectly(call, offset, length);
    await this.#files.client.updateAttributes(call, this.inode, STALE.size, this.handle);
    if ((this.flags & constants.O_DIRECT) !== 0) {
      await this.writeBack();
      if (offset >= this.inode.sizeBytes) return Buffer.alloc(0);
      return this.#readDirectly(call, offset, length);
    }
    return this.#pages.read(this.#source(call), this.#ahead, offset, length);
  }

  /** fuse_direct_io */
  async #readDirectly(call: Call, offset: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    await this.writeBack();
    for (let done = 0; done < length; ) {
      const count = Math.min(REQUEST_BYTES_MAX, length - done);
      let bytes: Buffer;
      try {
        bytes = await this.#ask(call, offset + done, count, false);
      } catch (error) {
        if (parts.length === 0) throw error;
        break;
      }
      parts.push(bytes);
      done += bytes.length;
      if (bytes.length < count) break;
    }
    return Buffer.concat(parts);
  }

  #source(call: Call): PageSource {
    return {
      read: async (offset, length, background) => {
        const { inode } = this;
        const { version } = this.#files.client;
        const bytes = await this.#ask(call, offset, length, background);
        // fuse_short_read: the file ends there, unless a larger size is known meanwhile.
        const end = offset + bytes.length;
        const isNew = version >= inode.version && !inode.isSizeUnstable;
        if (bytes.length < length && isNew && end < inode.sizeBytes) {
          inode.version = this.#files.client.nextVersion();
          inode.sizeBytes = end;
        }
        return bytes;
      },
    };
  }

  async #ask(call: Call, offset: number, length: number, background: boolean): Promise<Buffer> {
    const { inode } = this;
    if (inode.isBad) throw new KernelError('EIO');
    const body = [longs(this.handle, offset), words(length, 0), longs(0), words(this.flags, 0)];
    const ask = (): Promise<Buffer> => this.#request(call, OPCODE.read, body, { background });
    const bytes = await this.withHandle(ask);
    inode.invalidate(STALE.accessed);
    return Buffer.from(bytes);
  }

  // Writing.

  /**
   * fuse_file_write_iter. @param offset null: the file's position, or its end. @returns the number of bytes written,
   * and their end
   */
  async write(call: Call, offset: number, bytes: Uint8Array): Promise<{ count: number; end: number }> {
    if (this.inode.isBad) throw new KernelError('EIO');
    const written = await this.inode.lock.exclusive(() => this.#writeLocked(call, offset, bytes));
    const isSynced = (this.flags & (constants.O_SYNC | constants.O_DSYNC)) !== 0;
    if (written.count > 0 && isSynced)
      await this.sync(call, (this.flags & constants.O_SYNC) !== constants.O_SYNC);
    return written;
  }

  async #writeLocked(call: Call, offset: number, bytes: Uint8Array): Promise<{ count: number; end: number }> {
    const { inode } = this;
    const from = (this.flags & constants.O_APPEND) !== 0 ? inode.sizeBytes : offset;
    if (bytes.length === 0) return { count: 0, end: from };
    const isDirectWrite = this.isDirect || (this.flags & constants.O_DIRECT) !== 0;
    if (!this.isDirect) await this.#removePrivileges(call);
    const count = isDirectWrite
      ? await this.#writeDirectly(call, from, bytes)
      : await this.#writeThrough(call, from, bytes);
    return { count, end: from + count };
  }

  /** fuse_perform_write */
  async #writeThrough(call: Call, offset: number, bytes: Uint8Array): Promise<number> {
    const { inode } = this;
    const { client } = this.#files;
    if (inode.sizeBytes < offset + bytes.length) inode.isSizeUnstable = true;
    let done = 0;
    let failure: unknown = null;
    while (done < bytes.length && failure === null) {
      const at = offset + done;
      const filled = await this.#pages.prepareWrite(at, bytes.subarray(done));
      let written: number | null = null;
      try {
        written = await this.#send(call, at, bytes.subarray(done, done + filled.byteCount));
        done += written;
        if (written < filled.byteCount) failure = new KernelError('EIO', 'A write was cut short');
      } catch (error) {
        failure = error;
      }
      this.#pages.finishWrite(at, filled, written);
    }
    client.wrote(inode, done > 0 ? offset + done : null);
    inode.isSizeUnstable = false;
    if (done === 0 && failure !== null) throw failure;
    return done;
  }

  async #writeDirectly(call: Call, offset: number, bytes: Uint8Array): Promise<number> {
    const { inode } = this;
    const { client } = this.#files;
    await this.writeBack();
    const first = Math.floor(offset / PAGE_BYTES);
    const last = Math.floor((offset + bytes.length - 1) / PAGE_BYTES);
    await this.#pages.drop(client.storeOf(inode), first, last);
    let done = 0;
    try {
      while (done < bytes.length) {
        const part = bytes.subarray(done, done + REQUEST_BYTES_MAX);
        const written = await this.#send(call, offset + done, part);
        done += written;
        if (written < part.length) break;
      }
    } catch (error) {
      if (done === 0) throw error;
    } finally {
      client.wrote(inode, done > 0 ? offset + done : null);
    }
    return done;
  }

  async #send(call: Call, offset: number, bytes: Uint8Array): Promise<number> {
    const kills = isCapable(call.task) ? 0 : WRITE_KILL_PRIVILEGES;
    const body = [
      longs(this.handle, offset),
      words(bytes.length, kills),
      longs(0),
      words(this.flags, 0),
      bytes,
    ];
    const reply = await this.#request(call, OPCODE.write, body);
    return reply.readUInt32LE(0);
  }

  /** file_remove_privs: queries a capability of the file once, and removes it and set-id bits. */
  async #removePrivileges(call: Call): Promise<void> {
    const { inode } = this;
    if (inode.hasNoPrivileges || !inode.isFile) return;
    const hadCapability = await killCapability(this.#files.client, call, inode);
    // fuse_setattr: with FUSE_HANDLE_KILLPRIV_V2 it is a change of nothing.
    if (hadCapability || dropsPrivileges(call.task, inode))
      await setLocked(this.#files.client, call, inode, {}, true);
    else inode.hasNoPrivileges = true;
  }

  /** fuse_file_fallocate */
  async allocate(call: Call, mode: number, offset: number, length: number): Promise<void> {
    const { inode } = this;
    const { client } = this.#files;
    if ((mode & ~(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE)) !== 0) throw new KernelError('EOPNOTSUPP');
    await inode.lock.exclusive(async () => {
      const clears = (mode & (PUNCH_HOLE | ZERO_RANGE)) !== 0;
      if (clears) await this.writeBack();
      await this.#removePrivileges(call);
      const grows = (mode & KEEP_SIZE) === 0;
      if (grows) inode.isSizeUnstable = true;
      try {
        const body = [longs(this.handle, offset, length), words(mode, 0)];
        await this.#request(call, OPCODE.fallocate, body).catch((error: unknown) => {
          throw error instanceof KernelError && error.errno === 'ENOSYS'
            ? new KernelError('EOPNOTSUPP')
            : error;
        });
        if (grows) client.wrote(inode, offset + length);
        if (clears) await this.#pages.punch(offset, offset + length);
        inode.invalidate(STALE_WRITTEN);
      } finally {
        if (grows) inode.isSizeUnstable = false;
      }
    });
  }

  /**
   * fuse_copy_file_range; @returns null if the file system does not support it, so that bytes are read and written
   */
  async copyTo(
    call: Call,
    offset: number,
    to: OpenFile,
    toOffset: number,
    length: number,
  ): Promise<number | null> {
    const { client } = this.#files;
    await this.writeBack();
    return to.inode.lock.exclusive(async () => {
      await to.writeBack();
      await to.#removePrivileges(call);
      to.inode.isSizeUnstable = true;
      const ids = [longs(this.handle, offset, to.inode.node, to.handle, toOffset, length, 0)];
      try {
        const count = (await this.#request(call, OPCODE.copyFileRange, ids)).readUInt32LE(0);
        const end = Math.ceil((toOffset + count) / PAGE_BYTES) * PAGE_BYTES;
        await to.#pages.punch(Math.floor(toOffset / PAGE_BYTES) * PAGE_BYTES, end);
        client.wrote(to.inode, count > 0 ? toOffset + count : null);
        return count;
      } catch (error) {
        if (error instanceof KernelError && (error.errno === 'ENOSYS' || error.errno === 'EXDEV'))
          return null;
        throw error;
      } finally {
        to.inode.isSizeUnstable = false;
      }
    });
  }

  // What was written.

  get #pages() {
    return this.#files.client.pages(this.inode);
  }

  /** filemap_write_and_wait; errors are kept in the inode. */
  async writeBack(): Promise<void> {
    if (this.#pages.size > 0) await this.#pages.writeBack(this.#files.client.storeOf(this.inode));
  }

  /** fuse_fsync and fuse_dir_fsync */
  async sync(call: Call, dataOnly: boolean): Promise<void> {
    const { inode } = this;
    if (inode.isBad) throw new KernelError('EIO');
    await inode.lock.exclusive(async () => {
      if (!inode.isDirectory) {
        await this.writeBack();
        const { count, errno } = inode.writeErrors;
        const isNew = count !== this.#seenErrors && errno !== null;
        this.#seenErrors = count;
        inode.takeWriteError();
        if (isNew) throw new KernelError(errno);
      }
      const opcode = inode.isDirectory ? OPCODE.fsyncdir : OPCODE.fsync;
      await this.#request(call, opcode, [longs(this.handle), words(dataOnly ? FDATASYNC : 0, 0)]);
    });
  }

  // Positions.

  /** fuse_lseek; @returns null if the file system does not know holes */
  async seek(call: Call, offset: number, whence: number): Promise<number | null> {
    try {
      const body = [longs(this.handle, offset), words(whence, 0)];
      return readLong(await this.#request(call, OPCODE.lseek, body));
    } catch (error) {
      if (error instanceof KernelError && error.errno === 'ENOSYS') return null;
      throw error;
    }
  }

  // Mappings.

  mappedPage(call: Call, index: number) {
    return this.#pages.fault(this.#source(call), index);
  }

  mappedPageToWrite(call: Call, index: number) {
    return this.#pages.makeWritable(this.#source(call), index);
  }

  // Directories.

  /** fuse_readdir_uncached: the entries of one reply from the position on; none at the end. */
  async entries(call: Call): Promise<readonly DirectoryEntry[]> {
    return this.inode.lock.shared(async () => {
      if (this.inode.isDead) throw new KernelError('ENOENT');
      if (this.inode.isBad) throw new KernelError('EIO');
      const { client, names } = this.#files;
      const plus = this.#usesPlus();
      const { version, evictions } = client;
      const opcode = plus ? OPCODE.readdirplus : OPCODE.readdir;
      const body = [
        longs(this.handle, this.position),
        words(GETDENTS_BYTES, 0),
        longs(0),
        words(this.flags, 0),
      ];
      const reply = await this.#request(call, opcode, body);
      const entries = readDirectoryEntries(reply, plus);
      for (const entry of entries) {
        await names.link(call, this.dentry, entry, version, evictions);
        this.position = entry.next;
      }
      this.inode.invalidate(STALE.accessed);
      return entries;
    });
  }

  #usesPlus(): boolean {
    const { client } = this.#files;
    if (!client.has('readDirectoryPlus')) return false;
    if (!client.has('readDirectoryPlusAuto')) return true;
    const { advisesPlus } = this.inode;
    this.inode.advisesPlus = false;
    return advisesPlus || this.position === 0;
  }

  #request(
    call: Call,
    opcode: number,
    body: readonly Uint8Array[],
    how?: { readonly force?: boolean; readonly background?: boolean },
  ): Promise<Buffer> {
    return this.#files.client.queue.request(call.task, opcode, this.inode.node, body, how);
  }
}
