import type Fuse from 'fuse-native';
import type { Attributes } from '../backend.ts';
import { ErrnoError, errnoName } from '../errno.ts';
import type { Place } from '../place.ts';
import type { FileSystemCalls } from '../transport.ts';
import { assertWasUtf8 } from './conversions.ts';
import { OpenPaths } from './open-paths.ts';

export class Paths {
  readonly open = new OpenPaths();
  readonly #calls: FileSystemCalls;
  /** Paths that libfuse assumes for unlinked open files. */
  readonly #hiddenInodes = new Map<string, number>();

  constructor(calls: FileSystemCalls) {
    this.#calls = calls;
  }

  /** Looks up the directories of `path`, which are cached for a moment. @returns its last name, with the directory */
  async resolveParent(path: string): Promise<Place> {
    assertWasUtf8(path);
    const names = path.split('/').slice(1);
    const name = names.pop();
    if (name === undefined || name === '') throw new ErrnoError('EBUSY', 'The root has no name');
    let parent = this.#calls.root;
    for (const directory of names) {
      const attributes = await this.#calls.lookup(parent, directory);
      if (attributes.kind !== 'directory') throw new ErrnoError('ENOTDIR', `"${directory}" is no directory`);
      parent = attributes.inode;
    }
    return { parent, name };
  }

  async at<Value>(path: string, call: (at: Place) => Promise<Value>): Promise<Value> {
    return call(await this.resolveParent(path));
  }

  async attributes(path: string | null): Promise<Attributes> {
    // libfuse has no path for an unlinked file.
    if (path === null) throw new ErrnoError('ENOENT', 'The file was unlinked');
    if (path === '/') return this.#calls.attributes(this.#calls.root);
    const hidden = this.#hiddenInodes.get(path);
    if (hidden !== undefined) return this.#calls.attributes(hidden);
    const { parent, name } = await this.resolveParent(path);
    return this.#calls.lookup(parent, name);
  }

  async lookup(path: string | null): Promise<Attributes> {
    try {
      const attributes = await this.attributes(path);
      if (path !== null) this.open.lookedUp(path, true);
      return attributes;
    } catch (error) {
      if (path !== null && errnoName(error) === 'ENOENT') this.open.lookedUp(path, false);
      throw error;
    }
  }

  async attributesOfHandle(path: string | null, fd: Fuse.FileHandle): Promise<Attributes> {
    const inode = await this.inodeOf(path, fd);
    // The kernel has one set of attributes per path; the file that was opened last needs them.
    const latest = path === null ? undefined : this.open.latestOfSeveral(path);
    return this.#calls.attributes(latest ?? inode);
  }

  async inode(path: string | null): Promise<number> {
    if (path === '/') return this.#calls.root;
    const hidden = path === null ? undefined : this.#hiddenInodes.get(path);
    return hidden ?? (await this.attributes(path)).inode;
  }

  /** The inode of the handle, if not 0: the path may be another file's by now. */
  async inodeOf(path: string | null, fd: Fuse.FileHandle): Promise<number> {
    return Number(fd) === 0 ? this.inode(path) : this.#calls.inodeOf(Number(fd));
  }

  /** The inode of the name now, without cached answers. */
  async inodeToOpen(path: string | null): Promise<number> {
    if (path === null) throw new ErrnoError('ENOENT', 'The file was unlinked');
    const hidden = this.#hiddenInodes.get(path);
    if (hidden !== undefined) return hidden;
    const { parent, name } = await this.resolveParent(path);
    return (await this.#calls.lookupToOpen(parent, name)).inode;
  }

  /** Unlinks an open file that libfuse renames to the path `hidden`, which from then on refers to its inode. */
  async hide(path: string, { parent, name }: Place, hidden: string, uid: number): Promise<void> {
    let inode = this.open.latest(path);
    try {
      inode ??= (await this.#calls.lookup(parent, name)).inode;
      await this.#calls.unlink(parent, name, uid);
    } catch (error) {
      if (errnoName(error) !== 'ENOENT') throw error;
      // Another client has removed the name. After ESTALE the kernel looks it up again: a program that was unlinking
      // then gets an error, and one that was renaming over it can continue.
      if (!this.open.isAbsent(path)) throw new ErrnoError('ESTALE', `There is no "${name}" any more`);
    }
    if (inode !== undefined) this.#hiddenInodes.set(hidden, inode);
    this.open.moved(path, hidden);
  }

  forgetHidden(path: string): boolean {
    return this.#hiddenInodes.delete(path);
  }
}
