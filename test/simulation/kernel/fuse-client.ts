import assert from 'node:assert/strict';
import type { World } from '../../../base/world.ts';
import { INIT_FLAG, OPCODE, ROOT_NODE } from '../../../fuse/kernel/protocol.ts';
import { Dentries } from './dentries.ts';
import { type AclKind, Inode, STALE, STALE_ALL } from './inode.ts';
import { KernelError } from './kernel-error.ts';
import {
  type Entry,
  type Inode64,
  longs,
  name as nameWithZero,
  readAttributesReply,
  readEntry,
  words,
} from './messages.ts';
import { PageCache } from './page-cache.ts';
import { type Acl, type Credentials, mayAccess, type ProtectedFiles, readAcl } from './permissions.ts';
import { KERNEL, type RequestQueue, type Task } from './request-queue.ts';

const MINOR = 45;
const READ_AHEAD_BYTES = 4096 * 1024;
const XATTR_PAGE_BYTES = 4096;
const GETATTR_HANDLE = 1;

/** A pending system call: its caller, and the inodes that it needs until its end. */
export interface Call {
  readonly task: Task & Credentials;
  readonly umask: number;
  /** LOOKUP_REVAL: cached names are looked up again, after ESTALE. */
  readonly revalidates: boolean;
  /** Keeps the inode until the end of the call. */
  pin<Pinned extends Inode | null>(inode: Pinned): Pinned;
}

export interface ClientOptions extends ProtectedFiles {
  readonly readAheadBytes?: number;
}

/**
 * The kernel's half of one mount: inodes, attributes and names as in fs/fuse/inode.c and fs/fuse/dir.c. Names in
 * comments are those of the functions of Linux 6.18 that a method follows.
 */
export class FuseClient {
  readonly world: World;
  readonly queue: RequestQueue;
  readonly options: ClientOptions;
  readonly #inodes = new Map<number, Inode>();
  readonly #pages = new Map<Inode, PageCache>();
  #dentries: Dentries | null = null;
  #flags = 0;
  /** fc->attr_version: of two pending answers, the one that was requested earlier loses. */
  #version = 1;
  /** fc->evict_ctr: an answer about an inode that was dropped meanwhile is not valid for long. */
  #evictions = 1;

  constructor(world: World, queue: RequestQueue, options: ClientOptions) {
    this.world = world;
    this.queue = queue;
    this.options = options;
  }

  /** The mount has answered FUSE_INIT: before that the kernel knows no name. */
  get hasBegun(): boolean {
    return this.#dentries !== null;
  }

