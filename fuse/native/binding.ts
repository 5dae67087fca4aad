import { constants } from 'node:fs';
import { constants as osConstants } from 'node:os';
import Fuse from 'fuse-native';
import { canonical, mountAt } from '../../client/mounts/mount-table.ts';
import type { Attributes } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import { ErrnoError, errnoName, errnoNumber } from '../errno.ts';
import { PathView } from '../kernel-view/kernel-view.ts';
import { logUnforeseen } from '../log.ts';
import type { Place } from '../place.ts';
import { tuneKernel } from '../transport/kernel-tuning.ts';
import { guardMount } from '../transport/mount-guard.ts';
import { RecentTimeouts } from '../transport/recent-timeouts.ts';
import { FILE_TYPES, RENAME_EXCHANGE, soughtBy } from '../transport/stat.ts';
import { TimedOutCallers } from '../transport/timed-out-callers.ts';
import type { Caller, FileSystemCalls, MountedTransport, Opened, TransportOptions } from '../transport.ts';
import { xattrKind } from '../xattr-names.ts';
import { BindingLocks, ownerOf } from './binding-locks.ts';
import { assertWasUtf8, timeChange, toFilePosition, toStatfs, toStats } from './conversions.ts';
import { Paths } from './paths.ts';

/**
 * The only file that calls `fuse-native` (decision 0003). The library is path-based, and libfuse gives the kernel one
 * inode per name: this file walks paths to inodes, keeps pages by path, and undoes libfuse's renaming of unlinked open
 * files.
 */

const WORKERS = 64;
const START_LIMIT_MS = 15_000;
/** After this time, or this share of a call's limit, `statfs` answers for the mounted volume. */
const VOLUME_LIMIT_MS = 1_000;
const VOLUME_LIMIT_SHARE = 1 / 4;
/** Entries of a directory per call: about as many as the kernel's buffer holds. */
const PAGE_COUNT = 512;
/** FUSE_CAP_POSIX_ACL and FUSE_CAP_DONT_MASK of libfuse. */
const CAPABILITIES_FOR_ACLS = (1 << 19) | (1 << 6);
const NOT_SUPPORTED = -osConstants.errno.EOPNOTSUPP;

/** libfuse renames an unlinked open file to such a name, and unlinks that at the last close. */
const HIDDEN_NAME = /^\.fuse_hidden[0-9a-f]{8,}$/;

/** Passes kernel options as text. By the library's own option, root could allow other users only in /etc/fuse.conf. */
class FuseWithOptions extends Fuse {
  kernelOptions: readonly string[] = [];

  _fuseOptions(): string {
    const parent = Fuse.prototype as unknown as { _fuseOptions(this: FuseWithOptions): string };
    return [parent._fuseOptions.call(this), ...this.kernelOptions].join(',');
  }
}

/** Kernel options that libfuse and fusermount3 refuse; the mount table then shows the default, `relatime`. */
const UNKNOWN_TO_LIBRARY: ReadonlySet<string> = new Set(['relatime', 'strictatime', 'nodiratime']);

type Answer<Value> = (error: number, value?: Value) => void;
type OpenedInfo = Fuse.FileInfoResult & { readonly fd: number };

export async function mountWithBinding(
  directory: string,
  calls: FileSystemCalls,
  options: TransportOptions,
): Promise<MountedTransport> {
  const { world, log } = options;
  const mountpoint = await canonical(directory);
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const binding = new Binding(calls, options);
  const fuse = new FuseWithOptions(
    mountpoint,
    binding.operations(() => fuse.context()),
    {
      fsname: options.source,
      subtype: 'leasehold',
      force: true,
      autoUnmount: true,
      defaultPermissions: true,
      nullPathOk: true,
      maxConcurrency: WORKERS,
      // Every answer has its own limit here.
      timeout: { default: false, init: START_LIMIT_MS },
      entryTimeout: 0,
      attrTimeout: options.cache.attributesMs / 1000,
      onError: (error, operation) => {
        if (operation === 'lifecycle') {
          log('info', 'the mount was removed from outside');
          // The library is cleaning up; it calls back when it is done.
          world.soon(() => fuse.unmount(() => end()));
        } else log('error', 'a call failed unexpectedly', { operation, error: String(error) });
      },
    },
  );
  fuse.kernelOptions = options.kernelOptions.filter((option) => !UNKNOWN_TO_LIBRARY.has(option));
  await new Promise<void>((done, failed) => {
    fuse.mount((error) => (error ? failed(error) : done()));
  });
  // fusermount3 checks for a dead mount while the process still ends, and leaves it if it is too early.
  const mounted = await mountAt(mountpoint);
  if (mounted !== null) guardMount(mounted.device, mountpoint);
  await tuneKernel(mountpoint).catch((error: unknown) => {
    log('info', 'the kernel keeps its default read-ahead', { error: String(error) });
  });
  return {
    ended,
    checksAttributesBeforeReads: false,
    unmount: () =>
      new Promise((done, failed) => {
        fuse.unmount((error) => {
          end();
          if (error) failed(error);
          else done();
        });
      }),
    // The library cannot have the kernel drop an inode: its time has to pass.
    invalidateInode: () => world.sleep(options.cache.attributesMs),
    // Nor can it give each answer its own validity, so the kernel caches no names.
    expireNames: () => Promise.resolve(),
    dropAttributes: () => Promise.resolve(),
  };
}

