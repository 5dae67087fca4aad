import { BoundedMap } from '../../base/bounded-map.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../backend.ts';
import { ErrnoError, isNotFound } from '../errno.ts';
import type { AttributeRequest } from '../transport.ts';
import { changesOf } from './inodes.ts';

/** Directories without a name that are remembered. */
const REMOVED_MAX = 1_000;

/**
 * Directories that have lost their names, and that programs here may be in, or have open. The cluster knows nothing of them any
 * more. As on a local disk they have no entries and a link count of 0, and what a program sets of them is seen through this mount.
 */
export class RemovedDirectories {
  readonly #world: World;
  /** The latest last. */
  readonly #known = new BoundedMap<number, Attributes>(REMOVED_MAX);
  /** Directories whose names were removed here, where another mount may have renamed them before; the latest last. */
  readonly #likely = new BoundedMap<number, Attributes>(REMOVED_MAX);

  constructor(world: World) {
    this.#world = world;
  }

  /** @param last what was known of an inode that is gone; nothing happens where that is no directory */
  add(last: Attributes | undefined): void {
    if (last?.kind !== 'directory') return;
    this.#likely.delete(last.inode);
    if (!this.#known.has(last.inode)) this.#known.set(last.inode, { ...last, links: 0 });
  }

  /** The name that it had was removed, by whichever directory had it then: whether it is gone the cluster answers. */
  addLikely(last: Attributes | undefined): void {
    if (last?.kind !== 'directory') return;
    this.#likely.set(last.inode, last);
  }

  /** @returns what was known of a directory that is likely to be gone */
  likely(inode: number): Attributes | undefined {
    return this.#likely.get(inode);
  }

  of(inode: number): Attributes | undefined {
    return this.#known.get(inode);
  }

  /** @returns what the attributes are now; undefined where the directory has a name, as far as is known here */
  change(inode: number, request: AttributeRequest): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined) return undefined;
    const changed = { ...known, ...changesOf(this.#world, request), changedNs: String(nowNs(this.#world)) };
    this.#known.set(inode, changed);
    return changed;
  }
}

/**
 * The kernel asks about inodes that it has found by a name before. Where that inode is gone, another mount has taken the name
 * away or given it to another file since: at `ESTALE` the kernel walks the path once more, and only then says that there is nothing.
 */
export async function staleIfGone<Value>(answer: Promise<Value>): Promise<Value> {
  try {
    return await answer;
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw new ErrnoError('ESTALE', error.message);
  }
}
