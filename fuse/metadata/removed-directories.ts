import { BoundedMap } from '../../base/bounded-map.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../backend.ts';
import { ErrnoError, isNotFound } from '../errno.ts';
import type { AttributeRequest } from '../transport.ts';
import { changesOf } from './inodes.ts';

const REMOVED_MAX = 1_000;

/**
 * Removed directories, which may be open here or a working directory. As on a local disk they have no entries and a
 * link count of 0; what a program sets of them shows on this mount only.
 */
export class RemovedDirectories {
  readonly #world: World;
  readonly #known = new BoundedMap<number, Attributes>(REMOVED_MAX);
  /** Directories whose names were removed here, the latest last. Another client may have renamed them before. */
  readonly #likely = new BoundedMap<number, Attributes>(REMOVED_MAX);

  constructor(world: World) {
    this.#world = world;
  }

  /** Records a removed directory; ignores other inodes. @param last last known attributes */
  add(last: Attributes | undefined): void {
    if (last?.kind !== 'directory') return;
    this.#likely.delete(last.inode);
    if (!this.#known.has(last.inode)) this.#known.set(last.inode, { ...last, links: 0 });
  }

  /** A name was removed that `last` had as far as known: only the cluster knows whether this directory exists. */
  addPerhapsRemoved(last: Attributes | undefined): void {
    if (last?.kind !== 'directory') return;
    this.#likely.set(last.inode, last);
  }

  perhapsRemoved(inode: number): Attributes | undefined {
    return this.#likely.get(inode);
  }

  of(inode: number): Attributes | undefined {
    return this.#known.get(inode);
  }

  /** Changes attributes here only. @returns the new ones; undefined if the directory is not known to be removed */
  change(inode: number, request: AttributeRequest): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined) return undefined;
    const changed = { ...known, ...changesOf(this.#world, request), changedNs: String(nowNs(this.#world)) };
    this.#known.set(inode, changed);
    return changed;
  }
}

/**
 * Replaces `not-found` by `ESTALE`: if an inode does not exist that the kernel found by a name, another client has
 * changed that name. The kernel then walks the path once more, and only then fails.
 */
export async function staleIfNotFound<Value>(answer: Promise<Value>): Promise<Value> {
  try {
    return await answer;
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw new ErrnoError('ESTALE', error.message);
  }
}