class Binding {
  readonly #calls: FileSystemCalls;
  readonly #options: TransportOptions;
  readonly #paths: Paths;
  readonly #kernelView: PathView;
  readonly #recentTimeouts: RecentTimeouts;
  readonly #timedOutCallers: TimedOutCallers;

  constructor(calls: FileSystemCalls, options: TransportOptions) {
    this.#calls = calls;
    this.#paths = new Paths(calls);
    this.#options = options;
    this.#kernelView = new PathView(options.world, options.cache.attributesMs);
    this.#recentTimeouts = new RecentTimeouts(options.world);
    this.#timedOutCallers = new TimedOutCallers(options.world, options.limitMs);
  }

  operations(context: () => Fuse.RequestContext | null): Fuse.OPERATIONS {
    const calls = this.#calls;
    const caller = (): Caller => {
      const { uid, gid, umask } = context() ?? { uid: 0, gid: 0, umask: 0 };
      return { uid, gid, umask: umask & 0o777 };
    };
    const acls = this.#options.acls && this.#options.xattrs;
    const release = (handle: number): Promise<void> => this.#release(handle);
    const operations: Fuse.OPERATIONS = {
      // With these the kernel checks access control lists, and leaves the umask to the file system.
      initWithConfig: ({ want, capable }, cb) =>
        cb(0, acls ? { want: (want | (capable & CAPABILITIES_FOR_ACLS)) >>> 0 } : {}),
      getattr: (path, cb) => {
        const pid = context()?.pid ?? 0;
        this.#answer(
          cb,
          async () => {
            if (path !== '/' && this.#timedOutCallers.has(pid))
              throw new ErrnoError(
                'ETIMEDOUT',
                'The request for the root used up the time limit of this call',
              );
            const beganMs = this.#options.world.nowMs();
            const stored = await this.#unlessJustTimedOut(`getattr ${path}`, () => this.#paths.lookup(path));
            if (path === '/') this.#timedOutCallers.rootAnswered(pid, beganMs);
            return this.#statsAnswered(path, stored, pid);
          },
          false,
        );
      },
      fgetattr: (path, fd, cb) => {
        const pid = context()?.pid ?? 0;
        this.#answer(cb, async () =>
          this.#statsAnswered(path, await this.#paths.attributesOfHandle(path, fd), pid),
        );
      },
      readlink: (path, cb) => this.#answer(cb, async () => calls.readLink(await this.#paths.inode(path))),
      mknod: (path, mode, device, cb) => {
        const by = caller();
        this.#done(cb, () =>
          this.#paths.at(path, (at) => calls.makeNode(at.parent, at.name, mode, Number(device), by)),
        );
      },
      mkdir: (path, mode, cb) => {
        const by = caller();
        this.#done(cb, () => this.#paths.at(path, (at) => calls.makeDirectory(at.parent, at.name, mode, by)));
      },
      symlink: (target, path, cb) => {
        const by = caller();
        this.#done(cb, () =>
          this.#paths.at(path, async (at) => {
            assertWasUtf8(target);
            return calls.symlink(at.parent, at.name, target, by);
          }),
        );
      },
      link: (from, path, cb) => {
        this.#done(cb, async () => {
          const inode = await this.#paths.inodeToOpen(from);
          await this.#paths.at(path, (at) => calls.link(inode, at.parent, at.name));
        });
      },
      unlink: (path, cb) => {
        const { uid } = caller();
        this.#answer(cb, () => this.#unlink(path, uid));
      },
      rmdir: (path, cb) => {
        this.#answer(cb, () => this.#paths.at(path, (at) => calls.removeDirectory(at.parent, at.name)));
      },
      renameWithFlags: (from, to, flags, cb) => {
        const { uid } = caller();
        this.#answer(cb, () => this.#rename(from, to, flags, uid));
      },
      chmodWithHandle: (path, fd, mode, cb) => {
        this.#done(cb, async () => calls.setAttributes(await this.#paths.inodeOf(path, fd), { mode }));
      },
      chownWithHandle: (path, fd, uid, gid, cb) => {
        this.#done(cb, async () => calls.setAttributes(await this.#paths.inodeOf(path, fd), { uid, gid }));
      },
      utimensWithHandle: (path, fd, accessed, modified, cb) => {
        const request = { ...timeChange('accessed', accessed), ...timeChange('modified', modified) };
        this.#done(cb, async () => calls.setAttributes(await this.#paths.inodeOf(path, fd), request));
      },
      truncate: (path, size, cb) => {
        const by = caller();
        this.#done(cb, async () =>
          calls.truncate(await this.#paths.inodeToOpen(path), toFilePosition(size), by),
        );
      },
      ftruncate: (path, fd, size, cb) => {
        const by = caller();
        this.#done(cb, async () =>
          calls.truncate(await this.#paths.inodeOf(path, fd), toFilePosition(size), by),
        );
      },
      open: (path, flags, cb) => {
        const by = caller();
        const pid = context()?.pid ?? 0;
        this.#answerOpened(cb, () => this.#openFile(path, flags, by, pid), release);
      },
      createWithFlags: (path, mode, flags, cb) => {
        const by = caller();
        const create = async ({ parent, name }: Place): Promise<OpenedInfo> =>
          this.#opened(path, await calls.create(parent, name, mode, flags, by));
        this.#answerOpened(cb, () => this.#paths.at(path, create), release);
      },
      read: (_path, fd, buffer, length, position, cb) => {
        const read = async (): Promise<number> => {
          const bytes = await calls.read(Number(fd), toFilePosition(position), length);
          buffer.set(bytes);
          return bytes.length;
        };
        this.#answerCount(cb, () => this.#unlessJustTimedOut(`read ${fd}`, read));
      },
      write: (_path, fd, buffer, length, position, cb) => {
        const by = caller();
        const bytes = buffer.length === length ? buffer : buffer.subarray(0, length);
        this.#answerCount(cb, async () => calls.write(Number(fd), toFilePosition(position), bytes, by));
      },
      // Waiting for pending writes has limits of its own, which count from the last progress.
      flush: (_path, fd, cb) => {
        const owner = ownerOf(context());
        this.#answer(cb, () => calls.flush(Number(fd), owner), false);
      },
      fsync: (_path, _dataOnly, fd, cb) => this.#answer(cb, () => calls.persist(Number(fd)), false),
      fsyncdir: (path, _dataOnly, fd, cb) =>
        this.#answer(
          cb,
          async () => calls.persistDirectory(await this.#paths.inode(path), Number(fd)),
          false,
        ),
      release: (_path, fd, cb) => this.#answer(cb, () => this.#release(Number(fd)), false),
      fallocate: (_path, fd, mode, offset, length, cb) => {
        const by = caller();
        this.#answer(cb, async () =>
          calls.allocate(Number(fd), mode, toFilePosition(offset), toFilePosition(length), by),
        );
      },
      lseek: (_path, fd, offset, whence, cb) => {
        this.#answer(cb, async () =>
          calls.seek(Number(fd), toFilePosition(offset, 'ENXIO'), soughtBy(whence)),
        );
      },
      copyFileRange: (_from, fromFd, fromOffset, _to, toFd, toOffset, length, flags, cb) => {
        const by = caller();
        this.#answerCount(cb, async () => {
          if (flags !== 0) throw new ErrnoError('EINVAL', `Cannot copy with flags ${flags}`);
          const [from, to] = [toFilePosition(fromOffset), toFilePosition(toOffset)];
          return calls.copyRange(Number(fromFd), from, Number(toFd), to, Number(length), by);
        });
      },
      opendir: (path, flags, cb) => {
        const open = async () => ({ fd: await calls.openDirectory(await this.#paths.inode(path), flags) });
        this.#answerOpened(cb, open, (handle) => calls.releaseDirectory(handle));
      },
      readdirPaged: (_path, fd, offset, cb) => this.#readDirectory(Number(fd), toFilePosition(offset), cb),
      releasedir: (_path, fd, cb) => this.#answer(cb, () => calls.releaseDirectory(Number(fd))),
      // Its waits have limits of their own, after which it has an answer.
      statfs: (path, cb) =>
        this.#answer(cb, async () => toStatfs(await calls.space(await this.#inodeOrRoot(path))), false),
    };
    Object.assign(operations, this.#lockOperations(context));
    if (!this.#options.xattrs) return operations;
    return {
      ...operations,
      setxattr: (path, name, value, _position, flags, cb) => {
        const bytes = Uint8Array.from(value);
        if (xattrKind(name) === 'acl' && !acls) return cb(NOT_SUPPORTED);
        this.#answer(cb, async () => {
          assertWasUtf8(name);
          return calls.setXattr(await this.#paths.inode(path), name, bytes, flags);
        });
      },
      getxattr: (path, name, _position, cb) => {
        const kind = xattrKind(name);
        if (kind === 'none' || (kind === 'acl' && !acls)) return cb(NOT_SUPPORTED);
        this.#answer(cb, async () => {
          assertWasUtf8(name);
          const bytes = await calls.xattr(await this.#paths.inode(path), name);
          return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        });
      },
      listxattr: (path, cb) => {
        const by = { ...caller(), thread: context()?.pid ?? 0 };
        this.#answer(cb, async () => [...(await calls.xattrs(await this.#paths.inode(path), by))]);
      },
      removexattr: (path, name, cb) => {
        this.#answer(cb, async () => {
          assertWasUtf8(name);
          return calls.removeXattr(await this.#paths.inode(path), name);
        });
      },
    };
  }

  #lockOperations(context: () => Fuse.RequestContext | null): Pick<Fuse.OPERATIONS, 'lock' | 'flock'> {
    const calls = this.#calls;
    const locks = new BindingLocks(this.#options.world, {
      lock: calls.lock.bind(calls),
      lockHolder: calls.lockHolder.bind(calls),
    });
    return {
      lock: (_path, fd, command, lock, cb) => {
        const by = context();
        this.#answer(cb, () => locks.posix(Number(fd), command, lock, by), false);
      },
      flock: (_path, fd, operation, cb) => {
        const by = context();
        this.#answer(cb, () => locks.flock(Number(fd), operation, by), false);
      },
    };
  }

  #bounded<Value>(promise: Promise<Value>, what: string): Promise<Value> {
    const { world, limitMs, deadlineOf } = this.#options;
    return withDeadline(world, promise, limitMs, what, deadlineOf);
  }

  /** The inode at a path; the mounted volume's root if that is not known in time. */
  async #inodeOrRoot(path: string): Promise<number> {
    const { root } = this.#calls;
    const { world, limitMs } = this.#options;
    const waitMs = Math.min(VOLUME_LIMIT_MS, limitMs * VOLUME_LIMIT_SHARE);
    return withDeadline(world, this.#paths.inode(path), waitMs, 'A look-up').catch(() => root);
  }

  #done(cb: Answer<void>, call: () => Promise<unknown>): void {
    this.#answer(cb, async () => void (await call()));
  }

  #answer<Value>(cb: Answer<Value>, call: () => Promise<Value>, limited = true): void {
    const promise = limited ? this.#bounded(call(), 'The call') : call();
    promise.then(
      (value) => cb(0, value),
      (error: unknown) => cb(this.#errno(error)),
    );
  }

  /** As `#answer`, for a call that opens: closes what it opens after the caller got ETIMEDOUT. */
  #answerOpened<Value extends { readonly fd: number }>(
    cb: Answer<Value>,
    call: () => Promise<Value>,
    close: (handle: number) => Promise<void>,
  ): void {
    const opened = call();
    const answer: Answer<Value> = (error, value) => {
      if (error === -osConstants.errno.ETIMEDOUT) {
        opened.then(({ fd }) => close(fd)).catch((failure: unknown) => void this.#errno(failure));
      }
      cb(error, value);
    };
    this.#answer(answer, () => opened);
  }

  #answerCount(cb: (result: number) => void, call: () => Promise<number>): void {
    call().then(cb, (error: unknown) => cb(this.#errno(error)));
  }

  /** Bounds `call` by the time limit. After a timeout the kernel repeats the request, which then fails at once. */
  async #unlessJustTimedOut<Value>(question: string, call: () => Promise<Value>): Promise<Value> {
    if (this.#recentTimeouts.has(question))
      throw new ErrnoError('ETIMEDOUT', 'The same call timed out a moment ago');
    try {
      return await this.#bounded(call(), 'The call');
    } catch (error) {
      if (errnoName(error) === 'ETIMEDOUT') this.#recentTimeouts.add(question);
      throw error;
    }
  }

  #errno(error: unknown): number {
    logUnforeseen(this.#options.log, error);
    return errnoNumber(error);
  }

  /** Records that the kernel may cache these attributes. @returns them as presented, in the library's form */
  #statsAnswered(path: string | null, stored: Attributes, caller: number): Fuse.Stats {
    if (path !== null) this.#kernelView.answered(path, stored, caller);
    return toStats(this.#options.present(stored));
  }

  async #openFile(path: string, flags: number, by: Caller, pid: number): Promise<OpenedInfo> {
    const inode = await this.#paths.inodeToOpen(path);
    const opened = await this.#calls.open(inode, flags, by);
    const { handle, version } = opened;
    // After a truncation the kernel knows the size.
    const truncates = (flags & constants.O_TRUNC) !== 0;
    if (version !== null && !truncates && this.#kernelView.refuses(path, version, pid)) {
      await this.#calls.release(handle);
      throw new ErrnoError('ESTALE', `"${path}" has changed since it was looked up`);
    }
    return this.#opened(path, opened);
  }

  /** Registers an open handle. @returns whether the kernel keeps or bypasses its page cache of the path */
  #opened(path: string, { handle, version, directIo, linked }: Opened): OpenedInfo {
    this.#paths.open.opened(path, handle, this.#calls.inodeOf(handle));
    // Another file is still open by this path, and the kernel has one page cache for both.
    const hasOtherFile = this.#paths.open.latestOfSeveral(path) !== undefined;
    // To the kernel each name of a file is an inode with pages of its own.
    const directIO = directIo || linked || hasOtherFile;
    const keepCache = this.#kernelView.opened(path, hasOtherFile ? null : version) && !directIO;
    if (keepCache) this.#calls.keptPages(handle);
    return { fd: handle, directIO, keepCache };
  }

  async #release(handle: number): Promise<void> {
    try {
      await this.#calls.release(handle);
    } finally {
      this.#paths.open.closed(handle);
    }
  }

  /** At the last close libfuse unlinks a hidden path, whose name `#rename` has removed at the cluster. */
  async #unlink(path: string, uid: number): Promise<void> {
    if (this.#paths.forgetHidden(path)) return;
    this.#kernelView.forgetPages(path);
    await this.#paths.at(path, (at) => this.#calls.unlink(at.parent, at.name, uid));
  }

  /**
   * Renames a path. libfuse also renames an open file that is unlinked, to a hidden name, which would show on every
   * mount and keep its directory from being removed. The cluster keeps unlinked files, so it is unlinked, and only
   * `#paths` has the hidden name.
   */
  async #rename(from: string, to: string, flags: number, uid: number): Promise<void> {
    this.#kernelView.forgetPages(from);
    this.#kernelView.forgetPages(to);
    const source = await this.#paths.resolveParent(from);
    const target = await this.#paths.resolveParent(to);
    if (HIDDEN_NAME.test(target.name) && flags === 0) {
      await this.#paths.hide(from, source, to, uid);
      return;
    }
    await this.#calls.rename(source, target, flags, uid);
    if (flags === RENAME_EXCHANGE) this.#paths.open.exchanged(from, to);
    else this.#paths.open.moved(from, to);
  }

  #readDirectory(
    handle: number,
    offset: number,
    cb: (error: number, names?: string[], stats?: Fuse.Stats[], next?: number[]) => void,
  ): void {
    const listed = this.#calls.readDirectory(handle, offset, PAGE_COUNT);
    const page = this.#bounded(listed, 'A listing');
    page.then(
      ({ entries }) =>
        cb(
          0,
          entries.map(({ name }) => name),
          // Only the type is used; it saves tree walks a request per entry.
          entries.map(({ kind }) => ({ mode: FILE_TYPES[kind] })),
          entries.map(({ position }) => position + 1),
        ),
      (error: unknown) => cb(this.#errno(error)),
    );
  }
}
