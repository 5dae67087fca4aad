import { constants } from 'node:fs';
import type { Answered } from '../answered.ts';
import type { Attributes, RenameMode } from '../backend.ts';
import type { FileCalls } from '../contents/file-calls.ts';
import { ErrnoError } from '../errno.ts';
import { inheritsGroup } from '../metadata/inodes.ts';
import type { Names } from '../metadata/names.ts';
import { OwnChanges } from '../metadata/own-changes.ts';
import { staleIfNotFound } from '../metadata/removed-directories.ts';
import type { Place } from '../place.ts';
import { FILE_TYPES, NAME_BYTES_MAX, RENAME_EXCHANGE } from '../transport/stat.ts';
import type { Caller, Created } from '../transport.ts';
import type { CallParts } from './call-parts.ts';

const RENAME_NO_REPLACE = 1;
const RENAME_WHITEOUT = 4;
const RENAME_MODES: ReadonlyMap<number, RenameMode> = new Map([
  [0, 'replace'],
  [RENAME_NO_REPLACE, 'no-replace'],
  [RENAME_EXCHANGE, 'exchange'],
]);

const NODE_TYPES = ['file', 'fifo', 'socket', 'character', 'block'] as const;
type NodeType = (typeof NODE_TYPES)[number];

export class NameCalls {
  readonly #parts: CallParts;
  readonly #names: Names;
  readonly #files: Pick<FileCalls, 'open' | 'created'>;
  readonly #changes: OwnChanges;

  constructor(parts: CallParts, names: Names, files: Pick<FileCalls, 'open' | 'created'>) {
    this.#parts = parts;
    this.#names = names;
    this.#files = files;
    this.#changes = new OwnChanges(parts.inodes.cache);
  }

  async lookup(parent: number, name: string, thread = 0): Promise<Answered> {
    checkName(name);
    if (name === '.' || name === '..') return this.#lookupNumber(parent, name === '.' ? 'self' : 'parent');
    return this.#names.lookup(parent, name, thread);
  }

