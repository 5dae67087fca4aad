import { constants } from 'node:fs';
import { OPCODE, OPEN_KILL_PRIVILEGES } from '../../../fuse/kernel/protocol.ts';
import type { Dentry } from './dentries.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import { type Inode, STALE } from './inode.ts';
import { KernelError } from './kernel-error.ts';
import { Mutex } from './kernel-locks.ts';
import {
  ENTRY_BYTES,
  type Entry,
  longs,
  name as nameWithZero,
  readEntry,
  readOpened,
  words,
} from './messages.ts';
import type { LastName, Names, Place } from './names.ts';
import type { OpenFile, OpenFiles } from './open-file.ts';
import { isCapable, isInGroup, isOwner, isSticky, MAY } from './permissions.ts';

export const RENAME_NOREPLACE = 1;
export const RENAME_EXCHANGE = 2;
export const RENAME_WHITEOUT = 4;

/** Changes of names: the checks of fs/namei.c, then the requests of fs/fuse/dir.c. */
export class NameChanges {
  readonly #client: FuseClient;
  readonly #names: Names;
  readonly #files: OpenFiles;
  /** s_vfs_rename_mutex */
  readonly #renames = new Mutex();

  constructor(client: FuseClient, names: Names, files: OpenFiles) {
    this.#client = client;
    this.#names = names;
    this.#files = files;
  }

