import { BoundedMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import { laterNs, nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type {
  Attributes,
  BackendFile,
  BirthBackend,
  BirthOutcome,
  FencedName,
  FileSystemBackend,
  ListedPage,
  NewFile,
  Owner,
} from '../backend.ts';
import type { MetadataCache } from '../metadata/cache.ts';
import {
  type DelegatedDirectories,
  type NamedInode,
  type NameState,
  namedInode,
} from '../metadata/delegated-directories.ts';
import { DelegationRequests } from '../metadata/delegation-requests.ts';
import type { Place } from '../place.ts';
import type { Log } from '../transport.ts';
import { afterUnlinks } from './after-unlinks.ts';
import { Creates, type InodeNumber } from './creates.ts';
import { FLUSH_ALL, type FlushScope, type OperationKind, type PendingOps } from './pending-ops.ts';
import { SeenContents } from './seen-contents.ts';
import { UncommittedFile, type UncommittedFileParts } from './uncommitted-file.ts';
import { emptyFile, pageWith, UncommittedFiles } from './uncommitted-files.ts';
import { UnlinkStreaks } from './unlink-streaks.ts';
import { isOverQuota, type LateError, type UnlinkEvents, type UnlinkOptions, Unlinks } from './unlinks.ts';

/** Who has made a second file in a directory within this time is about to make more of them. */
const AGAIN_MS = 2_000;
/** Directories of which that is remembered. */
const DIRECTORIES_MAX = 1_000;
/** So many files in a row are removed in the ordinary way: that shows that they may be. */
const SHOWN_COUNT = 2;
/** Who has removed so many in a row is about to remove more: to ask for the directory costs as much as two. */
const REMOVED_COUNT = 8;

/** @see UnlinkOptions */
const WAIT_MS_MAX = 30_000;

const SET_GROUP_ID = 0o2000;
const STICKY = 0o1000;

/** What pending operations share with the file system above them. */
export interface PendingState {
  readonly cache: MetadataCache;
  readonly pending: PendingOps;
}

/**
 * Makes files here, in directories that are delegated to this mount, and has the cluster hear of each as a whole: when it is closed, and before
 * anything else that needs it there. What the mount looks for, it finds here meanwhile. Unlinks in such directories follow behind.
 */
export class DirectoryOps {
  readonly #world: World;
  readonly #backend: FileSystemBackend;
  readonly #birth: BirthBackend;
  readonly #cache: MetadataCache;
  readonly #pending: PendingOps;
  readonly #log: Log;
  readonly #late: (error: LateError) => void;
  readonly #creates: Creates;
  readonly #delegations: DelegatedDirectories;
  readonly #requests: DelegationRequests;
  readonly #unlinks: Unlinks;
  readonly #streaks: UnlinkStreaks;
  readonly #contents = new SeenContents();
  readonly #files: UncommittedFiles;
  /** When a file was made in a directory in the ordinary way. */
  readonly #madeMs = new BoundedMap<number, number>(DIRECTORIES_MAX);
  /** Files of the volume can come with their contents; not known before the first of them was made. */
  #isPossible = false;
  /** The volume has a quota: growth is asked for before contents of a file that has its name are stored. */
  #isLimited = false;

  constructor(
    world: World,
    backend: FileSystemBackend,
    birth: BirthBackend,
    { cache, pending }: PendingState,
    log: Log,
    { streakMs = 0, waitMsMax = WAIT_MS_MAX, late = () => undefined }: UnlinkOptions,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#birth = birth;
    this.#cache = cache;
    this.#delegations = cache.delegations;
    this.#pending = pending;
    this.#log = log;
    this.#late = late;
    this.#files = new UncommittedFiles(world, pending, log);
    this.#streaks = new UnlinkStreaks(world, streakMs);
    const failed: UnlinkEvents['failed'] = (place, error) => {
      this.#streaks.end(place.parent);
      cache.named(place.parent, null);
      this.changed(place, 'unknown');
      const { parent: directory, name, inode: file } = place;
      log('warn', 'a file that was removed is still there', { directory, name, file, error: String(error) });
      late({ operation: 'unlink', directory, name, error });
    };
    const removed: UnlinkEvents['removed'] = ({ parent }, atNs) => cache.named(parent, atNs);
    this.#unlinks = new Unlinks(world, pending, birth, { removed, failed }, waitMsMax);
    this.#creates = new Creates(world, birth, (error) => {
      log('debug', 'no numbers for new files', { error: String(error) });
    });
    this.#requests = new DelegationRequests(world, backend, birth, cache, log, {
      request: () => this.#contents.request(),
      listed: ({ entries }, requestedAt) => {
        for (const { attributes } of entries) this.#contents.learn(attributes, requestedAt);
      },
      flush: async (directory) => {
        await this.#unlinks.flush({ kind: 'directory', inode: directory }, Number.POSITIVE_INFINITY);
      },
    });
    birth.listen({
      recalled: (directories) => this.#recalled(directories),
      ended: () => {
        this.#delegations.endAll();
        // Others may take their names from now on: the sooner the better.
        void this.#files.attempt(FLUSH_ALL);
      },
      flushed: async () => {
        await this.#unlinks.flush(FLUSH_ALL, Number.POSITIVE_INFINITY);
      },
    });
  }

  /** @see UncommittedFiles.of */
  uncommitted(inode: number): UncommittedFile | undefined {
    return this.#files.of(inode);
  }

  /** Whether the cluster is going to execute pending changes of names in the directory. */
  isChanging(directory: number): boolean {
    return this.#files.isChanging(directory) || this.#unlinks.timesOf(directory) !== null;
  }

  /**
   * A directory with pending unlinks, for a backend that answers what it was granted without asking the cluster. No other
   * client sees the directory before they are executed: it is delegated.
   *
   * @returns null where the cluster has to have them first
   */
  async withUnlinks(directory: number): Promise<Attributes | null> {
    if (!this.#backend.caches || !this.isHeld(directory) || this.#unlinks.timesOf(directory) === null)
      return null;
    const attributes = await this.#backend.attributes(directory);
    const atNs = this.#unlinks.timesOf(directory);
    // Once the cluster has them, its times count.
    if (atNs === null || !this.isHeld(directory)) return null;
    const estimatedNs = laterNs(String(BigInt(attributes.changedNs) + 1n), atNs);
    return { ...attributes, modifiedNs: estimatedNs, changedNs: estimatedNs };
  }

  /** What was answered in directories, and what is made of it: not the writes that are under way. */
  flush(scope: FlushScope, kinds: readonly OperationKind[] = ['create', 'unlink']): Promise<void> {
    return this.#pending.flush(scope, kinds);
  }

  /** As `flush`, for a change that does not depend on the new files: of one that is not at the cluster its program learns. */
  async flushLogged(scope: FlushScope): Promise<void> {
    await this.#files.attempt(scope);
    await this.#unlinks.flush(scope);
  }

  stateOf(place: Place): NameState {
    return this.#delegations.stateOf(place);
  }

  /** @throws ServiceError `exists` */
  async create(
    place: Place,
    mode: number,
    owner: Owner,
    exclusive: boolean,
  ): ReturnType<FileSystemBackend['createFile']> {
    const { parent, name } = place;
    await this.#requests.settled(parent);
    // The name is given away anew when nobody has it any more, or whoever had it has kept it.
    await this.#unlinks.flush({ kind: 'name', ...place });
    const { budget } = this.#files;
    while (budget.isFull && this.isHeld(parent)) await budget.released();
    const uncommitted = this.#files.at(place);
    if (uncommitted !== undefined) {
      if (exclusive) throw new ServiceError('exists', `There is a "${name}" already`);
      return { attributes: uncommitted.attributes, created: false };
    }
    // A program takes an exclusive create for a lock: the answer is the catalog's. This process may be paused between any check
    // of its delegation and the answer, while another client creates the name.
    const named = exclusive ? await this.#createNamed(place, mode, owner) : null;
    if (named !== null) return { attributes: named, created: true };
    const made = exclusive ? null : this.#make(place, mode, owner);
    if (made !== null) return { attributes: made, created: true, uncommitted: true };
    this.prepare();
    const result = await this.changing(
      [place],
      () => this.#backend.createFile(parent, name, mode, owner, exclusive),
      ({ attributes }) => [namedInode(attributes)],
    );
    if (result.created) this.#madeAtCluster(parent, result.attributes);
    return result;
  }

  /** Names are about to be made: directories can be delegated, and files have numbers. */
  prepare(): void {
    this.#birth.use();
    if (this.#isPossible) this.#creates.prepare();
  }

  /** @returns the attributes of a new file that only this mount knows of; null where it has to be made at the cluster */
  #make(place: Place, mode: number, owner: Owner): Attributes | null {
    const { parent } = place;
    const { uid, gid, umask = 0 } = owner;
    const directory = this.#delegations.of(parent);
    const isPlain = directory?.attributes.xattrs === 0;
    if (!this.#isPossible || !isPlain || this.#delegations.stateOf(place) !== 'free') return null;
    const number = this.#creates.takeNumber();
    if (number === null) return null;
    this.#birth.use();
    const inheritsGroup = (directory.attributes.mode & SET_GROUP_ID) !== 0;
    const group = inheritsGroup ? directory.attributes.gid : gid;
    const attributes = emptyFile(
      number.inode,
      mode & ~umask,
      { uid, gid: group },
      String(nowNs(this.#world)),
    );
    this.#keep(place, attributes, number, { inheritsGroup, isNamed: false });
    return attributes;
  }

  /**
   * Has the catalog create a file by a reserved number, and keeps its contents until it is closed: they travel as those of files that
   * only this mount knows of.
   *
   * @returns null where that cannot be
   * @throws ServiceError `exists`
   */
  async #createNamed(place: Place, mode: number, owner: Owner): Promise<Attributes | null> {
    const { uid, gid, umask = 0 } = owner;
    const directory = this.#delegations.of(place.parent);
    if (!this.#isPossible || this.#isLimited || directory?.attributes.xattrs !== 0) return null;
    const number = this.#creates.takeNumber();
    if (number?.takesNamed !== true) return null;
    this.#birth.use();
    const atNs = String(nowNs(this.#world));
    const file: NewFile = {
      ...{ ...place, inode: number.inode, mode: mode & ~umask, uid, gid },
      ...{ accessedNs: atNs, modifiedNs: atNs, changedNs: atNs, contents: new Uint8Array(0) },
    };
    const made = await this.changing(
      [place],
      () => this.#birth.make(file, 'catalog'),
      ({ attributes }) => [namedInode(attributes)],
    ).catch((error: unknown) => {
      // The number is void; the catalog has created nothing.
      if (error instanceof ServiceError && error.code === 'precondition-failed') return null;
      throw error;
    });
    if (made === null) return null;
    const { attributes } = made;
    this.#learn(attributes);
    if (!this.#isPossible || this.#isLimited || !this.isHeld(place.parent)) return attributes;
    this.#keep(place, { ...attributes, live: false }, number, { inheritsGroup: false, isNamed: true });
    return attributes;
  }

  #keep(
    place: Place,
    attributes: Attributes,
    number: InodeNumber,
    { inheritsGroup, isNamed }: { readonly inheritsGroup: boolean; readonly isNamed: boolean },
  ): void {
    const { parent } = place;
    const parts: UncommittedFileParts = {
      createWithContents: (whole) => this.#create(whole, number.bearer),
      create: (whole) => this.#birth.make(whole),
      setAttributes: (inode, changes) => this.#backend.setAttributes(inode, changes),
      open: (there) => {
        const { inode, replicas, contents } = there;
        this.#contents.learn(there, this.#contents.request());
        return this.open(inode, replicas, contents);
      },
      committed: (_, namedNs) => {
        this.#files.delete(file);
        if (!isNamed) this.#cache.named(parent, namedNs);
      },
      failed: (_, error) => {
        if (!file.commit.isRefused && !isRefusal(error) && this.isHeld(parent)) return;
        this.#files.dropName(file);
        this.#cache.named(parent, null);
        this.changed(file, 'unknown');
      },
      lost: ({ name, inode }, error, isReported) => {
        this.#files.delete(file);
        this.#cache.named(parent, null);
        this.changed(file, 'unknown');
        if (isReported) return;
        const facts = { directory: parent, name, file: inode, error: String(error) };
        this.#log('error', 'a file that was closed is not stored', facts);
        this.#pending.errors.set({ kind: 'directory', inode: parent }, error);
        this.#late({ operation: 'create', directory: parent, name, error });
      },
      unknown: ({ inode }, error) => {
        this.#log('info', 'a new file is made in the ordinary way', { file: inode, error: String(error) });
      },
      budget: this.#files.budget,
      inheritsGroup,
    };
    const file: UncommittedFile = new UncommittedFile(this.#world, place, attributes, parts, isNamed);
    this.#files.add(file);
    this.changed(file, namedInode(attributes));
  }

  /** What was refused for want of a quota may have room when what was removed before is: it is made in the ordinary way then, by the same number. */
  async #create(file: NewFile, bearer: string): Promise<BirthOutcome> {
    const { isEmpty } = this.#unlinks;
    const outcome = await this.#creates.bear(file, bearer);
    if (isEmpty || outcome.kind !== 'refused' || !isOverQuota(outcome.error)) return outcome;
    await this.#unlinks.flush(FLUSH_ALL);
    return { kind: 'unborn' };
  }

  /** A file as the cluster has it. */
  open(...which: Parameters<FileSystemBackend['openFile']>): BackendFile {
    const [inode] = which;
    return afterUnlinks(this.#backend.openFile(...which), this.#unlinks, {
      request: () => this.#contents.request(),
      written: () => this.#contents.written(inode),
      settled: (contents, writtenAt) => this.#contents.settled(inode, contents, writtenAt),
    });
  }

  /** Contents of the file, or what stands for their version, are changed by this mount. */
  writing(inode: number): void {
    this.#contents.written(inode);
  }

  isHeld(directory: number): boolean {
    return this.#delegations.of(directory) !== undefined;
  }

  /** @see DelegationRequests.created */
  madeDirectory(attributes: Attributes): void {
    this.#requests.created(attributes);
  }

  async lookup(place: Place): Promise<Attributes> {
    const { parent, name } = place;
    const uncommitted = this.#files.at(place);
    if (uncommitted !== undefined) return uncommitted.attributes;
    if (this.#unlinks.isAt(place)) throw notThere(name);
    const directory = this.#delegations.of(parent);
    const namedAt = this.#delegations.request();
    if (this.#delegations.stateOf(place) === 'free') throw notThere(name);
    const requestedAt = this.#contents.request();
    try {
      const attributes = await this.#backend.lookup(parent, name);
      if (directory !== undefined && this.isHeld(parent)) this.#contents.learn(attributes, requestedAt);
      this.#delegations.learnName(place, namedInode(attributes), namedAt);
      return this.uncommitted(attributes.inode)?.attributes ?? attributes;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found')
        this.#delegations.learnName(place, 'free', namedAt);
      throw error;
    }
  }

  /** A page of the directory, with what is new in it. */
  async list(directory: number, after: string, countMax: number): Promise<ListedPage> {
    const scope: FlushScope = { kind: 'directory', inode: directory };
    await this.#unlinks.flush(scope);
    // Before it is asked for: what comes to the cluster meanwhile may be in the answer, or not.
    const uncommitted = this.#files.inScope(scope).filter((file) => this.#files.at(file) === file);
    const page = await this.#backend.list(directory, after, countMax);
    return uncommitted.length === 0
      ? page
      : pageWith(page, after, uncommitted, (inode) => this.uncommitted(inode));
  }

  /** @see DelegatedDirectories.changing */
  changing<Result>(
    places: readonly Place[],
    change: () => Promise<Result>,
    after: (result: Result) => readonly NameState[],
  ): Promise<Result> {
    return this.#delegations.changing(
      places,
      async () => {
        for (const place of places) await this.#unlinks.flush({ kind: 'name', ...place });
        return this.#unlinks.withQuota(change);
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

  /** A name that is given ends the streak of unlinks in its directory. */
  #endStreak(directory: number, state: NameState = 'unknown'): void {
    if (state !== 'free' && state !== 'unknown') this.#streaks.end(directory);
  }

  /** The file has got a second name here. */
  linked(inode: number): void {
    this.#delegations.linked(inode);
  }

  /** @see DelegatedDirectories.hasOneName */
  hasOneName(named: NamedInode): boolean {
    return this.#delegations.hasOneName(named);
  }

  /** Nothing is known any more of the directory's names. */
  letGo(directory: number): void {
    this.#delegations.end(directory);
  }

  /** Takes a name away, at once where nobody can tell that from the ordinary way but by the death of this mount. */
  async unlink(
    place: Place,
    uid: number | undefined,
    isOpen: (inode: number) => boolean,
  ): ReturnType<FileSystemBackend['unlink']> {
    this.#streaks.began(place.parent);
    try {
      return await this.#unlink(place, uid, isOpen);
    } catch (error) {
      this.#streaks.end(place.parent);
      throw error;
    }
  }

  async #unlink(
    place: Place,
    uid: number | undefined,
    isOpen: (inode: number) => boolean,
  ): ReturnType<FileSystemBackend['unlink']> {
    const { parent, name } = place;
    await this.#requests.settled(parent);
    await this.flush({ kind: 'name', ...place });
    await this.#unlinks.room();
    const removable = this.#removable(place, isOpen);
    if (removable !== null) {
      this.#birth.use();
      this.#streaks.removed(parent);
      this.changed(place, 'free');
      const atNs = this.#unlinks.add(removable, uid);
      return { inode: removable.inode, links: 0, atNs, behind: true };
    }
    const left = await this.changing(
      [place],
      () => this.#backend.unlink(parent, name, uid),
      () => ['free'],
    );
    if (left.atNs !== undefined) this.#unlinks.heard(left.atNs);
    this.#removedAtCluster(parent);
    return left;
  }

  /** @returns the file whose removal can be acknowledged ahead of the cluster */
  #removable(place: Place, isOpen: (inode: number) => boolean): FencedName | null {
    const directory = this.#delegations.of(place.parent);
    if (directory === undefined || this.#unlinks.isSlow) return null;
    const named = this.#delegations.stateOf(place);
    if (typeof named === 'string' || named.kind !== 'file' || !this.#delegations.hasOneName(named))
      return null;
    const { inode } = named;
    if (isOpen(inode)) return null;
    const isPlain = (directory.attributes.mode & STICKY) === 0;
    if (!isPlain || this.#streaks.lengthOf(place.parent) < SHOWN_COUNT) return null;
    const contents = this.#contents.of(inode);
    const fence = this.#birth.fenceOf(place.parent);
    if (contents === undefined || fence === null) return null;
    const { parent, name } = place;
    return { parent, name, inode, contents, fence };
  }

  #removedAtCluster(parent: number): void {
    const count = this.#streaks.removed(parent);
    if (count < SHOWN_COUNT) return;
    this.#birth.use();
    const directory = this.#delegations.of(parent);
    if (directory !== undefined) void this.#requests.learnMore(directory);
    else if (count >= REMOVED_COUNT) void this.#requests.send(parent);
  }

  /** The directory itself is about to change, or has. */
  async changingDirectory<Result>(directory: number, change: () => Promise<Result>): Promise<Result> {
    this.#delegations.end(directory);
    await this.flushLogged({ kind: 'directory', inode: directory });
    try {
      return await change();
    } finally {
      this.#delegations.end(directory);
    }
  }

  async stop(): Promise<void> {
    await Promise.all([this.#files.stop(), this.#unlinks.stop()]);
    await this.#birth.stop();
  }

  async #recalled(directories: readonly number[]): Promise<void> {
    for (const directory of directories) this.#requests.recalled(directory);
    const scopes = directories.map((inode): FlushScope => ({ kind: 'directory', inode }));
    await Promise.all(scopes.map((scope) => this.#unlinks.flush(scope, Number.POSITIVE_INFINITY)));
    await Promise.all(scopes.map((scope) => this.#files.attempt(scope)));
  }

  #learn({ policy = 'quorum', allowedBytes }: Attributes): void {
    this.#isPossible = policy === 'quorum';
    this.#isLimited = allowedBytes !== undefined;
  }

  #madeAtCluster(parent: number, attributes: Attributes): void {
    this.#learn(attributes);
    this.prepare();
    const nowMs = this.#world.nowMs();
    const isAgain = nowMs - (this.#madeMs.get(parent) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS;
    this.#madeMs.set(parent, nowMs);
    if (this.#isPossible && isAgain && !this.isHeld(parent)) void this.#requests.send(parent);
  }
}

function notThere(name: string): ServiceError {
  return new ServiceError('not-found', `There is no "${name}"`);
}

/** The cluster has answered that it does not have the file. */
function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && error.remedy === 'give-up';
}
