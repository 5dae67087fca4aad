interface CreatedFile {
  readonly directory: number;
  readonly session: number;
  readonly sinceMs: number;
}

/** A mount sends a new file far sooner: it keeps one for 250 ms, and its session ends within this time of silence. */
const KEPT_MS = 120_000;
const FILES_MAX = 20_000;

/**
 * Files that clients have created in directories delegated to them. Such a client may acknowledge changes of their
 * attributes before it sends them. Another client's change of such a file therefore recalls its directory first. Of a
 * file that does not fit in here, the client keeps no changes.
 */
export class CreatedFiles {
  readonly #byInode = new Map<number, CreatedFile>();

  /** @returns whether later changes by other clients will recall the directory */
  add(inode: number, file: CreatedFile): boolean {
    // In the order of their creation.
    for (const [old, { sinceMs }] of this.#byInode) {
      if (file.sinceMs - sinceMs < KEPT_MS) break;
      this.#byInode.delete(old);
    }
    if (this.#byInode.size >= FILES_MAX) return false;
    this.#byInode.set(inode, file);
    return true;
  }

  /** @returns those of the inodes that a client has created lately: their directories, and that client's session */
  of(inodes: readonly number[]): CreatedFile[] {
    return inodes.flatMap((inode) => this.#byInode.get(inode) ?? []);
  }
}