  /** Called for `.` or `..` of an inode that the kernel has dropped, and of which a program has a file handle. */
  async #lookupNumber(inode: number, which: 'self' | 'parent'): Promise<Answered> {
    const { backend, inodes, pending } = this.#parts;
    await pending.flush({ kind: 'inode', inode }, ['unlink']);
    const requestedAt = inodes.cache.request();
    const found = await staleIfNotFound(backend.byNumber(inode, which));
    inodes.assertNamed(found);
    return inodes.present(inodes.cache.attributes.learn(found, requestedAt));
  }

  async lookupToOpen(parent: number, name: string): Promise<Answered> {
    checkName(name);
    return this.#names.lookupToOpen(parent, name);
  }

  async create(parent: number, name: string, mode: number, flags: number, caller: Caller): Promise<Created> {
    checkName(name);
    const { backend, inodes } = this.#parts;
    const exclusive = (flags & constants.O_EXCL) !== 0;
    const { attributes, created } = await this.#changes.create({ parent, name }, () =>
      backend.createFile(parent, name, mode & 0o7777, caller, exclusive),
    );
    if (!created) {
      const opened = await this.#files.open(attributes.inode, flags, caller);
      return { ...opened, attributes: await inodes.attributes(attributes.inode) };
    }
    try {
      return { ...(await this.#files.created(attributes, flags)), attributes };
    } catch (error) {
      inodes.cache.forgetEntry(parent, name);
      throw error;
    }
  }

  async createUnnamed(directory: number, mode: number, flags: number, caller: Caller): Promise<Created> {
    const { backend, files, inodes } = this.#parts;
    const within = await inodes.attributes(directory);
    const owner = inheritsGroup(within) ? { ...caller, gid: within.gid } : caller;
    const requestedAt = inodes.cache.request();
    const created = await backend.createUnnamed(mode & 0o7777, owner);
    const attributes = inodes.cache.attributes.learn(created, requestedAt);
    const opened = await this.#files.created(attributes, flags);
    files.orphans.addUnnamed(attributes.inode);
    return { ...opened, attributes };
  }

  async makeNode(
    parent: number,
    name: string,
    mode: number,
    device: number,
    caller: Caller,
  ): Promise<Answered> {
    checkName(name);
    const { backend, files } = this.#parts;
    const type = nodeType(mode);
    const permissions = mode & 0o7777;
    if (type !== 'file')
      return this.#make(parent, name, () =>
        backend.makeNode(parent, name, type, device, permissions, caller),
      );
    const { attributes } = await this.#changes.create({ parent, name }, () =>
      backend.createFile(parent, name, permissions, caller, true),
    );
    await files.commitUnopened(attributes);
    return attributes;
  }

  makeDirectory(parent: number, name: string, mode: number, caller: Caller): Promise<Answered> {
    const { backend } = this.#parts;
    return this.#make(parent, name, () => backend.makeDirectory(parent, name, mode & 0o7777, caller));
  }

  symlink(parent: number, name: string, target: string, caller: Caller): Promise<Answered> {
    return this.#make(parent, name, () => this.#parts.backend.symlink(parent, name, target, caller));
  }

  async #make(parent: number, name: string, make: () => Promise<Attributes>): Promise<Answered> {
    checkName(name);
    const create = async () => ({ attributes: await make(), created: true });
    return (await this.#changes.create({ parent, name }, create)).attributes;
  }

  async link(inode: number, parent: number, name: string, thread = 0): Promise<Answered> {
    checkName(name);
    const { backend, files, inodes } = this.#parts;
    await staleIfNotFound(inodes.assertNameCurrentToLink(inode, thread));
    // Only the inode or the directory can be missing.
    const attributes = await staleIfNotFound(
      this.#changes.link(inode, { parent, name }, () =>
        files.orphans.isUnnamed(inode)
          ? backend.nameFile(inode, parent, name)
          : backend.link(inode, parent, name),
      ),
    );
    files.orphans.delete(inode);
    return inodes.present(attributes);
  }

  async unlink(parent: number, name: string, uid?: number): Promise<void> {
    checkName(name);
    const { accesses, backend, files, inodes } = this.#parts;
    const isOpen = (file: number): boolean => inodes.isOpen(file);
    const { inode, links } = await this.#changes.unlink({ parent, name }, () =>
      backend.unlink(parent, name, uid, isOpen),
    );
    if (links > 0) return;
    files.unlinked(inode);
    if (!inodes.isOpen(inode)) accesses.forget(inode);
  }

  async removeDirectory(parent: number, name: string): Promise<void> {
    checkName(name);
    const { accesses, backend, removed } = this.#parts;
    const { inode, last } = await this.#changes.removeDirectory({ parent, name }, (known) =>
      backend.removeDirectory(parent, name, known),
    );
    if (inode === undefined) return;
    accesses.forget(inode);
    removed.addPerhapsRemoved(last);
  }

  async rename(from: Place, to: Place, flags: number, uid?: number, gid = 0): Promise<void> {
    checkName(from.name);
    checkName(to.name);
    const { backend, files, inodes, removed } = this.#parts;
    const whitens = (flags & RENAME_WHITEOUT) !== 0;
    const mode = RENAME_MODES.get(flags & ~RENAME_WHITEOUT);
    if (mode === undefined || (whitens && mode === 'exchange'))
      throw new ErrnoError('EINVAL', `Rename flags ${flags} are not supported`);
    const { replaced, last } = await this.#changes.rename(
      from,
      to,
      { mode, whitens },
      () =>
        whitens && mode !== 'exchange'
          ? backend.renameWhiteout(from, to, mode, { uid: uid ?? 0, gid })
          : backend.rename(from, to, mode, uid),
      (inode) => inodes.isOpen(inode),
    );
    if (replaced === null) return;
    removed.add(last);
    if (inodes.isOpen(replaced) && !(await this.#hasName(replaced))) files.unlinked(replaced);
  }

  /** Whether a replaced file has another name. If unknown, it is treated as unlinked, and kept while it is open. */
  async #hasName(inode: number): Promise<boolean> {
    try {
      return (await this.#parts.inodes.request(inode)).links > 0;
    } catch (error) {
      const facts = { file: inode, error: String(error) };
      this.#parts.log('debug', 'cannot query the file that a rename replaced', facts);
      return false;
    }
  }
}

function checkName(name: string): void {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) {
    throw new ErrnoError('ENAMETOOLONG', 'A name is longer than 255 bytes');
  }
}

function nodeType(mode: number): NodeType {
  const bits = mode & constants.S_IFMT;
  const type = bits === 0 ? 'file' : NODE_TYPES.find((one) => FILE_TYPES[one] === bits);
  if (type === undefined) throw new ErrnoError('EINVAL', 'This type cannot be created');
  return type;
}
