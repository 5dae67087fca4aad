import type { Attributes, FileSystemBackend } from '../backend.ts';
import { errnoName } from '../errno.ts';
import { type Inodes, withoutPrivileges } from '../metadata/inodes.ts';
import type { Caller } from '../transport.ts';
import { CAPABILITY_NAME } from '../xattr-names.ts';
import type { OpenFile } from './open-file.ts';

/** Clears what a change of contents must clear: set-user-id, set-group-id, and the file's capability. */
export class Privileges {
  readonly #backend: FileSystemBackend;
  readonly #inodes: Inodes;
  /** Attributes with extended attributes but no capability. */
  readonly #withoutCapability = new WeakSet<Attributes>();

  constructor(backend: FileSystemBackend, inodes: Inodes) {
    this.#backend = backend;
    this.#inodes = inodes;
  }

  async clear(file: OpenFile, caller: Caller): Promise<void> {
    const { mode } = file.known.attributes;
    const { killsPrivileges = caller.uid !== 0 } = caller;
    await this.#removeCapability(file);
    if (!killsPrivileges || mode === withoutPrivileges(mode)) return;
    await this.#inodes.change(file.inode, { mode: withoutPrivileges(mode) });
  }

  /** Removes the capability. The kernel does so before a write to its pages, but not before one that bypasses them. */
  async #removeCapability({ inode, known: { attributes } }: OpenFile): Promise<void> {
    if (attributes.xattrs === 0 || this.#withoutCapability.has(attributes)) return;
    try {
      await this.#backend.xattr(inode, CAPABILITY_NAME);
      await this.#backend.removeXattr(inode, CAPABILITY_NAME);
      this.#inodes.cache.attributes.drop(inode);
    } catch (error) {
      if (errnoName(error) !== 'ENODATA') throw error;
    }
    this.#withoutCapability.add(attributes);
  }
}
