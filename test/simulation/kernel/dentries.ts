import type { Inode } from './inode.ts';
import { KernelError } from './kernel-error.ts';

/** A name in a directory, known to exist or known not to; `struct dentry`. */
export class Dentry {
  name: string;
  parent: Dentry | null;
  inode: Inode | null;
  validUntilMs = Number.NEGATIVE_INFINITY;
  isHashed = false;
  isFreed = false;
  /** Counts open files, working directories and child names. */
  uses = 0;
  readonly children = new Map<string, Dentry>();

  constructor(name: string, parent: Dentry | null, inode: Inode | null) {
    this.name = name;
    this.parent = parent;
    this.inode = inode;
  }
}

/** The dentry cache of one mount (fs/dcache.c). */
export class Dentries {
  readonly root: Dentry;
  readonly #hold: (inode: Inode) => void;
  readonly #put: (inode: Inode) => void;
  /** The names of each inode: a directory has one. */
  readonly #aliases = new Map<Inode, Set<Dentry>>();

  /**
   * @param hold adds a use of the inode
   * @param put removes one
   */
  constructor(root: Inode, hold: (inode: Inode) => void, put: (inode: Inode) => void) {
    this.#hold = hold;
    this.#put = put;
    this.root = new Dentry('/', null, null);
    this.#instantiate(this.root, root);
    this.root.isHashed = true;
    this.root.uses = 1;
  }

  use(dentry: Dentry): Dentry {
    dentry.uses++;
    return dentry;
  }

  unuse(dentry: Dentry): void {
    dentry.uses--;
    if (dentry.uses === 0 && !dentry.isHashed) this.#free(dentry);
  }

  find(parent: Dentry, name: string): Dentry | undefined {
    return parent.children.get(name);
  }

  /** d_splice_alias, or d_instantiate: gives the name to the inode. A directory has one name: an old one is moved. */
  add(parent: Dentry, name: string, inode: Inode | null): Dentry {
    const old = parent.children.get(name);
    if (old !== undefined) this.drop(old);
    const alias = inode?.isDirectory ? this.aliasOf(inode) : undefined;
    if (alias !== undefined) {
      for (let at: Dentry | null = parent; at !== null; at = at.parent)
        if (at === alias) throw new KernelError('ELOOP', `"${name}" would be in itself`);
      this.#place(alias, parent, name);
      return alias;
    }
    const dentry = new Dentry(name, null, null);
    if (inode !== null) this.#instantiate(dentry, inode);
    this.#place(dentry, parent, name);
    return dentry;
  }

  /** d_drop: look-ups find it no more; its users keep it. */
  drop(dentry: Dentry): void {
    if (!dentry.isHashed || dentry.parent === null) return;
    dentry.isHashed = false;
    dentry.parent.children.delete(dentry.name);
    if (dentry.uses === 0) this.#free(dentry);
  }

  /** d_invalidate: also all unused names below it. */
  invalidate(dentry: Dentry): void {
    this.shrink(dentry);
    this.drop(dentry);
  }

  /** shrink_dcache_parent: forgets the unused names below it. */
  shrink(dentry: Dentry): void {
    for (const child of [...dentry.children.values()]) {
      this.shrink(child);
      if (child.uses === 0) this.drop(child);
    }
  }

  /** d_delete: the name is removed. */
  delete(dentry: Dentry): void {
    if (dentry.uses > 0) this.drop(dentry);
    else {
      const { inode } = dentry;
      dentry.inode = null;
      dentry.validUntilMs = Number.NEGATIVE_INFINITY;
      if (inode !== null) this.#remove(dentry, inode);
    }
  }

  /** d_move: over `target`, which is removed. */
  move(dentry: Dentry, target: Dentry): void {
    const { parent, name } = target;
    if (parent === null) throw new Error('The root has no other name');
    this.drop(target);
    this.#place(dentry, parent, name);
  }

  /** d_exchange */
  exchange(a: Dentry, b: Dentry): void {
    const [one, other] = [a, b].map(({ parent, name }) => ({ parent, name }));
    if (one?.parent == null || other?.parent == null) throw new Error('The root has no other name');
    one.parent.children.delete(a.name);
    other.parent.children.delete(b.name);
    this.#relocate(a, other.parent, other.name);
    this.#relocate(b, one.parent, one.name);
  }

  /** d_find_alias */
  aliasOf(inode: Inode): Dentry | undefined {
    return this.#aliases.get(inode)?.values().next().value;
  }

  #instantiate(dentry: Dentry, inode: Inode): void {
    dentry.inode = inode;
    const aliases = this.#aliases.get(inode) ?? new Set();
    this.#aliases.set(inode, aliases.add(dentry));
    this.#hold(inode);
  }

  #remove(dentry: Dentry, inode: Inode): void {
    const aliases = this.#aliases.get(inode);
    aliases?.delete(dentry);
    if (aliases?.size === 0) this.#aliases.delete(inode);
    this.#put(inode);
  }

  #place(dentry: Dentry, parent: Dentry, name: string): void {
    if (dentry.isHashed) dentry.parent?.children.delete(dentry.name);
    dentry.isHashed = true;
    this.#relocate(dentry, parent, name);
  }

  #relocate(dentry: Dentry, parent: Dentry, name: string): void {
    const before = dentry.parent;
    parent.uses++;
    dentry.parent = parent;
    dentry.name = name;
    parent.children.set(name, dentry);
    if (before !== null) this.unuse(before);
  }

  #free(dentry: Dentry): void {
    if (dentry.isFreed) return;
    dentry.isFreed = true;
    const { inode, parent } = dentry;
    if (inode !== null) this.#remove(dentry, inode);
    if (parent !== null) this.unuse(parent);
  }
}
