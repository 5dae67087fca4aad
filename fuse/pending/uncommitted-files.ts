import { Counts } from '../../base/counts.ts';
import type { Timer, World } from '../../base/world.ts';
import { allDone } from '../all-done.ts';
import type { Attributes, ListedPage } from '../backend.ts';
import { namesCompare } from '../metadata/name-order.ts';
import { type Place, placeKey } from '../place.ts';
import type { Log } from '../transport.ts';
import { type Budget, SHARES } from './budget.ts';
import type { Way } from './file-commit.ts';
import { FLUSH_ALL, type FlushScope, isInScope, type PendingKind, type PendingOps } from './pending-ops.ts';
import type { UncommittedFile } from './uncommitted-file.ts';

/** Another client may not find a file for so long after it was created here, in milliseconds; a part of the time for which a mount caches names. */
export const UNCOMMITTED_MS_MAX = 250;

/** New files that are kept here until the cluster has them, or until they cannot be stored. */
export class UncommittedFiles implements PendingKind {
  readonly #world: World;
  readonly #log: Log;
  /** By inode, the oldest first. */
  readonly #byInode = new Map<number, UncommittedFile>();
  readonly #byPlace = new Map<string, UncommittedFile>();
  /** How many of them a directory has. */
  readonly #counts = new Counts<number>();
  /** A program that would create a file waits while it is full. */
  readonly budget: Budget;
  #timer: Timer | undefined;

  constructor(world: World, pending: PendingOps, log: Log) {
    this.#world = world;
    this.#log = log;
    this.budget = pending.budget.share(SHARES.create);
    pending.add('create', this);
  }

  /** @returns undefined also where the cluster has the file of this number, and has refused the contents that are kept here */
  of(inode: number): UncommittedFile | undefined {
    const file = this.#byInode.get(inode);
    return file === undefined || file.commit.there === null ? file : undefined;
  }

  at(place: Place): UncommittedFile | undefined {
    return this.#byPlace.get(placeKey(place));
  }

  inScope(scope: FlushScope): UncommittedFile[] {
    if (scope.kind === 'inode') return present(this.of(scope.inode));
    if (scope.kind === 'name') return present(this.at(scope));
    return [...this.#byInode.values()].filter((file) => isInScope(scope, file));
  }

  /** Whether the directory gets names. */
  isChanging(directory: number): boolean {
    return this.#counts.has(directory);
  }

  add(file: UncommittedFile): void {
    this.budget.add(1, 0);
    this.#byInode.set(file.inode, file);
    this.#byPlace.set(placeKey(file), file);
    if (!file.isNamed) this.#counts.more(file.parent);
    this.#timer ??= this.#world.after(UNCOMMITTED_MS_MAX, () => this.#age());
  }

  delete(file: UncommittedFile): void {
    this.dropName(file);
    if (this.#byInode.delete(file.inode)) this.budget.release(0, 1);
  }

  /** The cluster answers what is asked of the name from now on; programs that have the file open keep it, and get the error at its close. */
  dropName(file: UncommittedFile): void {
    if (this.at(file) !== file) return;
    this.#byPlace.delete(placeKey(file));
    if (!file.isNamed) this.#counts.fewer(file.parent);
  }

  async flush(scope: FlushScope): Promise<void> {
    await allDone(this.inScope(scope).map((file) => file.stored()));
  }

  /** Resolves when each file is at the cluster, or an attempt to store it has failed, of which its program learns. */
  async attempt(scope: FlushScope): Promise<void> {
    await Promise.all(this.inScope(scope).map((file) => this.#commit(file, 'with-contents')));
  }

  async stop(): Promise<void> {
    this.#timer?.cancel();
    await this.attempt(FLUSH_ALL);
  }

  async #commit(file: UncommittedFile, way: Way): Promise<void> {
    if (file.commit.isRefused) return;
    try {
      await file.commit.start(way);
    } catch (error) {
      this.#log('warn', 'a new file is not at the cluster', { file: file.inode, error: String(error) });
    }
  }

  /** A file that is open for longer is there for other clients to see; most likely it is written further. */
  #age(): void {
    this.#timer = undefined;
    const nowMs = this.#world.nowMs();
    for (const file of this.#byInode.values()) {
      const leftMs = file.sinceMs + UNCOMMITTED_MS_MAX - nowMs;
      if (leftMs > 0) {
        this.#timer = this.#world.after(leftMs, () => this.#age());
        return;
      }
      if (file.commit.isUnsent) void this.#commit(file, 'ordinary');
    }
  }
}

function present(file: UncommittedFile | undefined): UncommittedFile[] {
  return file === undefined ? [] : [file];
}

/** The attributes of a file that is created now and that the cluster does not have. */
export function emptyFile(
  inode: number,
  mode: number,
  owner: { readonly uid: number; readonly gid: number },
  atNs: string,
): Attributes {
  return {
    ...{ inode, kind: 'file', mode, links: 1, sizeBytes: 0, target: '', device: 0, ...owner },
    ...{ accessedNs: atNs, modifiedNs: atNs, changedNs: atNs, replicas: [], live: false, xattrs: 0 },
    contents: { epoch: 0, seq: 0 },
  };
}

/**
 * @param after as of `FileSystemBackend.list`
 * @param files of the directory, from before the page was asked for
 * @param of the file of this number that is kept here
 * @returns the page with the files that the cluster does not have, and with the attributes of those that have only their names there
 */
export function pageWith(
  page: ListedPage,
  after: string,
  files: readonly UncommittedFile[],
  of: (inode: number) => UncommittedFile | undefined,
): ListedPage {
  const last = page.more ? page.entries.at(-1)?.name : undefined;
  const isOfPage = (name: string): boolean =>
    (after === '' || namesCompare(name, after) > 0) && (last === undefined || namesCompare(name, last) < 0);
  const listed = new Set(page.entries.map(({ name }) => name));
  const known = page.entries.map(({ name, attributes }) => {
    return { name, attributes: of(attributes.inode)?.attributes ?? attributes };
  });
  const more = files.filter(({ name, isNamed }) => !isNamed && isOfPage(name) && !listed.has(name));
  const entries = [...known, ...more.map(({ name, attributes }) => ({ name, attributes }))];
  return { entries: entries.sort((a, b) => namesCompare(a.name, b.name)), more: page.more };
}