  get dentries(): Dentries {
    assert.ok(this.#dentries !== null, 'The mount has begun');
    return this.#dentries;
  }

  has(flag: keyof typeof INIT_FLAG): boolean {
    return (this.#flags & INIT_FLAG[flag]) !== 0;
  }

  /** fuse_send_init, and the root of fuse_fill_super. */
  async start(): Promise<void> {
    const body = [
      words(7, MINOR, this.options.readAheadBytes ?? READ_AHEAD_BYTES, 0xffff_ffff & ~(1 << 16), 0),
    ];
    const reply = await this.queue.request(KERNEL, OPCODE.init, 0, [...body, Buffer.alloc(44)]);
    this.#flags = reply.readUInt32LE(12);
    // The model does not support FUSE_WRITEBACK_CACHE, and does not offer it.
    for (const flag of [
      'asyncRead',
      'atomicTruncate',
      'bigWrites',
      'autoInvalidateData',
      'killPrivilegesV2',
    ] as const)
      assert.ok(this.has(flag), `The model relies on ${flag}`);
    const root: Inode64 = {
      ...{ inode: ROOT_NODE, sizeBytes: 0, sectors: 0, accessedNs: 0n, modifiedNs: 0n, changedNs: 0n },
      ...{ mode: 0o40000, links: 2, uid: 0, gid: 0, device: 0 },
    };
    const inode = new Inode(ROOT_NODE, root);
    this.#inodes.set(ROOT_NODE, inode);
    const put = (one: Inode): void => this.put(one);
    this.#dentries = new Dentries(inode, (one) => one.references++, put);
  }

  // Inodes and their attributes.

  get version(): number {
    return this.#version;
  }

  get evictions(): number {
    return this.#evictions;
  }

  nextVersion(): number {
    this.#version++;
    return this.#version;
  }

  pages(inode: Inode): PageCache {
    const pages =
      this.#pages.get(inode) ?? new PageCache(inode, this.options.readAheadBytes ?? READ_AHEAD_BYTES);
    this.#pages.set(inode, pages);
    return pages;
  }

  /**
   * fuse_iget: the inode of an entry, with its attributes.
   *
   * @param version at the time of the request; 0 for the outcome of a change, which is newer than all that is known
   */
  async inodeOf(
    call: Call,
    { node, attributes, attributesMs }: Entry,
    version = 0,
    evictions = 0,
  ): Promise<Inode> {
    let inode = this.#inodes.get(node);
    if (inode !== undefined && inode.type !== (attributes.mode & 0o170000)) {
      // fuse_stale_inode: make_bad_inode; it is not found any more.
      this.#makeBad(inode);
      inode = undefined;
    }
    if (inode === undefined) {
      inode = new Inode(node, attributes);
      this.#inodes.set(node, inode);
    }
    call.pin(inode);
    inode.lookups++;
    await this.changeAttributes(inode, attributes, attributesMs, version, evictions);
    return inode;
  }

  #makeBad(inode: Inode): void {
    inode.isBad = true;
    if (this.#inodes.get(inode.node) === inode) this.#inodes.delete(inode.node);
  }

  /** iput: the last use removes the inode, and the file system may forget it. */
  put(inode: Inode): void {
    inode.references--;
    if (inode.references > 0) return;
    this.#evictions++;
    this.#pages.delete(inode);
    if (this.#inodes.get(inode.node) === inode) this.#inodes.delete(inode.node);
    if (inode.lookups > 0) this.queue.forget(inode.node, inode.lookups);
  }

  /** Forgets a look-up that the kernel does not use. */
  forget(node: number): void {
    this.queue.forget(node, 1);
  }

  /** fuse_change_attributes */
  async changeAttributes(
    inode: Inode,
    attributes: Inode64,
    validMs: number,
    version: number,
    evictions = 0,
  ): Promise<void> {
    if ((version !== 0 && inode.version > version) || inode.isSizeUnstable) return;
    const { sizeBytes: sizeBefore } = inode;
    const { modifiedNs: modifiedBefore } = inode.attributes;
    this.takeAttributes(inode, attributes, validMs, evictions);
    inode.sizeBytes = attributes.sizeBytes;
    if (!inode.isFile) return;
    if (sizeBefore !== attributes.sizeBytes) await this.pages(inode).truncate(attributes.sizeBytes);
    if (sizeBefore !== attributes.sizeBytes || modifiedBefore !== attributes.modifiedNs)
      await this.dropPages(inode);
  }

  /** fuse_change_attributes_common */
  takeAttributes(inode: Inode, attributes: Inode64, validMs: number, evictions = 0): void {
    inode.version = this.nextVersion();
    inode.validUntilMs = validMs > 0 ? this.world.nowMs() + validMs : Number.NEGATIVE_INFINITY;
    if (evictions === 0 || evictions === this.#evictions) inode.staleParts &= ~STALE_ALL;
    inode.attributes = attributes;
    inode.hasNoPrivileges = false;
  }

  /** invalidate_inode_pages2 */
  async dropPages(inode: Inode): Promise<void> {
    const pages = this.#pages.get(inode);
    if (pages !== undefined && pages.size > 0) await pages.drop(this.storeOf(inode));
    inode.linkTarget = null;
  }

  /** The target of dirty pages: a file that is open for writing. */
  storeOf(inode: Inode): { write(offset: number, bytes: Buffer): Promise<void> } {
    return { write: (offset, bytes) => this.writeDirty(inode, offset, bytes) };
  }

  /** Set by the object that knows the open files. */
  writeDirty: (inode: Inode, offset: number, bytes: Buffer) => Promise<void> = async () => {
    throw new KernelError('EIO', 'No file is open for writing');
  };

  /**
   * fuse_update_get_attr: queries attributes that are not known, or not valid any more.
   * @param handle of a file that is read
   * @returns the attributes of the reply, which `stat` shows even if the inode does not take them; null if no query
   * was needed
   */
  async updateAttributes(
    call: Call,
    inode: Inode,
    parts: number = STALE_ALL,
    handle?: number,
  ): Promise<Inode64 | null> {
    if (inode.isBad) throw new KernelError('EIO');
    if (!inode.isStale(parts, this.world.nowMs())) return null;
    inode.forgetAcls();
    return this.#askAttributes(call, inode, handle);
  }

  /** fuse_do_getattr */
  async #askAttributes({ task }: Call, inode: Inode, handle?: number): Promise<Inode64> {
    const version = this.#version;
    const isByHandle = handle !== undefined && inode.isFile;
    const body = [words(isByHandle ? GETATTR_HANDLE : 0, 0), longs(handle ?? 0)];
    const reply = readAttributesReply(await this.queue.request(task, OPCODE.getattr, inode.node, body));
    if ((reply.attributes.mode & 0o170000) !== inode.type && inode.node !== ROOT_NODE) {
      this.#makeBad(inode);
      throw new KernelError('EIO', 'An inode changes its type');
    }
    await this.changeAttributes(inode, reply.attributes, reply.attributesMs, version);
    return reply.attributes;
  }

  /** fuse_permission. @throws KernelError EACCES */
  async checkAccess(call: Call, inode: Inode, wanted: number): Promise<void> {
    if (inode.isBad) throw new KernelError('EIO');
    const acl = this.has('posixAcls') ? () => this.acl(call, inode, 'access') : null;
    const isStale = inode.isStale(STALE.access, this.world.nowMs());
    if (isStale) await this.#refresh(call, inode);
    if (await mayAccess(call.task, inode, wanted, acl)) return;
    if (!isStale) {
      await this.#refresh(call, inode);
      if (await mayAccess(call.task, inode, wanted, acl)) return;
    }
    throw new KernelError('EACCES');
  }

  /** fuse_perm_getattr */
  async #refresh(call: Call, inode: Inode): Promise<void> {
    inode.forgetAcls();
    await this.#askAttributes(call, inode);
  }

  /** __get_acl, fuse_get_inode_acl: a cached ACL, or an answer of the file system. */
  async acl({ task }: Call, inode: Inode, kind: AclKind): Promise<Acl | null> {
    const known = inode.acls.get(kind);
    if (known !== undefined) return known;
    const { aclGeneration } = inode;
    const body = [words(XATTR_PAGE_BYTES, 0), nameWithZero(`system.posix_acl_${kind}`)];
    let acl: Acl | null = null;
    try {
      acl = readAcl(await this.queue.request(task, OPCODE.getxattr, inode.node, body));
    } catch (error) {
      if (!(error instanceof KernelError) || error.errno !== 'ENODATA') throw error;
    }
    if (aclGeneration === inode.aclGeneration) inode.acls.set(kind, acl);
    return acl;
  }

  // Names.

  /** fuse_lookup_name; @returns null if the name does not exist */
  async askName({ task }: Call, directory: Inode, name: string): Promise<Entry | null> {
    try {
      const body = [nameWithZero(name)];
      return readEntry(await this.queue.request(task, OPCODE.lookup, directory.node, body));
    } catch (error) {
      if (error instanceof KernelError && error.errno === 'ENOENT') return null;
      throw error;
    }
  }

  /** Until when an entry is valid, counted from now, when the kernel processes it. */
  untilMs(validMs: number): number {
    return validMs > 0 ? this.world.nowMs() + validMs : Number.NEGATIVE_INFINITY;
  }

  /** fuse_dir_changed */
  directoryChanged(directory: Inode): void {
    directory.invalidate();
  }

  // Notices.

  /** fuse_reverse_inval_inode; @returns false if the kernel does not know the inode */
  async invalidateInode(node: number, offset: number, length: number): Promise<boolean> {
    const inode = this.#inodes.get(node);
    if (inode === undefined) return false;
    inode.references++;
    try {
      inode.version = this.nextVersion();
      inode.invalidate();
      inode.forgetAcls();
      if (offset < 0) return true;
      assert.ok(offset === 0 && length <= 0, 'The mount drops all pages of a file, or none');
      await this.dropPages(inode);
      return true;
    } finally {
      this.put(inode);
    }
  }

  /**
   * fuse_reverse_inval_entry with FUSE_EXPIRE_ONLY: after all pending calls that have locked the directory.
   *
   * @returns false if the kernel does not know the name
   */
  async expireName(node: number, name: string): Promise<boolean> {
    const directory = this.#inodes.get(node);
    if (directory === undefined) return false;
    directory.references++;
    try {
      return await directory.lock.exclusive(async () => {
        const alias = this.dentries.aliasOf(directory);
        const dentry = alias === undefined ? undefined : this.dentries.find(alias, name);
        if (dentry === undefined) return false;
        this.directoryChanged(directory);
        dentry.validUntilMs = Number.NEGATIVE_INFINITY;
        return true;
      });
    } finally {
      this.put(directory);
    }
  }

  /** fuse_notify_store */
  async store(node: number, offset: number, bytes: Uint8Array): Promise<boolean> {
    const inode = this.#inodes.get(node);
    if (inode === undefined) return false;
    inode.references++;
    try {
      const end = offset + bytes.length;
      const endsFile = end >= inode.sizeBytes;
      if (end > inode.sizeBytes) this.wrote(inode, end);
      await this.pages(inode).store(offset, bytes, endsFile);
      return true;
    } finally {
      this.put(inode);
    }
  }

  /** fuse_write_update_attr. @param end null if no bytes were written */
  wrote(inode: Inode, end: number | null): void {
    inode.version = this.nextVersion();
    if (end !== null && end > inode.sizeBytes) inode.sizeBytes = end;
    inode.invalidate(STALE.size | STALE.modified);
  }
}
