/**
 * To a kernel with an inode per path, all files open by one path share pages and attributes, even after another client
 * has given the path to another file.
 */
export class OpenPaths {
  /** By path, the inode of each handle; the last opened at the end. */
  readonly #open = new Map<string, Map<number, number>>();
  readonly #paths = new Map<number, string>();
  /** Paths that did not exist at their last look-up. */
  readonly #absent = new Set<string>();

  opened(path: string, handle: number, inode: number): void {
    this.#paths.set(handle, path);
    this.#absent.delete(path);
    const handles = this.#open.get(path);
    if (handles === undefined) this.#open.set(path, new Map([[handle, inode]]));
    else handles.set(handle, inode);
  }

  closed(handle: number): void {
    const path = this.#paths.get(handle);
    if (path === undefined) return;
    this.#paths.delete(handle);
    const handles = this.#open.get(path);
    handles?.delete(handle);
    if (handles?.size === 0) this.#end(path);
  }

  lookedUp(path: string, isThere: boolean): void {
    if (isThere) this.#absent.delete(path);
    else if (this.#open.has(path)) this.#absent.add(path);
  }

  /** Whether the kernel knows that the path does not exist any more. */
  isAbsent(path: string): boolean {
    return this.#absent.has(path);
  }

  moved(from: string, to: string): void {
    for (const [path, handles] of [...this.#open]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue;
      this.#end(path);
      for (const [handle, inode] of handles) this.opened(`${to}${path.slice(from.length)}`, handle, inode);
    }
  }

  exchanged(one: string, other: string): void {
    const between = `${one}\0`;
    this.moved(one, between);
    this.moved(other, one);
    this.moved(between, other);
  }

  latest(path: string): number | undefined {
    return [...(this.#open.get(path)?.values() ?? [])].at(-1);
  }

  /** The inode that was opened last, if several are open by the path. */
  latestOfSeveral(path: string): number | undefined {
    const inodes = [...(this.#open.get(path)?.values() ?? [])];
    const last = inodes.at(-1);
    return inodes.every((inode) => inode === last) ? undefined : last;
  }

  #end(path: string): void {
    this.#open.delete(path);
    this.#absent.delete(path);
  }
}
