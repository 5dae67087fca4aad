import { Counts } from '../../base/counts.ts';
import type { Timer, World } from '../../base/world.ts';
import { allDone } from '../all-done.ts';
import type { Attributes, ListedPage } from '../backend.ts';
import { namesCompare } from '../metadata/name-order.ts';
import { type Place, placeKey } from '../place.ts';
import type { Log } from '../transport.ts';
import { BUDGET_SHARES, type Budget } from './budget.ts';
import type { CommitMode } from './file-commit.ts';
import { FLUSH_ALL, type FlushScope, isInScope, type PendingKind, type PendingOps } from './pending-ops.ts';
import type { UncommittedFile } from './uncommitted-file.ts';

/** How long other clients may not find a new file; a part of the time for which a mount caches names. */
export const UNCOMMITTED_MS_MAX = 250;
/** After a failure, acknowledged changes of attributes are sent again at this interval. */
const AGAIN_MS = 1_000;

/** New files in memory, until the cluster has them or they cannot be stored. */
export class UncommittedFiles implements PendingKind {
  readonly #world: World;
  readonly #log: Log;
  readonly #byInode = new Map<number, UncommittedFile>();
  readonly #byPlace = new Map<string, UncommittedFile>();
  readonly #counts = new Counts<number>();
  /** Creates wait while it is full. */
  readonly budget: Budget;
  #timer: Timer | undefined;
  #isStopped = false;

  constructor(world: World, pending: PendingOps, log: Log) {
    this.#world = world;
    this.#log = log;
    this.budget = pending.budget.share(BUDGET_SHARES.create);
    pending.add('create', this);
  }

  /** The file of this number; undefined also if the cluster has it and refused the contents in memory. */
  of(inode: number): UncommittedFile | undefined {
    const file = this.#byInode.get(inode);
    return file === undefined || file.commit.clusterFile === null ? file : undefined;
  }

  at(place: Place): UncommittedFile | undefined {
    return this.#byPlace.get(placeKey(place));
  }

  inScope(scope: FlushScope): UncommittedFile[] {
    if (scope.kind === 'inode') return present(this.of(scope.inode));
    if (scope.kind === 'name') return present(this.at(scope));
    return [...this.#byInode.values()].filter((file) => isInScope(scope, file));
  }

  isChanging(directory: number): boolean {
    return this.#counts.has(directory);
  }

  add(file: UncommittedFile): void {
    this.budget.add(1, 0);
    this.#byInode.set(file.inode, file);
    this.#byPlace.set(placeKey(file), file);
    if (!file.isNamed) this.#counts.increment(file.parent);
    this.#timer ??= this.#world.after(UNCOMMITTED_MS_MAX, () => this.#age());
  }

  delete(file: UncommittedFile): void {
    this.dropName(file);
    if (this.#byInode.delete(file.inode)) this.budget.release(0, 1);
  }

  /** From now on the cluster answers for the name; programs that have the file open get the error at its close. */
  dropName(file: UncommittedFile): void {
    if (this.at(file) !== file) return;
    this.#byPlace.delete(placeKey(file));
    if (!file.isNamed) this.#counts.decrement(file.parent);
  }

  async flush(scope: FlushScope): Promise<void> {
    await allDone(this.inScope(scope).map((file) => file.stored()));
  }

  /**
   * Resolves when the cluster answers for the name: it has the file, or has refused it (its program gets the error).
   * @throws why the outcome is unknown
   */
  async flushName(place: Place): Promise<void> {
    const file = this.at(place);
    try {
      await file?.stored();
    } catch (error) {
      if (this.at(place) === file) throw error;
    }
  }

  /** Sends the files. Resolves when each is stored, or has failed; its program gets the error. */
  async attempt(scope: FlushScope): Promise<void> {
    await Promise.all(this.inScope(scope).map((file) => this.#commit(file, 'with-contents')));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await this.attempt(FLUSH_ALL);
  }

  async #commit(file: UncommittedFile, way: CommitMode): Promise<void> {
    if (file.commit.isRefused) return;
    try {
      await file.commit.start(way);
    } catch (error) {
      this.#log('warn', 'a new file is not stored in the cluster', {
        file: file.inode,
        error: String(error),
      });
    }
  }

  /** After a failed attempt, sends attributes again later: other clients see a named file without what was set here. */
  failed(file: UncommittedFile): void {
    this.#world.after(AGAIN_MS, () => {
      const isHere = !this.#isStopped && this.of(file.inode) === file;
      if (isHere && file.commit.lacksChanges) void this.#commit(file, 'ordinary');
    });
  }

  /** Commits files that are here for `UNCOMMITTED_MS_MAX`, so that other clients find them. More writes are likely. */
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
 * Merges files in memory into a page of the cluster.
 * @param files of the directory, from before the request
 * @param of the file of this number in memory, whose attributes replace the page's
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
