import { ServiceError } from '../../base/errors.ts';
import { laterNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { allDone } from '../all-done.ts';
import type {
  Attributes,
  BackendFile,
  DelegationBackend,
  FileSystemBackend,
  ListedPage,
} from '../backend.ts';
import { isNotFound } from '../errno.ts';
import type { MetadataCache } from '../metadata/cache.ts';
import { type DelegatedDirectories, type NameState, namedInode } from '../metadata/delegated-directories.ts';
import { DelegationRequests } from '../metadata/delegation-requests.ts';
import type { Place } from '../place.ts';
import type { Log } from '../transport.ts';
import { afterUnlinks } from './file-after-unlinks.ts';
import { KnownVersions } from './known-versions.ts';
import { FLUSH_ALL, type FlushScope, type OperationKind, type PendingOps } from './pending-ops.ts';
import { pageWith, UncommittedFiles } from './uncommitted-files.ts';
import { UnlinkStreaks } from './unlink-streaks.ts';
import { type LateError, type UnlinkOptions, Unlinks } from './unlinks.ts';

const WAIT_MS_MAX = 30_000;

export interface PendingState {
  readonly cache: MetadataCache;
  readonly pending: PendingOps;
}

export interface DirectoryParts extends PendingState {
  readonly world: World;
  readonly backend: FileSystemBackend;
  readonly delegation: DelegationBackend;
  readonly log: Log;
  readonly late: (error: LateError) => void;
  readonly changed: (directories: readonly number[]) => Promise<void>;
  /** The cluster has a new file by another number than the one by which programs know it. */
  readonly renumbered: (former: number, inode: number) => void;
}

/** Directories as programs see them, with pending creates and unlinks. Changes of a name first flush these. */
export class DirectoryOps {
  readonly requests: DelegationRequests;
  readonly unlinks: Unlinks;
  readonly streaks: UnlinkStreaks;
  readonly contents = new KnownVersions();
  readonly files: UncommittedFiles;
  readonly #parts: DirectoryParts;
  readonly #delegations: DelegatedDirectories;

  constructor(parts: DirectoryParts, { streakMs = 0, waitMsMax = WAIT_MS_MAX, deadlineOf }: UnlinkOptions) {
    const { world, backend, delegation, cache, pending, log, late, changed } = parts;
    this.#parts = parts;
    this.#delegations = cache.delegations;
    this.files = new UncommittedFiles(world, pending, log);
    this.streaks = new UnlinkStreaks(world, streakMs);
    this.unlinks = new Unlinks(
      ...([world, pending, delegation] as const),
      {
        removed: ({ parent }, atNs) => cache.directoryChanged(parent, atNs),
        failed: (place, error) => {
          const { parent: directory, name, inode: file } = place;
          this.streaks.end(directory);
          this.dropOperation(place);
          const facts = { directory, name, file, error: String(error) };
          log('warn', 'an unlinked file still exists', facts);
          late({ operation: 'unlink', directory, name, error });
        },
        changed,
      },
      ...([waitMsMax, deadlineOf] as const),
    );
    const flushUnlinks = (scope: FlushScope): Promise<void> =>
      this.unlinks.flush(scope, Number.POSITIVE_INFINITY);
    this.requests = new DelegationRequests(world, backend, delegation, cache, log, {
      request: () => this.contents.request(),
      listed: ({ entries }, requestedAt) => {
        for (const { attributes } of entries) this.contents.learn(attributes, requestedAt);
      },
      flush: (directory) => flushUnlinks({ kind: 'directory', inode: directory }),
    });
    delegation.listen({
      recalled: (directories) => this.#recalled(directories),
      ended: () => {
        this.#delegations.endAllDelegations();
        // Other clients may take the names from now on.
        void this.files.attempt(FLUSH_ALL);
      },
      flushed: () => allDone([flushUnlinks(FLUSH_ALL), this.files.attempt(FLUSH_ALL)]),
    });
  }

  isChanging(directory: number): boolean {
    return this.files.isChanging(directory) || this.unlinks.timesOf(directory) !== null;
  }

  isPendingAt(place: Place): boolean {
    return this.files.at(place) !== undefined || this.unlinks.isAt(place);
  }

  /** Whether the cluster's attributes of the inode lack pending changes. */
  isPendingOf(inode: number): boolean {
    return (
      this.files.of(inode) !== undefined || this.unlinks.isOf(inode) || this.unlinks.timesOf(inode) !== null
    );
  }

  /**
   * A delegated directory's attributes, with mtime and ctime estimated for its pending unlinks. A recall executes these
   * before another client sees the directory. @returns null without pending unlinks, or if they must be executed first
   */
  async withUnlinks(directory: number): Promise<Attributes | null> {
    const { backend } = this.#parts;
    if (!backend.caches || !this.isDelegated(directory) || this.unlinks.timesOf(directory) === null)
      return null;
    const attributes = await backend.attributes(directory);
    // Once the unlinks are executed, the cluster's times apply.
    return this.unlinks.timesOf(directory) === null ? null : (this.afterUnlinks(attributes) ?? null);
  }

  /** @returns attributes with a directory's times estimated for pending unlinks; undefined if these must end first */
  afterUnlinks(attributes: Attributes): Attributes | undefined {
    if (this.unlinks.isOf(attributes.inode)) return undefined;
    const atNs = this.unlinks.timesOf(attributes.inode);
    if (atNs === null) return attributes;
    if (!this.isDelegated(attributes.inode)) return undefined;
    const estimatedNs = laterNs(String(BigInt(attributes.changedNs) + 1n), atNs);
    return { ...attributes, modifiedNs: estimatedNs, changedNs: estimatedNs };
  }

  flush(scope: FlushScope, kinds: readonly OperationKind[] = ['create', 'unlink']): Promise<void> {
    return this.#parts.pending.flush(scope, kinds);
  }

  /** As `flush`, before the name is created or removed: a new file that the cluster refused no longer has it. */
  async flushName(place: Place): Promise<void> {
    await Promise.all([this.files.flushName(place), this.unlinks.flush({ kind: 'name', ...place })]);
  }

  /** As `flush`, for a change that does not depend on the new files: programs get the errors of these themselves. */
  async flushLogged(scope: FlushScope): Promise<void> {
    await this.files.attempt(scope);
    await this.unlinks.flush(scope);
  }

  open(...which: Parameters<FileSystemBackend['openFile']>): BackendFile {
    const [inode] = which;
    return afterUnlinks(this.#parts.backend.openFile(...which), this.unlinks, {
      request: () => this.contents.request(),
      written: () => this.contents.written(inode),
      settled: (contents, writtenAt) => this.contents.settled(inode, contents, writtenAt),
    });
  }

  isDelegated(directory: number): boolean {
    return this.#delegations.of(directory) !== undefined;
  }

  async lookup(place: Place): Promise<Attributes> {
    const { parent, name } = place;
    const uncommitted = this.files.at(place);
    if (uncommitted !== undefined) return uncommitted.attributes;
    if (this.unlinks.isAt(place)) throw notFound(name);
    const directory = this.#delegations.of(parent);
    const namedAt = this.#delegations.request();
    if (this.#delegations.stateOf(place) === 'free') throw notFound(name);
    const requestedAt = this.contents.request();
    try {
      const attributes = await this.#parts.backend.lookup(parent, name);
      if (directory !== undefined && this.isDelegated(parent)) this.contents.learn(attributes, requestedAt);
      this.#delegations.learnName(place, namedInode(attributes), namedAt);
      return this.files.of(attributes.inode)?.attributes ?? attributes;
    } catch (error) {
      if (isNotFound(error)) this.#delegations.learnName(place, 'free', namedAt);
      throw error;
    }
  }

  async list(directory: number, after: string, countMax: number): Promise<ListedPage> {
    const scope: FlushScope = { kind: 'directory', inode: directory };
    await this.unlinks.flush(scope);
    // Before the request: files that are committed meanwhile may be missing in its answer.
    const uncommitted = this.files.inScope(scope).filter((file) => this.files.at(file) === file);
    const page = await this.#parts.backend.list(directory, after, countMax);
    return uncommitted.length === 0
      ? page
      : pageWith(page, after, uncommitted, (inode) => this.files.of(inode));
  }

  /** Changes names at the cluster, after pending unlinks of them. @param after returns their new states */
  changing<Result>(
    places: readonly Place[],
    change: () => Promise<Result>,
    after: (result: Result) => readonly NameState[],
  ): Promise<Result> {
    return this.#delegations.changing(
      places,
      async () => {
        for (const place of places) await this.unlinks.flush({ kind: 'name', ...place });
        return this.unlinks.withQuota(change);
      },
      (result) => {
        const states = after(result);
        for (const [index, { parent }] of places.entries()) this.#endStreak(parent, states[index]);
        return states;
      },
    );
  }

  changed(place: Place, state: NameState): void {
    this.#endStreak(place.parent, state);
    this.#delegations.changed(place, state);
  }

  /** Called when an acknowledged operation on the name was dropped. */
  dropOperation(place: Place): void {
    this.#parts.cache.directoryChanged(place.parent, null);
    this.changed(place, 'unknown');
  }

  /** A new name ends the streak of unlinks in its directory. */
  #endStreak(directory: number, state: NameState = 'unknown'): void {
    if (state !== 'free' && state !== 'unknown') this.streaks.end(directory);
  }

  /** Changes attributes, after pending operations in the directory, whose cached delegation ends. */
  async changingDirectory<Result>(directory: number, change: () => Promise<Result>): Promise<Result> {
    this.#delegations.endDelegation(directory);
    await this.flushLogged({ kind: 'directory', inode: directory });
    try {
      return await change();
    } finally {
      this.#delegations.endDelegation(directory);
    }
  }

  async stop(): Promise<void> {
    await Promise.all([this.files.stop(), this.unlinks.stop()]);
    await this.#parts.delegation.stop();
  }

  /** Flushes what is pending of the inodes: directories, and files whose contents or flags other clients change. */
  async #recalled(inodes: readonly number[]): Promise<void> {
    for (const inode of inodes) {
      this.requests.recalled(inode);
      this.contents.written(inode);
    }
    const scopes = inodes.map((inode): FlushScope => ({ kind: 'directory', inode }));
    const unlinks = inodes.map((inode) =>
      this.unlinks.flush({ kind: 'inode', inode }, Number.POSITIVE_INFINITY),
    );
    await Promise.all(unlinks);
    await Promise.all(scopes.map((scope) => this.files.attempt(scope)));
  }
}

function notFound(name: string): ServiceError {
  return new ServiceError('not-found', `There is no "${name}"`);
}
