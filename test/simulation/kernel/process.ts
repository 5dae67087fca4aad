import { constants } from 'node:fs';
import { assert } from '../../../base/assert.ts';
import { LOCK_FLOCK, OPCODE } from '../../../fuse/kernel/protocol.ts';
import type { Pending } from '../../../fuse/kernel/signals.ts';
import { type AttributeChange, killCapability, setAttributes } from './attributes.ts';
import {
  type NameChanges,
  type NewName,
  RENAME_EXCHANGE,
  RENAME_NOREPLACE,
  RENAME_WHITEOUT,
} from './changes.ts';
import type { Dentry } from './dentries.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import { type Inode, STALE } from './inode.ts';
import { inodeFlags, setInodeFlags } from './inode-flags.ts';
import { ignoreKernelError, KernelError } from './kernel-error.ts';
import type { LocalLocks } from './local-locks.ts';
import { Mapping } from './mapping.ts';
import { type DirectoryEntry, type Inode64, longs, name as nameWithZero, words } from './messages.ts';
import type { LastName, Names, Place } from './names.ts';
import type { OpenFile, OpenFiles } from './open-file.ts';
import { PAGE_BYTES } from './page-cache.ts';
import { type Credentials, isCapable, isOwner, MAY, mayCreateInSticky } from './permissions.ts';

/** The modelled signals: those that ask a program to stop, and one without such a meaning. */
export type Signal = 'SIGHUP' | 'SIGINT' | 'SIGTERM' | 'SIGKILL' | 'SIGUSR1';

const O_ACCMODE = 3;
const O_LARGEFILE = 0x8000;
/** A descriptor that only refers to a name: the file system does not open anything. */
export const O_PATH = 0x20_0000;
/** As opendir opens a directory. */
const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_DIRECTORY;
const LINKS_MAX = 40;
const XATTR_BYTES_MAX = 65_536;
const FATAL_ALWAYS: Signal = 'SIGKILL';

/** Parts of a mount that a process uses. */
export interface Machine {
  readonly client: FuseClient;
  readonly names: Names;
  readonly changes: NameChanges;
  readonly files: OpenFiles;
  /** @returns a process id */
  nextPid(): number;
  started(process: Process): void;
  ended(process: Process): void;
}

/** Nanoseconds; null: unchanged. */
type Time = bigint | 'now' | null;

export type LockType = 'shared' | 'exclusive' | 'unlock';
const LOCK_TYPES: readonly LockType[] = ['shared', 'exclusive', 'unlock'];

export interface FileLock {
  readonly type: LockType;
  readonly start: bigint;
  /** Inclusive. */
  readonly end: bigint;
}

/**
 * A process: POSIX calls on one mount, whose root is `/`. Calls reject with `KernelError`. Several calls may be
 * pending at a time, as of several threads.
 */
