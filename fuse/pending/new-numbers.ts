import { BoundedMap } from '../../base/bounded-map.ts';
import type { Attributes, FileSystemBackend } from '../backend.ts';

/** More than a mount may have sent late at once. */
const NUMBERS_MAX = 10_000;

/**
 * Files that were created here by a number of the mounted volume's catalog, and got one of another catalog, because
 * their directory had become another volume before they were sent. The kernel and programs know them by the former
 * number as long as the mount lasts, so that all see the bytes that an open file has not sent yet.
 */
export class NewNumbers {
  readonly #byFormer = new BoundedMap<number, number>(NUMBERS_MAX);
  readonly #formers = new BoundedMap<number, number>(NUMBERS_MAX);

  set(former: number, inode: number): void {
    this.#byFormer.set(former, inode);
    this.#formers.set(inode, former);
  }

  of(inode: number): number {
    return this.#byFormer.get(inode) ?? inode;
  }

  /** The backend, by former numbers. */
  over(backend: FileSystemBackend): FileSystemBackend {
    const of = (inode: number): number => this.of(inode);
    const as = async (inode: number, answer: Promise<Attributes>): Promise<Attributes> => {
      const attributes = await answer;
      return attributes.inode === inode ? attributes : { ...attributes, inode };
    };
    return {
      ...backend,
      formerNumberOf: (inode) => this.#formers.get(inode) ?? inode,
      async numberOf(inode) {
        await backend.numberOf(inode);
        return of(inode);
      },
      attributes: (inode) => as(inode, backend.attributes(of(inode))),
      setAttributes: (inode, changes) => as(inode, backend.setAttributes(of(inode), changes)),
      setFlags: (inode, flags) => as(inode, backend.setFlags(of(inode), flags)),
      link: (inode, ...place) => backend.link(of(inode), ...place),
      keepOrphan: (inode) => backend.keepOrphan(of(inode)),
      xattr: (inode, name) => backend.xattr(of(inode), name),
      xattrs: (inode, thread) => backend.xattrs(of(inode), thread),
      setXattr: (inode, ...xattr) => backend.setXattr(of(inode), ...xattr),
      removeXattr: (inode, name) => backend.removeXattr(of(inode), name),
      space: (inode) => backend.space(inode === undefined ? undefined : of(inode)),
      openFile: (inode, ...known) => backend.openFile(of(inode), ...known),
    };
  }
}
