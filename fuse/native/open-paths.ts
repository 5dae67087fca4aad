/**
 * Which files are open by which paths. To a kernel that knows an inode per path they are one, with one set of pages and attributes, also where
 * another mount has given the path to another file while the one that had it is open here.
 */
export class OpenPaths {
  /** By path, the inode of each handle; what was opened last at the end. */
  readonly #open = new Map<string, Map<number, number>>();
  readonly #paths = new Map<number, string>();
  /** Those of the paths that nothing had when they were looked up last. */
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

  /** The kernel is about to hear whether anything has the path now. */
  looked(path: string, isThere: boolean): void {
    if (isThere) this.#absent.delete(path);
    else if (this.#open.has(path)) this.#absent.add(path);
  }

  /** Whether the kernel knows that what is open by the path has it no more, and nothing else has. */
  isAbsent(path: string): boolean {
    return this.#absent.has(path);
  }

  /** The path has another name now, and so has all below it. */
  moved(from: string, to: string): void {
    for (const [path, handles] of [...this.#open]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue;
      this.#end(path);
      for (const [handle, inode] of handles) this.opened(`${to}${path.slice(from.length)}`, handle, inode);
    }
  }

  /** Each of two paths has the other's name now. */
  exchanged(one: string, other: string): void {
    const between = `${one}\0`;
    this.moved(one, between);
    this.moved(other, one);
    this.moved(between, other);
  }

  /** @returns the inode that was opened last by the path, and is open still */
  latest(path: string): number | undefined {
    return [...(this.#open.get(path)?.values() ?? [])].at(-1);
  }

  /** @returns the inode that was opened last where several are open by the path; else undefined */
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