export class Process implements Credentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  readonly mappings = new Set<Mapping>();
  /** Signals that the program catches; the others end it. */
  readonly caught = new Set<Signal>();
  readonly #machine: Machine;
  readonly #descriptors = new Map<number, OpenFile>();
  /** Descriptors of O_PATH: they keep a name and an inode, and no file is open. */
  readonly #references = new Map<number, Dentry>();
  readonly #pending = new Set<Signal>();
  #umask = 0;
  #directory: Dentry;
  #callCount = 0;
  #ended: Promise<void> | null = null;

  constructor(machine: Machine, { uid, gid, groups }: Credentials, directory = machine.client.dentries.root) {
    this.#machine = machine;
    this.pid = machine.nextPid();
    this.uid = uid;
    this.gid = gid;
    this.groups = groups;
    this.#directory = machine.client.dentries.use(directory);
    machine.started(this);
  }

  get isSignalled(): boolean {
    return this.#pending.size > 0;
  }

  get isKilled(): boolean {
    return [...this.#pending].some((signal) => this.#isFatal(signal));
  }

  get hasEnded(): boolean {
    return this.#ended !== null;
  }

  /** What the file system may learn about its pending signals. */
  get pending(): Pending {
    if (this.#ended !== null && this.#callCount === 0) return 'killed';
    if (this.isKilled) return 'killed';
    return [...this.#pending].some((signal) => signal !== 'SIGUSR1') ? 'stopping' : 'other';
  }

  #isFatal(signal: Signal): boolean {
    return signal === FATAL_ALWAYS || !this.caught.has(signal);
  }

  /** The owner of its locks of fcntl: `current->files`. */
  get #owner(): bigint {
    return 0x1_0000_0000n + BigInt(this.pid);
  }

  /** kill(2): a pending call may be interrupted; a fatal signal ends the process after it. */
  signal(signal: Signal): void {
    if (this.#ended !== null) return;
    this.#pending.add(signal);
    this.#machine.client.queue.interrupt(this);
    if (this.#callCount === 0) this.#deliver();
  }

  /** Delivers signals when a call returns to the program. */
  #deliver(): void {
    const isFatal = this.isKilled;
    this.#pending.clear();
    if (isFatal) void this.exit();
  }

  async systemCall<Value>(run: (call: Call) => Promise<Value>): Promise<Value> {
    if (this.#ended !== null) throw new KernelError('ESRCH', `Process ${this.pid} has ended`);
    this.#callCount++;
    try {
      return await this.#pinned(run);
    } finally {
      this.#callCount--;
      if (this.#callCount === 0 && this.isSignalled) this.#deliver();
    }
  }

  async #pinned<Value>(run: (call: Call) => Promise<Value>): Promise<Value> {
    const { client } = this.#machine;
    const pinned: Inode[] = [];
    const call: Call = {
      task: this,
      umask: this.#umask,
      revalidates: false,
      pin: (inode) => {
        if (inode !== null) {
          inode.references++;
          pinned.push(inode);
        }
        return inode;
      },
    };
    try {
      return await run(call);
    } finally {
      for (const inode of pinned) client.put(inode);
    }
  }

  /** A call on a path; after ESTALE it is repeated once, with a look-up of each name (retry_estale). */
  #onPath<Value>(run: (call: Call) => Promise<Value>): Promise<Value> {
    return this.systemCall(async (call) => {
      try {
        return await run(call);
      } catch (error) {
        if (!(error instanceof KernelError) || error.errno !== 'ESTALE') throw error;
        return run({ ...call, revalidates: true });
      }
    });
  }

  /** A call on the inode of a path. */
  #at<Value>(
    path: string,
    follows: boolean,
    run: (call: Call, place: Place) => Promise<Value>,
  ): Promise<Value> {
    return this.#onPath(async (call) => run(call, await this.#find(call, path, follows)));
  }

  #find(call: Call, path: string, follows: boolean): Promise<Place> {
    return this.#machine.names.find(call, this.#directory, path, follows);
  }

  #parent(call: Call, path: string): Promise<LastName> {
    return this.#machine.names.parent(call, this.#directory, path);
  }

  // The process itself.

  umask(mask: number): void {
    this.#umask = mask & 0o777;
  }

  chdir(path: string): Promise<void> {
    const { dentries } = this.#machine.client;
    return this.#at(path, true, async (call, { dentry, inode }) => {
      if (!inode.isDirectory) throw new KernelError('ENOTDIR');
      await this.#machine.client.checkAccess(call, inode, MAY.exec);
      dentries.use(dentry);
      dentries.unuse(this.#directory);
      this.#directory = dentry;
    });
  }

  /** fork: descriptors and working directory are shared; mappings are not modelled. */
  fork(): Process {
    const child = new Process(this.#machine, this, this.#directory);
    child.#umask = this.#umask;
    for (const [descriptor, file] of this.#descriptors) {
      file.references++;
      child.#descriptors.set(descriptor, file);
    }
    for (const [descriptor, dentry] of this.#references)
      child.#references.set(descriptor, this.#machine.client.dentries.use(dentry));
    return child;
  }

  /** exit: mappings end, then descriptors in order, then the working directory. */
  exit(): Promise<void> {
    this.#ended ??= this.#exit();
    return this.#ended;
  }

  async #exit(): Promise<void> {
    const { client } = this.#machine;
    await this.#pinned(async (call) => {
      for (const mapping of [...this.mappings]) await mapping.close();
      for (const [descriptor, file] of [...this.#descriptors].sort(([a], [b]) => a - b)) {
        this.#descriptors.delete(descriptor);
        await file.flush(call, this.#owner).catch(ignoreKernelError);
        file.put();
      }
    });
    for (const dentry of this.#references.values()) client.dentries.unuse(dentry);
    client.dentries.unuse(this.#directory);
    this.#machine.ended(this);
  }

  // Descriptors.

  open(path: string, flags = constants.O_RDONLY, mode = 0o644): Promise<number> {
    // force_o_largefile: programs of 64 bits.
    const how = flags | O_LARGEFILE;
    if ((flags & O_PATH) !== 0) return this.#refer(path, flags);
    const opened = this.#onPath((call) => this.#openPath(call, path, how, mode));
    return opened.then((file) => this.#install(file));
  }

  /**
   * open of /proc/self/fd/`descriptor`: opens its inode, whatever has its name now.
   *
   * @param flags without O_CREAT
   */
  reopen(descriptor: number, flags: number): Promise<number> {
    const opened = this.#onPath((call) => {
      const place = placeOf(call, this.#references.get(descriptor) ?? this.#file(descriptor).dentry);
      if ((flags & constants.O_DIRECTORY) !== 0 && !place.inode.isDirectory) throw new KernelError('ENOTDIR');
      return this.#openFound(call, place, flags | O_LARGEFILE);
    });
    return opened.then((file) => this.#install(file));
  }

  /** do_o_path */
  #refer(path: string, flags: number): Promise<number> {
    const follows = (flags & constants.O_NOFOLLOW) === 0;
    return this.#at(path, follows, async (_call, { dentry, inode }) => {
      if ((flags & constants.O_DIRECTORY) !== 0 && !inode.isDirectory) throw new KernelError('ENOTDIR');
      return this.#installReference(dentry);
    });
  }

  #installReference(dentry: Dentry): number {
    const descriptor = this.#lowestFree();
    this.#references.set(descriptor, this.#machine.client.dentries.use(dentry));
    return descriptor;
  }

  #install(file: OpenFile): number {
    const descriptor = this.#lowestFree();
    this.#descriptors.set(descriptor, file);
    return descriptor;
  }

  #lowestFree(): number {
    let descriptor = 3;
    while (this.#descriptors.has(descriptor) || this.#references.has(descriptor)) descriptor++;
    return descriptor;
  }

  /** path_openat */
  async #openPath(call: Call, path: string, flags: number, mode: number): Promise<OpenFile> {
    const { names, changes } = this.#machine;
    const creates = (flags & constants.O_CREAT) !== 0;
    const isExclusive = creates && (flags & constants.O_EXCL) !== 0;
    const follows = !isExclusive && (flags & constants.O_NOFOLLOW) === 0;
    let from = this.#directory;
    let rest = path;
    for (const depth = { links: 0 }; depth.links <= LINKS_MAX; ) {
      const last = await names.parent(call, from, rest);
      const { parent, kind, hasSlash } = last;
      if (creates && (kind !== 'name' || hasSlash)) throw new KernelError('EISDIR');
      if (kind !== 'name') return this.#openFound(call, await names.find(call, from, rest, true), flags);
      const fast = isExclusive ? null : await names.cached(call, parent, last.name);
      const isFound = fast !== null && (fast.inode !== null || !creates);
      const found = isFound ? { dentry: fast } : await changes.openName(call, last, flags, mode, isExclusive);
      if ('created' in found) return this.#checkCreated(call, found.created);
      const { dentry } = found;
      const inode = call.pin(dentry.inode);
      if (inode === null) throw new KernelError('ENOENT');
      if (!inode.isSymlink || (!follows && !hasSlash)) {
        const wantsDirectory = hasSlash || (flags & constants.O_DIRECTORY) !== 0;
        if (isExclusive) throw new KernelError('EEXIST');
        if (creates && inode.isDirectory) throw new KernelError('EISDIR');
        const { options } = this.#machine.client;
        if (creates && !mayCreateInSticky(this, parent.inode, inode, options))
          throw new KernelError('EACCES');
        if (wantsDirectory && !inode.isDirectory) throw new KernelError('ENOTDIR');
        return this.#openFound(call, { dentry, inode }, flags);
      }
      rest = (await names.followOnce(call, inode, depth)) + (hasSlash ? '/' : '');
      from = parent.dentry;
    }
    throw new KernelError('ELOOP');
  }

  /** may_open checks no right to a created file, but queries its attributes if they are not valid. */
  async #checkCreated(call: Call, file: OpenFile): Promise<OpenFile> {
    try {
      await this.#machine.client.checkAccess(call, file.inode, 0);
      return file;
    } catch (error) {
      file.put();
      throw error;
    }
  }

  /** may_open and vfs_open */
  async #openFound(call: Call, { dentry, inode }: Place, flags: number): Promise<OpenFile> {
    const access = flags & O_ACCMODE;
    const truncates = (flags & constants.O_TRUNC) !== 0;
    const isSpecial = !inode.isDirectory && !inode.isFile && !inode.isSymlink;
    const writes = access !== constants.O_RDONLY || (truncates && !isSpecial);
    if (inode.isSymlink) throw new KernelError('ELOOP');
    if (inode.isDirectory && writes) throw new KernelError('EISDIR');
    const isDevice = inode.type === constants.S_IFCHR || inode.type === constants.S_IFBLK;
    // may_open_dev: all mounts are `nodev`.
    if (isDevice) throw new KernelError('EACCES');
    const wanted = (access === constants.O_WRONLY ? 0 : MAY.read) | (writes ? MAY.write : 0);
    await this.#machine.client.checkAccess(call, inode, wanted);
    if ((flags & constants.O_NOATIME) !== 0 && !isOwner(this, inode)) throw new KernelError('EPERM');
    if (!inode.isDirectory && !inode.isFile) throw new KernelError('ENXIO', 'Fifos are not modelled');
    const file = await this.#machine.files.open(call, dentry, inode, flags);
    // handle_truncate, for which fuse_setattr sends no further request.
    if (truncates && inode.isFile) await killCapability(this.#machine.client, call, inode);
    return file;
  }

  /** @throws KernelError EBADF */
  #file(descriptor: number): OpenFile {
    const file = this.#descriptors.get(descriptor);
    if (file === undefined) throw new KernelError('EBADF');
    return file;
  }

  #onFile<Value>(descriptor: number, run: (call: Call, file: OpenFile) => Promise<Value>): Promise<Value> {
    return this.systemCall(async (call) => {
      const file = this.#file(descriptor);
      file.references++;
      try {
        return await run(call, file);
      } finally {
        file.put();
      }
    });
  }

  /** close: the descriptor is closed, even if the call fails. */
  close(descriptor: number): Promise<void> {
    return this.systemCall(async (call) => {
      const dentry = this.#references.get(descriptor);
      if (dentry !== undefined) {
        this.#references.delete(descriptor);
        return this.#machine.client.dentries.unuse(dentry);
      }
      const file = this.#file(descriptor);
      this.#descriptors.delete(descriptor);
      try {
        await file.flush(call, this.#owner);
      } finally {
        file.put();
      }
    });
  }

  dup(descriptor: number): number {
    const dentry = this.#references.get(descriptor);
    if (dentry !== undefined) return this.#installReference(dentry);
    const file = this.#file(descriptor);
    file.references++;
    return this.#install(file);
  }

  /** fcntl(F_SETFL): sets and clears O_APPEND and O_DIRECT. */
  setFlags(descriptor: number, flags: number): void {
    const file = this.#file(descriptor);
    const changeable = constants.O_APPEND | constants.O_DIRECT | constants.O_NONBLOCK | constants.O_NOATIME;
    file.flags = (file.flags & ~changeable) | (flags & changeable);
  }

  /** ioctl(FS_IOC_GETFLAGS) */
  inodeFlags(descriptor: number): Promise<number> {
    return this.#onFile(descriptor, (call, { inode }) => inodeFlags(call, this.#machine.client, inode));
  }

  /** ioctl(FS_IOC_SETFLAGS) */
  setInodeFlags(descriptor: number, flags: number): Promise<void> {
    return this.#onFile(descriptor, (call, { inode }) =>
      setInodeFlags(call, this.#machine.client, inode, flags),
    );
  }

  pread(descriptor: number, length: number, offset: number): Promise<Buffer> {
    return this.#onFile(descriptor, async (call, file) => {
      if (offset < 0) throw new KernelError('EINVAL');
      checkReadable(file);
      return file.read(call, offset, length);
    });
  }

  read(descriptor: number, length: number): Promise<Buffer> {
    return this.#onFile(descriptor, async (call, file) => {
      checkReadable(file);
      return file.positionLock.hold(async () => {
        const bytes = await file.read(call, file.position, length);
        file.position += bytes.length;
        return bytes;
      });
    });
  }

  pwrite(descriptor: number, bytes: Uint8Array, offset: number): Promise<number> {
    return this.#onFile(descriptor, async (call, file) => {
      if (offset < 0) throw new KernelError('EINVAL');
      checkWritable(file);
      return (await file.write(call, offset, bytes)).count;
    });
  }

  write(descriptor: number, bytes: Uint8Array): Promise<number> {
    return this.#onFile(descriptor, async (call, file) => {
      checkWritable(file);
      return file.positionLock.hold(async () => {
        const { count, end } = await file.write(call, file.position, bytes);
        if (count > 0) file.position = end;
        return count;
      });
    });
  }

  seek(descriptor: number, offset: number, whence: number): Promise<number> {
    return this.#onFile(descriptor, (call, file) =>
      file.positionLock.hold(async () => {
        const { client } = this.#machine;
        const size = async (): Promise<number> => {
          if (!file.inode.isDirectory)
            await client.updateAttributes(call, file.inode, STALE.size, file.handle);
          return file.inode.sizeBytes;
        };
        let to = offset;
        if (whence === 1) to += file.position;
        else if (whence === 2) to += await size();
        else if (whence === 3 || whence === 4) {
          const found = file.inode.isDirectory ? null : await file.seek(call, offset, whence);
          const end = found ?? (await size());
          if (found === null && offset >= end) throw new KernelError('ENXIO');
          to = found ?? (whence === 3 ? offset : end);
        } else if (whence !== 0) throw new KernelError('EINVAL');
        if (to < 0) throw new KernelError('EINVAL');
        file.position = to;
        return to;
      }),
    );
  }

  fsync(descriptor: number, dataOnly = false): Promise<void> {
    return this.#onFile(descriptor, (call, file) => file.sync(call, dataOnly));
  }

  ftruncate(descriptor: number, sizeBytes: number): Promise<void> {
    return this.#onFile(descriptor, async (call, file) => {
      const { inode, handle } = file;
      if (sizeBytes < 0 || !inode.isFile || !file.isWritable) throw new KernelError('EINVAL');
      await setAttributes(this.#machine.client, call, inode, { sizeBytes, handle });
    });
  }

  fallocate(descriptor: number, mode: number, offset: number, length: number): Promise<void> {
    return this.#onFile(descriptor, async (call, file) => {
      if (offset < 0 || length <= 0) throw new KernelError('EINVAL');
      if (!file.isWritable) throw new KernelError('EBADF');
      if (file.inode.isDirectory) throw new KernelError('EISDIR');
      await file.allocate(call, mode, offset, length);
    });
  }

  copyRange(from: number, offset: number, to: number, toOffset: number, length: number): Promise<number> {
    return this.#onFile(from, async (call, source) => {
      const target = this.#file(to);
      checkReadable(source);
      checkWritable(target);
      if ((target.flags & constants.O_APPEND) !== 0) throw new KernelError('EBADF');
      const { sizeBytes } = source.inode;
      const count = Math.min(length, Math.max(0, sizeBytes - offset));
      if (source.inode === target.inode && offset < toOffset + count && toOffset < offset + count)
        throw new KernelError('EINVAL');
      if (count === 0) return 0;
      const copied = await source.copyTo(call, offset, target, toOffset, count);
      if (copied !== null) return copied;
      return (await target.write(call, toOffset, await source.read(call, offset, count))).count;
    });
  }

  mmap(
    descriptor: number,
    options: { offset?: number; shared?: boolean; writable?: boolean } = {},
  ): Promise<Mapping> {
    const { offset = 0, shared = true, writable = true } = options;
    return this.#onFile(descriptor, async (_call, file) => {
      if (!file.inode.isFile) throw new KernelError('ENODEV');
      if (!file.isReadable || (shared && writable && !file.isWritable)) throw new KernelError('EACCES');
      if (offset % PAGE_BYTES !== 0) throw new KernelError('EINVAL');
      // fuse_file_mmap: a shared mapping is not kept consistent with direct reads and writes.
      if (file.isDirect && shared) throw new KernelError('ENODEV');
      const mapping = new Mapping(this, file, offset, shared);
      this.mappings.add(mapping);
      if (shared) this.#machine.files.mapped(file);
      return mapping;
    });
  }

  // Locks.

  get #locks(): LocalLocks {
    return this.#machine.files.locks;
  }

  /** fcntl(F_SETLK), or F_SETLKW if it waits. */
  lock(descriptor: number, lock: FileLock, waits: boolean): Promise<void> {
    return this.#onFile(descriptor, async (call, file) => {
      if (lock.type === 'shared' && !file.isReadable) throw new KernelError('EBADF');
      if (lock.type === 'exclusive' && !file.isWritable) throw new KernelError('EBADF');
      if (file.inode.isDirectory) this.#locks.lock(file.inode, 'posix', this.#owner, lock, this.pid);
      else await this.#askLock(call, file, this.#owner, lock, waits ? OPCODE.setlkw : OPCODE.setlk, 0);
    });
  }

  /** fcntl(F_GETLK); @returns a conflicting lock, or null */
  lockHolder(descriptor: number, lock: FileLock): Promise<(FileLock & { readonly pid: number }) | null> {
    return this.#onFile(descriptor, async (call, file) => {
      if (file.inode.isDirectory) return this.#locks.holder(file.inode, this.#owner, lock);
      const reply = await this.#askLock(call, file, this.#owner, lock, OPCODE.getlk, 0);
      const type = LOCK_TYPES[reply.readUInt32LE(16)] ?? 'unlock';
      if (type === 'unlock') return null;
      const [start, end] = [reply.readBigUInt64LE(0), reply.readBigUInt64LE(8)];
      return { type, start, end, pid: reply.readUInt32LE(20) };
    });
  }

  flock(descriptor: number, type: LockType, waits: boolean): Promise<void> {
    return this.#onFile(descriptor, async (call, file) => {
      const lock = { type, start: 0n, end: 0x7fff_ffff_ffff_ffffn };
      if (file.inode.isDirectory) {
        this.#locks.lock(file.inode, 'flock', file.owner, lock, this.pid);
        return;
      }
      file.locksWhole();
      await this.#askLock(call, file, file.owner, lock, waits ? OPCODE.setlkw : OPCODE.setlk, LOCK_FLOCK);
    });
  }

  #askLock(
    { task }: Call,
    { handle, inode }: OpenFile,
    owner: bigint,
    { type, start, end }: FileLock,
    opcode: number,
    flags: number,
  ): Promise<Buffer> {
    const pid = type === 'unlock' ? 0 : this.pid;
    const body = [longs(handle, owner, start, end), words(LOCK_TYPES.indexOf(type), pid, flags, 0)];
    return this.#machine.client.queue.request(task, opcode, inode.node, body);
  }

  // Attributes.

  stat(path: string): Promise<Inode64> {
    return this.#stat(path, true);
  }

  lstat(path: string): Promise<Inode64> {
    return this.#stat(path, false);
  }

  #stat(path: string, follows: boolean): Promise<Inode64> {
    return this.#at(path, follows, async (call, { inode }) => {
      return this.#attributes(call, inode);
    });
  }

  fstat(descriptor: number): Promise<Inode64> {
    const dentry = this.#references.get(descriptor);
    if (dentry !== undefined)
      return this.systemCall((call) => this.#attributes(call, placeOf(call, dentry).inode));
    return this.#onFile(descriptor, (call, { inode }) => this.#attributes(call, inode));
  }

  async #attributes(call: Call, inode: Inode): Promise<Inode64> {
    const answered = await this.#machine.client.updateAttributes(call, inode);
    if (answered !== null) return answered;
    return { ...inode.attributes, sizeBytes: inode.isFile ? inode.sizeBytes : inode.attributes.sizeBytes };
  }

  /** @param mode bits of R_OK, W_OK and X_OK */
  access(path: string, mode: number): Promise<void> {
    return this.#at(path, true, async (call, { inode }) => {
      await this.#machine.client.checkAccess(call, inode, mode);
    });
  }

  chmod(path: string, mode: number): Promise<void> {
    return this.#change(path, true, { mode: mode & 0o7777 });
  }

  fchmod(descriptor: number, mode: number): Promise<void> {
    return this.#changeOpen(descriptor, { mode: mode & 0o7777 });
  }

  /** @param uid -1: unchanged, as for `gid` */
  chown(path: string, uid: number, gid: number, follows = true): Promise<void> {
    return this.#change(path, follows, owners(uid, gid));
  }

  fchown(descriptor: number, uid: number, gid: number): Promise<void> {
    return this.#changeOpen(descriptor, owners(uid, gid));
  }

  utimens(path: string, accessed: Time, modified: Time, follows = true): Promise<void> {
    return this.#onPath(async (call) => {
      if (accessed === null && modified === null) return;
      const { inode } = await this.#find(call, path, follows);
      await this.#setTimes(call, inode, accessed, modified);
    });
  }

  futimens(descriptor: number, accessed: Time, modified: Time): Promise<void> {
    return this.#onFile(descriptor, async (call, { inode }) => {
      if (accessed === null && modified === null) return;
      await this.#setTimes(call, inode, accessed, modified);
    });
  }

  /** vfs_utimes: a user who may write the file may set both to the present. */
  async #setTimes(call: Call, inode: Inode, accessed: Time, modified: Time): Promise<void> {
    const { client } = this.#machine;
    const isTouch = accessed === 'now' && modified === 'now';
    if (isTouch && !isOwner(this, inode)) await client.checkAccess(call, inode, MAY.write);
    if (!isTouch && !isOwner(this, inode)) throw new KernelError('EPERM');
    await setAttributes(client, call, inode, {
      ...(accessed === null ? {} : { accessed }),
      ...(modified === null ? {} : { modified }),
    });
  }

  truncate(path: string, sizeBytes: number): Promise<void> {
    return this.#onPath(async (call) => {
      if (sizeBytes < 0) throw new KernelError('EINVAL');
      const { inode } = await this.#find(call, path, true);
      if (inode.isDirectory) throw new KernelError('EISDIR');
      if (!inode.isFile) throw new KernelError('EINVAL');
      await this.#machine.client.checkAccess(call, inode, MAY.write);
      await setAttributes(this.#machine.client, call, inode, { sizeBytes });
    });
  }

  #change(path: string, follows: boolean, change: AttributeChange): Promise<void> {
    return this.#at(path, follows, async (call, { inode, dentry }) => {
      await setAttributes(this.#machine.client, call, inode, change, dentry);
    });
  }

  #changeOpen(descriptor: number, change: AttributeChange): Promise<void> {
    return this.#onFile(descriptor, (call, { inode, dentry }) =>
      setAttributes(this.#machine.client, call, inode, change, dentry),
    );
  }

  // Names.

  mkdir(path: string, mode = 0o755): Promise<void> {
    return this.#make(path, { mode: constants.S_IFDIR | (mode & 0o1777) });
  }

  /** @param mode with the file type */
  mknod(path: string, mode: number, device = 0): Promise<void> {
    const type = (mode & constants.S_IFMT) === 0 ? constants.S_IFREG : 0;
    return this.#make(path, { mode: mode | type, device });
  }

  /** unix_bind_bsd: the mode of a socket is masked even if the file system masks modes itself. */
  bind(path: string): Promise<void> {
    return this.#make(path, { mode: constants.S_IFSOCK | (0o777 & ~this.#umask) });
  }

  symlink(target: string, path: string): Promise<void> {
    return this.#make(path, { mode: constants.S_IFLNK | 0o777, target }, () => {
      if (target === '') throw new KernelError('ENOENT');
      if (Buffer.byteLength(target) >= PAGE_BYTES) throw new KernelError('ENAMETOOLONG');
    });
  }

  #make(path: string, what: NewName, check: () => void = () => undefined): Promise<void> {
    return this.#onPath(async (call) => {
      check();
      await this.#machine.changes.make(call, await this.#parent(call, path), what);
    });
  }

  link(path: string, newPath: string, follows = false): Promise<void> {
    return this.#at(path, follows, async (call, { inode }) => {
      await this.#machine.changes.link(call, inode, await this.#parent(call, newPath));
    });
  }

  unlink(path: string): Promise<void> {
    return this.#onPath(async (call) =>
      this.#machine.changes.remove(call, await this.#parent(call, path), false),
    );
  }

  rmdir(path: string): Promise<void> {
    return this.#onPath(async (call) =>
      this.#machine.changes.remove(call, await this.#parent(call, path), true),
    );
  }

  /** @param how flags of renameat2 */
  rename(path: string, newPath: string, how = 0): Promise<void> {
    return this.#onPath(async (call) => {
      const others = RENAME_NOREPLACE | RENAME_WHITEOUT;
      const isTwice = (how & RENAME_EXCHANGE) !== 0 && (how & others) !== 0;
      if ((how & ~(others | RENAME_EXCHANGE)) !== 0 || isTwice) throw new KernelError('EINVAL');
      const [from, to] = [await this.#parent(call, path), await this.#parent(call, newPath)];
      await this.#machine.changes.rename(call, from, to, how);
    });
  }

  readlink(path: string): Promise<string> {
    return this.#at(path, false, async (call, { inode }) => {
      if (!inode.isSymlink) throw new KernelError('EINVAL');
      return this.#machine.names.readLink(call, inode);
    });
  }

  /** getdents: entries of one reply; none at the end. */
  entries(descriptor: number): Promise<readonly DirectoryEntry[]> {
    return this.#onFile(descriptor, async (call, file) => {
      if (!file.inode.isDirectory) throw new KernelError('ENOTDIR');
      return file.positionLock.hold(() => file.entries(call));
    });
  }

  /** All names of a directory, in the order of the file system, without `.` and `..`. */
  async list(path: string): Promise<DirectoryEntry[]> {
    const descriptor = await this.open(path, DIRECTORY_FLAGS);
    try {
      // opendir queries the best size of its buffer.
      await this.fstat(descriptor);
      const all: DirectoryEntry[] = [];
      for (;;) {
        const some = await this.entries(descriptor);
        if (some.length === 0) return all.filter(({ name }) => name !== '.' && name !== '..');
        all.push(...some);
      }
    } finally {
      await this.close(descriptor);
    }
  }

  // Extended attributes.

  getxattr(path: string, name: string): Promise<Buffer> {
    return this.#at(path, true, async (call, { inode }) => {
      await this.#checkXattr(call, inode, name, MAY.read);
      const body = [words(XATTR_BYTES_MAX, 0), nameWithZero(name)];
      return this.#xattr(call, inode, OPCODE.getxattr, body);
    });
  }

  listxattr(path: string, follows = true): Promise<string[]> {
    return this.#at(path, follows, async (call, { inode }) => {
      const reply = await this.#xattr(call, inode, OPCODE.listxattr, [words(XATTR_BYTES_MAX, 0)]);
      return reply.toString('utf8').split('\0').slice(0, -1);
    });
  }

  setxattr(path: string, name: string, value: Uint8Array, how = 0): Promise<void> {
    return this.#at(path, true, async (call, { inode }) => {
      await this.#checkXattr(call, inode, name, MAY.write);
      await inode.lock.exclusive(async () => {
        const isAcl = name.startsWith('system.posix_acl_');
        const { mode, gid } = inode.attributes;
        const clears = isAcl && !isInGroupOrCapable(this, gid) && (mode & 0o2000) !== 0 ? 1 : 0;
        const body = [words(value.length, how, clears, 0), nameWithZero(name), value];
        await this.#xattr(call, inode, OPCODE.setxattr, body);
        changedXattr(inode, isAcl);
      });
    });
  }

  removexattr(path: string, name: string): Promise<void> {
    return this.#at(path, true, async (call, { inode }) => {
      await this.#checkXattr(call, inode, name, MAY.write);
      await inode.lock.exclusive(async () => {
        await this.#xattr(call, inode, OPCODE.removexattr, [nameWithZero(name)]);
        changedXattr(inode, name.startsWith('system.posix_acl_'));
      });
    });
  }

  #xattr({ task }: Call, inode: Inode, opcode: number, body: readonly Uint8Array[]): Promise<Buffer> {
    if (inode.isBad) throw new KernelError('EIO');
    return this.#machine.client.queue.request(task, opcode, inode.node, body).catch((error: unknown) => {
      throw error instanceof KernelError && error.errno === 'ENOSYS' ? new KernelError('EOPNOTSUPP') : error;
    });
  }

  /** xattr_permission (fs/xattr.c) */
  async #checkXattr(call: Call, inode: Inode, name: string, wanted: number): Promise<void> {
    if (name.length > 255) throw new KernelError('ERANGE');
    if (name.startsWith('system.posix_acl_')) {
      if (inode.isSymlink) throw new KernelError('EOPNOTSUPP');
      if (wanted === MAY.write && !isOwner(this, inode)) throw new KernelError('EPERM');
      if (wanted === MAY.read) await this.#machine.client.acl(call, inode, 'access').catch(ignoreKernelError);
      return;
    }
    if (name.startsWith('system.') || name.startsWith('security.')) {
      if (name.startsWith('security.') && wanted === MAY.write && !isCapable(this))
        throw new KernelError('EPERM');
      return;
    }
    const refusal = wanted === MAY.write ? 'EPERM' : 'ENODATA';
    if (name.startsWith('trusted.')) {
      if (!isCapable(this)) throw new KernelError(refusal);
      return;
    }
    if (name.startsWith('user.')) {
      if (!inode.isFile && !inode.isDirectory) throw new KernelError(refusal);
      const isShared = inode.isDirectory && (inode.attributes.mode & 0o1000) !== 0;
      if (isShared && wanted === MAY.write && !isOwner(this, inode)) throw new KernelError('EPERM');
    }
    await this.#machine.client.checkAccess(call, inode, wanted);
  }
}

function owners(uid: number, gid: number): AttributeChange {
  return { ...(uid === -1 ? {} : { uid }), ...(gid === -1 ? {} : { gid }) };
}

function isInGroupOrCapable(who: Credentials, gid: number): boolean {
  return who.gid === gid || who.groups.includes(gid) || isCapable(who);
}

function changedXattr(inode: Inode, isAcl: boolean): void {
  if (isAcl) {
    inode.forgetAcls();
    inode.invalidate();
  } else inode.invalidate(STALE.modified);
}

function placeOf(call: Call, dentry: Dentry): Place {
  const inode = call.pin(dentry.inode);
  assert(inode !== null, 'A name in use keeps its inode');
  return { dentry, inode };
}

function checkReadable(file: OpenFile): void {
  if (!file.isReadable) throw new KernelError('EBADF');
  if (file.inode.isDirectory) throw new KernelError('EISDIR');
}

function checkWritable(file: OpenFile): void {
  if (!file.isWritable) throw new KernelError('EBADF');
}
