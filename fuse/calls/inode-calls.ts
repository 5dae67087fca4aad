import { ServiceError } from '../../base/errors.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';
import type { Answered } from '../answered.ts';
import type { XattrMode } from '../backend.ts';
import { ErrnoError, errnoName, isNotFound } from '../errno.ts';
import type { Directories } from '../metadata/directories.ts';
import { staleIfNotFound } from '../metadata/removed-directories.ts';
import { NAME_BYTES_MAX } from '../transport/stat.ts';
import type { AttributeRequest, Caller } from '../transport.ts';
import { isNamespaceAlone, isSettable, isTrusted, RETAIN_UNTIL, xattrKind } from '../xattr-names.ts';
import type { CallParts } from './call-parts.ts';

const VALUE_BYTES_MAX = 64 * 1024;
const XATTR_CREATE = 1;
const XATTR_REPLACE = 2;

export class InodeCalls {
  readonly #parts: CallParts;
  readonly #directories: Directories;
  #rootLast: Answered | undefined;

  constructor(parts: CallParts, directories: Directories) {
    this.#parts = parts;
    this.#directories = directories;
  }

  async attributes(inode: number): Promise<Answered> {
    const { inodes, root } = this.#parts;
    if (inode !== root) return this.#unlessRemoved(inode, {}, () => inodes.attributes(inode));
    try {
      this.#rootLast = await inodes.attributes(inode);
    } catch (error) {
      // `df` requests the root's attributes first: while the cluster is away, it gets the last ones.
      if (this.#rootLast === undefined || errnoName(error) !== 'ETIMEDOUT') throw error;
    }
    return this.#rootLast;
  }

  async attributesWithCreation(inode: number): Promise<Answered> {
    const { inodes } = this.#parts;
    const attributes = await this.attributes(inode);
    // The attributes of a file that was created here lack the creation time.
    if (attributes.createdNs !== undefined) return attributes;
    return this.#unlessRemoved(inode, {}, async () => inodes.present(await inodes.request(inode)));
  }

  async readLink(inode: number): Promise<string> {
    const { accesses, inodes } = this.#parts;
    const attributes =
      inodes.cache.attributes.of(inode) ??
      inodes.cache.lookedUp(inode) ??
      (await staleIfNotFound(inodes.request(inode)));
    if (attributes.kind !== 'symlink') throw new ErrnoError('EINVAL', `Inode ${inode} is no symbolic link`);
    accesses.recordRead(attributes);
    return attributes.target;
  }

  setAttributes(inode: number, request: AttributeRequest): Promise<Answered> {
    return this.#unlessRemoved(inode, request, () => this.#parts.inodes.change(inode, request));
  }

  async setFlags(inode: number, flags: readonly InodeFlag[], { uid }: Caller): Promise<void> {
    const { inodes, pending } = this.#parts;
    const { uid: owner } = await staleIfNotFound(inodes.attributes(inode));
    if (uid !== 0 && uid !== owner) throw new ErrnoError('EPERM', `Inode ${inode} is another user's`);
    // The new flags may forbid operations that are acknowledged and pending.
    await pending.flush({ kind: 'inode', inode });
    await pending.flush({ kind: 'directory', inode });
    await staleIfNotFound(inodes.changeFlags(inode, flags));
  }

  touchStatus(inode: number, caller: Caller): Promise<Answered> {
    return this.#unlessRemoved(inode, {}, () => this.#parts.inodes.touch(inode, caller));
  }

  /**
   * Answers from this mount's record of a removed directory, else by `answer`. After `not-found`, a directory that is
   * open here is recorded as removed.
   */
  async #unlessRemoved(
    inode: number,
    request: AttributeRequest,
    answer: () => Promise<Answered>,
  ): Promise<Answered> {
    const directories = this.#parts.removed;
    const isChange = Object.keys(request).length > 0;
    const removed = (): Answered | undefined =>
      isChange ? directories.change(inode, request) : directories.of(inode);
    const known = removed();
    if (known !== undefined) return known;
    try {
      const attributes = await answer();
      if (attributes.kind === 'directory') this.#directories.update(attributes);
      return attributes;
    } catch (error) {
      if (isNotFound(error)) await staleIfNotFound(this.recordRemoved(inode));
      return removed() ?? staleIfNotFound(Promise.reject(error));
    }
  }