  /** filename_create, then the creating call: mkdir, mknod or symlink. */
  make(call: Call, { parent, name, kind, hasSlash }: LastName, what: NewName): Promise<void> {
    return parent.inode.lock.exclusive(async () => {
      const isDirectory = (what.mode & constants.S_IFMT) === constants.S_IFDIR;
      await this.#checkNew(call, { parent, name, kind, hasSlash: hasSlash && !isDirectory });
      await this.#mayWrite(call, parent.inode);
      const { mode } = what;
      const type = mode & constants.S_IFMT;
      const isDevice = type === constants.S_IFCHR || type === constants.S_IFBLK;
      if (isDevice && !isCapable(call.task)) throw new KernelError('EPERM');
      const masked = this.#mode(call, parent.inode, mode);
      const node = parent.inode.node;
      const ask = (opcode: number, ...body: readonly Buffer[]): Promise<Buffer> =>
        this.#client.queue.request(call.task, opcode, node, body);
      await this.#enter(call, parent, name, type, async () => {
        if (type === constants.S_IFDIR)
          return ask(OPCODE.mkdir, words(masked & 0o1777, call.umask), nameWithZero(name));
        if (type === constants.S_IFLNK)
          return ask(OPCODE.symlink, nameWithZero(name), nameWithZero(what.target ?? ''));
        return ask(OPCODE.mknod, words(masked, what.device ?? 0, call.umask, 0), nameWithZero(name));
      });
    });
  }

  /** do_linkat, vfs_link and fuse_link. */
  link(call: Call, inode: Inode, { parent, name, kind, hasSlash }: LastName): Promise<void> {
    return parent.inode.lock.exclusive(async () => {
      await this.#checkNew(call, { parent, name, kind, hasSlash });
      await this.#mayLink(call, inode);
      await this.#mayWrite(call, parent.inode);
      if (inode.isDirectory) throw new KernelError('EPERM');
      await inode.lock.exclusive(async () => {
        if (inode.attributes.links === 0) throw new KernelError('ENOENT');
        const body = [longs(inode.node), nameWithZero(name)];
        try {
          await this.#enter(call, parent, name, inode.type, () =>
            this.#client.queue.request(call.task, OPCODE.link, parent.inode.node, body),
          );
        } catch (error) {
          if (error instanceof KernelError && error.errno === 'EINTR') inode.invalidate();
          throw error;
        }
      });
    });
  }

  /** may_linkat, with /proc/sys/fs/protected_hardlinks: the rights are checked first. */
  async #mayLink(call: Call, inode: Inode): Promise<void> {
    if ((await this.#isSafeToLink(call, inode)) || isOwner(call.task, inode)) return;
    throw new KernelError('EPERM');
  }

  /** safe_hardlink_source */
  async #isSafeToLink(call: Call, inode: Inode): Promise<boolean> {
    const { mode } = inode.attributes;
    if (!inode.isFile || (mode & 0o4000) !== 0 || (mode & 0o2010) === 0o2010) return false;
    try {
      await this.#client.checkAccess(call, inode, MAY.read | MAY.write);
      return true;
    } catch (error) {
      if (error instanceof KernelError) return false;
      throw error;
    }
  }

  /** unlink and rmdir. */
  remove(call: Call, last: LastName, isDirectory: boolean): Promise<void> {
    const { parent, name, kind, hasSlash } = last;
    if (kind !== 'name') throw new KernelError(isDirectory ? REMOVED_DIRECTORY[kind] : 'EISDIR');
    return parent.inode.lock.exclusive(async () => {
      const dentry = await this.#names.lookupLocked(call, parent, name);
      const inode = call.pin(dentry.inode);
      if (inode === null) throw new KernelError('ENOENT');
      if (!isDirectory && hasSlash) throw new KernelError(inode.isDirectory ? 'EISDIR' : 'ENOTDIR');
      await this.#mayDelete(call, parent.inode, inode, isDirectory);
      await inode.lock.exclusive(async () => {
        const opcode = isDirectory ? OPCODE.rmdir : OPCODE.unlink;
        try {
          await this.#client.queue.request(call.task, opcode, parent.inode.node, [nameWithZero(name)]);
        } catch (error) {
          if (isUncertain(error)) this.#client.dentries.invalidate(dentry);
          throw error;
        }
        this.#client.directoryChanged(parent.inode);
        this.#unlinked(inode);
        if (isDirectory) {
          this.#client.dentries.shrink(dentry);
          inode.isDead = true;
        }
      });
      this.#client.dentries.delete(dentry);
    });
  }

  /** fuse_entry_unlinked */
  #unlinked(inode: Inode): void {
    inode.version = this.#client.nextVersion();
    const { links } = inode.attributes;
    inode.attributes = { ...inode.attributes, links: inode.isDirectory ? 0 : Math.max(0, links - 1) };
    inode.invalidate(STALE.modified);
  }

  /** do_renameat2 and vfs_rename. */
  async rename(call: Call, from: LastName, to: LastName, how: number): Promise<void> {
    if (from.kind !== 'name') throw new KernelError('EBUSY');
    if (to.kind !== 'name') throw new KernelError((how & RENAME_NOREPLACE) !== 0 ? 'EEXIST' : 'EBUSY');
    const run = (): Promise<void> => this.#renameLocked(call, from, to, how);
    const [a, b] = [from.parent, to.parent];
    if (a.inode === b.inode) return a.inode.lock.exclusive(run);
    await this.#renames.hold(() => {
      // Parents before children.
      const [first, second] = isBelow(a.dentry, b.dentry) ? [b.inode, a.inode] : [a.inode, b.inode];
      return first.lock.exclusive(() => second.lock.exclusive(run));
    });
  }

  async #renameLocked(call: Call, from: LastName, to: LastName, how: number): Promise<void> {
    const { dentries, queue } = this.#client;
    const exchanges = (how & RENAME_EXCHANGE) !== 0;
    const old = await this.#names.lookupLocked(call, from.parent, from.name);
    const source = call.pin(old.inode);
    if (source === null) throw new KernelError('ENOENT');
    const target = await this.#names.lookupLocked(call, to.parent, to.name, !exchanges);
    const replaced = call.pin(target.inode);
    if ((how & RENAME_NOREPLACE) !== 0 && replaced !== null) throw new KernelError('EEXIST');
    if (exchanges && replaced === null) throw new KernelError('ENOENT');
    if (exchanges && !replaced?.isDirectory && to.hasSlash) throw new KernelError('ENOTDIR');
    if (!source.isDirectory) {
      if (from.hasSlash) throw new KernelError('ENOTDIR');
      if (!exchanges && to.hasSlash) throw new KernelError('ENOTDIR');
    }
    if (isBelow(to.parent.dentry, old)) throw new KernelError('EINVAL');
    if (isBelow(from.parent.dentry, target)) throw new KernelError(exchanges ? 'EINVAL' : 'ENOTEMPTY');

    if (source === replaced) return;
    const [oldParent, newParent] = [from.parent.inode, to.parent.inode];
    await this.#mayDelete(call, oldParent, source, source.isDirectory);
    if (replaced === null) await this.#mayWrite(call, newParent);
    else
      await this.#mayDelete(call, newParent, replaced, exchanges ? replaced.isDirectory : source.isDirectory);
    if (oldParent !== newParent) {
      if (source.isDirectory) await this.#client.checkAccess(call, source, MAY.write);
      if (exchanges && replaced?.isDirectory) await this.#client.checkAccess(call, replaced, MAY.write);
    }
    const locked = [source, replaced].filter((inode): inode is Inode => inode !== null && !inode.isDirectory);
    await inOrder(locked, async () => {
      const names = [nameWithZero(from.name), nameWithZero(to.name)];
      const head = how === 0 ? [longs(newParent.node)] : [longs(newParent.node), words(how, 0)];
      try {
        const opcode = how === 0 ? OPCODE.rename : OPCODE.rename2;
        await queue.request(call.task, opcode, oldParent.node, [...head, ...names]);
      } catch (error) {
        if (isUncertain(error)) {
          dentries.invalidate(old);
          if (replaced !== null) dentries.invalidate(target);
        }
        throw error;
      }
      source.invalidate(STALE.modified);
      if (exchanges) replaced?.invalidate(STALE.modified);
      this.#client.directoryChanged(oldParent);
      this.#client.directoryChanged(newParent);
      if (!exchanges && replaced !== null) {
        this.#unlinked(replaced);
        if (source.isDirectory) {
          dentries.shrink(target);
          replaced.isDead = true;
        }
      }
    });
    if (exchanges) dentries.exchange(old, target);
    else dentries.move(old, target);
  }

  /** lookup_open with fuse_atomic_open: the existing inode, or a created file that is open. */
  openName(
    call: Call,
    { parent, name }: LastName,
    flags: number,
    mode: number,
    asks: boolean,
  ): Promise<{ readonly dentry: Dentry } | { readonly created: OpenFile }> {
    const creates = (flags & constants.O_CREAT) !== 0;
    const run = async (): Promise<{ readonly dentry: Dentry } | { readonly created: OpenFile }> => {
      if (parent.inode.isDead) throw new KernelError('ENOENT');
      const known = await this.#names.cached(call, parent, name, asks);
      if (known !== null && (known.inode !== null || !creates)) return { dentry: known };
      let refusal: KernelError | null = null;
      if (creates) refusal = await this.#mayCreate(call, parent.inode);
      const dentry = known ?? (await this.#names.lookupLocked(call, parent, name, asks));
      if (dentry.inode !== null || !creates) return { dentry };
      if (refusal !== null) throw refusal;
      return { created: await this.#create(call, parent, name, flags, mode) };
    };
    return creates ? parent.inode.lock.exclusive(run) : parent.inode.lock.shared(run);
  }

  /** may_o_create: the error, or null */
  async #mayCreate(call: Call, directory: Inode): Promise<KernelError | null> {
    try {
      await this.#mayWrite(call, directory);
      return null;
    } catch (error) {
      if (error instanceof KernelError) return error;
      throw error;
    }
  }

  /** fuse_create_open */
  async #create(call: Call, parent: Place, name: string, flags: number, mode: number): Promise<OpenFile> {
    const client = this.#client;
    const truncates = (flags & constants.O_TRUNC) !== 0;
    const kills =
      truncates && (flags & constants.O_EXCL) === 0 && !isCapable(call.task) ? OPEN_KILL_PRIVILEGES : 0;
    const sent = flags & ~constants.O_NOCTTY;
    const asked = this.#mode(call, parent.inode, constants.S_IFREG | (mode & 0o7777));
    const body = [words(sent, asked, call.umask, kills), nameWithZero(name)];
    let reply: Buffer;
    try {
      reply = await client.queue.request(call.task, OPCODE.create, parent.inode.node, body);
    } catch (error) {
      if (error instanceof KernelError && error.errno === 'EEXIST') this.#forgetName(parent, name);
      throw error;
    }
    const entry = readEntry(reply);
    const { handle, flags: openedFlags } = readOpened(reply, ENTRY_BYTES);
    const inode = await this.#entered(call, parent, name, constants.S_IFREG, entry);
    const dentry = client.dentries.find(parent.dentry, name);
    if (dentry === undefined) throw new KernelError('EIO');
    const file = this.#files.opened(dentry, inode, flags, handle, openedFlags);
    if (truncates) await client.pages(inode).truncate(0);
    else if (!file.keepsCache) await client.dropPages(inode);
    return file;
  }

  /** create_new_entry */
  async #enter(
    call: Call,
    parent: Place,
    name: string,
    type: number,
    request: () => Promise<Buffer>,
  ): Promise<void> {
    let reply: Buffer;
    try {
      reply = await request();
    } catch (error) {
      if (error instanceof KernelError && error.errno === 'EEXIST') this.#forgetName(parent, name);
      throw error;
    }
    await this.#entered(call, parent, name, type, readEntry(reply));
  }

  async #entered(call: Call, parent: Place, name: string, type: number, entry: Entry): Promise<Inode> {
    const client = this.#client;
    if (entry.node === 0 || (entry.attributes.mode & constants.S_IFMT) !== type) throw new KernelError('EIO');
    const inode = await client.inodeOf(call, entry);
    const dentry = client.dentries.add(parent.dentry, name, inode);
    dentry.validUntilMs = client.untilMs(entry.nameMs);
    client.directoryChanged(parent.inode);
    return inode;
  }

  /** fuse_invalidate_entry */
  #forgetName(parent: Place, name: string): void {
    const dentry = this.#client.dentries.find(parent.dentry, name);
    if (dentry !== undefined) this.#client.dentries.invalidate(dentry);
  }

  /** filename_create: asserts that the name does not exist. */
  async #checkNew(call: Call, { parent, name, kind, hasSlash }: LastName): Promise<void> {
    if (kind !== 'name') throw new KernelError('EEXIST');
    const dentry = await this.#names.lookupLocked(call, parent, name, true);
    if (dentry.inode !== null) throw new KernelError('EEXIST');
    if (hasSlash) throw new KernelError('ENOENT');
  }

  /** may_create */
  async #mayWrite(call: Call, directory: Inode): Promise<void> {
    if (directory.isDead) throw new KernelError('ENOENT');
    await this.#client.checkAccess(call, directory, MAY.write | MAY.exec);
  }

  /** may_delete */
  async #mayDelete(call: Call, directory: Inode, victim: Inode, isDirectory: boolean): Promise<void> {
    await this.#client.checkAccess(call, directory, MAY.write | MAY.exec);
    if (isSticky(call.task, directory, victim)) throw new KernelError('EPERM');
    if (isDirectory && !victim.isDirectory) throw new KernelError('ENOTDIR');
    if (!isDirectory && victim.isDirectory) throw new KernelError('EISDIR');
    if (isDirectory && victim === this.#client.dentries.root.inode) throw new KernelError('EBUSY');
    if (directory.isDead) throw new KernelError('ENOENT');
  }

  /** vfs_prepare_mode, and the umask that FUSE leaves to the file system with FUSE_DONT_MASK. */
  #mode({ task, umask }: Call, directory: Inode, mode: number): number {
    const strips =
      (directory.attributes.mode & 0o2000) !== 0 &&
      (mode & 0o2010) === 0o2010 &&
      (mode & constants.S_IFMT) !== constants.S_IFDIR &&
      !isInGroup(task, directory.attributes.gid) &&
      !isCapable(task);
    const kept = strips ? mode & ~0o2000 : mode;
    return this.#client.has('dontMask') ? kept : kept & ~umask;
  }
}

export interface NewName {
  /** Includes the file type. */
  readonly mode: number;
  readonly device?: number;
  readonly target?: string;
}

const REMOVED_DIRECTORY = { dot: 'EINVAL', dotdot: 'ENOTEMPTY', root: 'EBUSY' } as const;

/** @returns whether `dentry` is `above`, or below it */
function isBelow(dentry: Dentry, above: Dentry): boolean {
  for (let at: Dentry | null = dentry; at !== null; at = at.parent) if (at === above) return true;
  return false;
}

/** @returns whether the outcome is unknown */
function isUncertain(error: unknown): boolean {
  return error instanceof KernelError && (error.errno === 'EINTR' || error.errno === 'ENOENT');
}

/** Runs with all inodes locked, in the order of their numbers. */
function inOrder(inodes: readonly Inode[], run: () => Promise<void>): Promise<void> {
  const sorted = inodes.toSorted((a, b) => a.node - b.node);
  const locked = (index: number): Promise<void> => {
    const inode = sorted[index];
    return inode === undefined ? run() : inode.lock.exclusive(() => locked(index + 1));
  };
  return locked(0);
}