  /**
   * Called after `not-found`: a directory that was open or removed here is recorded as removed. Not if the root does
   * not exist either, as after the removal of a snapshot.
   */
  async recordRemoved(inode: number): Promise<void> {
    const { backend, removed, root } = this.#parts;
    const last = this.#directories.lastOf(inode) ?? removed.perhapsRemoved(inode);
    if (last === undefined) return;
    await backend.attributes(root);
    removed.add(last);
  }

  async truncate(inode: number, sizeBytes: number, caller: Caller, isByPath = false): Promise<Answered> {
    const { files, inodes } = this.#parts;
    await staleIfNotFound(files.truncate(inode, sizeBytes, caller, isByPath));
    return staleIfNotFound(inodes.attributes(inode));
  }

  async xattr(inode: number, name: string): Promise<Uint8Array> {
    const kind = assertXattrName(name);
    const { attributes } = this.#parts.inodes.cache;
    const isOfKernel = kind === 'acl' || kind === 'security';
    if ((kind === 'kept' && attributes.hasNoXattrs(inode)) || (isOfKernel && attributes.hasNoAcls(inode)))
      throw new ErrnoError('ENODATA', `There is no attribute ${name}`);
    return this.#parts.backend.xattr(inode, name);
  }

  async xattrs(inode: number, { uid, thread }: Caller): Promise<readonly string[]> {
    const names = await this.#parts.backend.xattrs(inode, thread);
    // The kernel hides these from other users by name, but leaves the list to the file system.
    return uid === 0 ? names : names.filter((name) => !isTrusted(name));
  }

  async setXattr(
    inode: number,
    name: string,
    value: Uint8Array,
    flags: number,
    clearsSetgid = false,
  ): Promise<void> {
    const kind = assertXattrName(name);
    const { backend, inodes, pending } = this.#parts;
    if (!isSettable(kind) && name !== RETAIN_UNTIL)
      throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
    if (Buffer.byteLength(name) > NAME_BYTES_MAX)
      throw new ErrnoError('ERANGE', 'The attribute name is too long');
    if (value.length > VALUE_BYTES_MAX) throw new ErrnoError('E2BIG', 'The attribute value is too large');
    // It forbids operations that are acknowledged and pending.
    if (name === RETAIN_UNTIL) await pending.flush({ kind: 'inode', inode });
    const mode: XattrMode = flags === XATTR_CREATE ? 'create' : flags === XATTR_REPLACE ? 'replace' : 'set';
    try {
      await backend.setXattr(inode, name, value, mode, clearsSetgid);
    } catch (error) {
      // The value itself is small enough: the inode has too many attributes.
      if (!(error instanceof ServiceError) || error.code !== 'too-large') throw error;
      throw new ErrnoError('ENOSPC', error.message);
    }
    inodes.cache.attributes.drop(inode);
    // A list changes the mode, which open files cache too. A write to a file with attributes removes its capability.
    if (kind !== 'kept' && inodes.isOpen(inode)) await inodes.attributes(inode);
  }

  async removeXattr(inode: number, name: string): Promise<void> {
    assertXattrName(name);
    await this.#parts.backend.removeXattr(inode, name);
    this.#parts.inodes.cache.attributes.drop(inode);
  }
}

function assertXattrName(name: string): ReturnType<typeof xattrKind> {
  if (isNamespaceAlone(name)) throw new ErrnoError('EINVAL', `"${name}" has no name behind its namespace`);
  const kind = xattrKind(name);
  if (kind === 'none') throw new ErrnoError('EOPNOTSUPP', `Attribute ${name} is not kept`);
  return kind;
}
