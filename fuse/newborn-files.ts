import { ServiceError } from '../base/errors.ts';
import { afterRemovals } from './after-removals.ts';
import { allDone } from './all-done.ts';
import type {
  Attributes,
  BackendFile,
  BirthBackend,
  BirthOutcome,
  FileSystemBackend,
  ListedPage,
  NewFile,
  Owner,
} from './backend.ts';
import { Births } from './births.ts';
import {
  DelegatedDirectory,
  DelegatedNames,
  NAMES_MAX,
  type NameState,
  nameStateOf,
} from './delegated-names.ts';
import { namesCompare } from './name-order.ts';
import { nowNs } from './open-file.ts';
import { RemovalRows } from './removal-rows.ts';
import { isOverQuota, Removals } from './removals.ts';
import type { Log } from './transport.ts';
import { UnbornFile, type Way } from './unborn-file.ts';

/** Others may look for a file in vain for so long after it was made here, in milliseconds; a part of what a mount believes. */
export const UNBORN_MS_MAX = 250;
/** Files that the cluster does not know of, and their contents: whoever makes more waits. */
const UNBORN_COUNT_MAX = 2_000;
const UNBORN_BYTES_MAX = 16 * 1024 * 1024;
/** Who has made a second file in a directory within this time is about to make more of them. */
const AGAIN_MS = 2_000;
/** A directory that was called back is not asked for again for so long: somebody else makes names in it. */
const RECALLED_MS = 5_000;
/** Nor is one for so long that was asked for in vain. */
const REFUSED_MS = 250;
/** Names that are asked for together with a directory. */
const NAMES_COUNT = 1_000;
/** Directories of which it is remembered when a file was made in them, or when they were called back. */
const REMEMBERED_MAX = 1_000;

/** So many files in a row are removed in the ordinary way: that shows that they may be. */
const SHOWN_COUNT = 2;
/** Who has removed so many in a row is about to remove more: to ask for the directory costs as much as two. */
const REMOVED_COUNT = 8;

const SET_GROUP_ID = 0o2000;
const STICKY = 0o1000;
const EMPTY: ListedPage = { entries: [], more: false };

interface Place {
  readonly parent: number;
  readonly name: string;
}

/**
 * Makes files here, in directories that are delegated to this mount, and has the cluster hear of each as a whole: when it is closed, and before
 * anything else that needs it there. What the mount looks for, it finds here meanwhile. Removals in such directories follow behind.
 */
export class NewbornFiles {
  /** @see FileSystemBackend.onNamed */
  named: (directory: number, atNs: string | null) => void = () => undefined;
  /** @see FileSystemBackend.onHeld */
  held: (directory: number) => void = () => undefined;
  readonly #backend: FileSystemBackend;
  readonly #birth: BirthBackend;
  readonly #log: Log;
  readonly #births: Births;
  readonly #names: DelegatedNames;
  readonly #removals: Removals;
  readonly #rows: RemovalRows;
  /** Directories of which the next names are being asked for. */
  readonly #learning = new Set<number>();
  /** By inode, the oldest first. */
  readonly #unborn = new Map<number, UnbornFile>();
  readonly #byPlace = new Map<string, UnbornFile>();
  /** How many of them a directory has. */
  readonly #counts = new Map<number, number>();
  #keptBytes = 0;
  /** Who would make a file, and waits until there are fewer. */
  readonly #waiting: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;
  /** When a file was made in a directory in the ordinary way. */
  readonly #madeMs = new Map<number, number>();
  readonly #recalledMs = new Map<number, number>();
  readonly #refusedMs = new Map<number, number>();
  /** Directories that are being asked for, with the names that were changed meanwhile. */
  readonly #asking = new Map<number, { readonly changed: Set<string>; readonly over: Promise<void> }>();
  /** Names that are being changed at the cluster, and how often at a time. */
  readonly #changing = new Map<string, number>();
  /** The same of directories: while one is changed, it is delegated to nobody. */
  readonly #busy = new Map<number, number>();
  /** Who waits until no name of a directory is being changed. */
  readonly #idle = new Map<number, () => void>();
  /** Files of the volume can come with their contents; not known before the first of them was made. */
  #isPossible = false;

  /** @param rowMs @see withBirths */
  constructor(backend: FileSystemBackend, birth: BirthBackend, log: Log, rowMs: number) {
    this.#backend = backend;
    this.#birth = birth;
    this.#log = log;
    this.#rows = new RemovalRows(rowMs);
    this.#removals = new Removals(birth, {
      removed: ({ parent }, atNs) => this.named(parent, atNs),
      failed: (place, error) => {
        this.#rows.end(place.parent);
        this.named(place.parent, null);
        this.changed(place, 'doubt');
        const { parent: directory, name, inode: file } = place;
        log('error', 'a file that was removed is still there', {
          directory,
          name,
          file,
          error: String(error),
        });
      },
    });
    this.#births = new Births(birth, (error) => {
      log('debug', 'no numbers for new files', { error: String(error) });
    });
    this.#names = new DelegatedNames((directory) => birth.isDelegated(directory));
    birth.listen({
      recalled: (directories) => this.#recalled(directories),
      ended: () => {
        this.#names.endAll();
        // Others may take their names from now on: the sooner the better.
        void this.#comeAll(this.#unborn.values());
      },
    });
  }

  unborn(inode: number): UnbornFile | undefined {
    return this.#unborn.get(inode);
  }

  unbornAt({ parent, name }: Place): UnbornFile | undefined {
    return this.#byPlace.get(keyOf(parent, name));
  }

  /** Whether the cluster is going to hear of new names in the directory. */
  isChanging(directory: number): boolean {
    return this.#counts.has(directory);
  }

  /**
   * Resolves when the cluster has the file, if it is one that is new, and all removals that concern the inode.
   *
   * @throws where it cannot be brought there
   */
  async come(inode: number): Promise<void> {
    await this.#unborn.get(inode)?.come('born');
    await this.#removals.goneOf(inode);
  }

  async comeAt(place: Place): Promise<void> {
    await this.unbornAt(place)?.come('born');
    await this.#removals.goneAt(place);
  }

  /** Resolves when the cluster has, as far as that can be, all new files, or those in a directory, and so with removals. */
  async comeFrom(directory?: number): Promise<void> {
    const directories = directory === undefined ? undefined : new Set([directory]);
    await this.#comeAll(directories === undefined ? this.#unborn.values() : this.#unbornIn(directories));
    await (directories === undefined ? this.#removals.gone() : this.#removals.goneFrom(directories));
  }

  /** As `comeFrom`, for whoever has to know. @throws what is not so at the cluster, and why */
  async persist(directory?: number): Promise<void> {
    const files = directory === undefined ? [...this.#unborn.values()] : this.#unbornIn(new Set([directory]));
    await allDone([...files.map((file) => file.come('born')), this.#removals.persist(directory)]);
  }

  /** @see FileSystemBackend.removed */
  removed(inode: number): Promise<void> {
    return this.#removals.goneOf(inode);
  }

  /** @returns what is known of the name, if that is a file; else null */
  fileAt(place: Place): NameState | null {
    const state = this.#stateOf(place);
    return state === 'file' || typeof state === 'number' ? state : null;
  }

  /** @throws ServiceError `exists` */
  async create(
    place: Place,
    mode: number,
    owner: Owner,
    exclusive: boolean,
  ): ReturnType<FileSystemBackend['createFile']> {
    const { parent, name } = place;
    // Whoever makes files all the time would never come to have the directory.
    await this.#asking.get(parent)?.over;
    // The name is given away anew when nobody has it any more, or whoever had it has kept it.
    await this.#removals.goneAt(place);
    while (this.#isFull && this.#names.of(parent) !== undefined)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const unborn = this.unbornAt(place);
    if (unborn !== undefined) {
      if (exclusive) throw new ServiceError('exists', `There is a "${name}" already`);
      return { attributes: unborn.attributes, created: false };
    }
    const made = this.#make(place, mode, owner);
    if (made !== null) return { attributes: made, created: true, unborn: true };
    this.prepare();
    const result = await this.changing([place], () =>
      this.#backend.createFile(parent, name, mode, owner, exclusive),
    );
    const { attributes, created } = result;
    this.changed(place, nameStateOf(attributes));
    if (created) this.#madeAtCluster(parent, attributes);
    return result;
  }

  /** Names are about to be made: directories can be delegated, and files have numbers. */
  prepare(): void {
    this.#birth.use();
    if (this.#isPossible) this.#births.prepare();
  }

  get #isFull(): boolean {
    return this.#unborn.size >= UNBORN_COUNT_MAX || this.#keptBytes > UNBORN_BYTES_MAX;
  }

  /** @returns the attributes of a new file that only this mount knows of; null where it has to be made at the cluster */
  #make({ parent, name }: Place, mode: number, { uid, gid, umask = 0 }: Owner): Attributes | null {
    const directory = this.#names.of(parent);
    const isPlain = directory?.attributes.xattrs === 0;
    if (!this.#isPossible || !isPlain || this.#stateOf({ parent, name }) !== 'free') return null;
    const number = this.#births.takeNumber();
    if (number === null) return null;
    this.#birth.use();
    const atNs = String(nowNs());
    const inheritsGroup = (directory.attributes.mode & SET_GROUP_ID) !== 0;
    const attributes: Attributes = {
      ...{
        inode: number.inode,
        kind: 'file',
        mode: mode & ~umask,
        links: 1,
        sizeBytes: 0,
        target: '',
        device: 0,
      },
      ...{ uid, gid: inheritsGroup ? directory.attributes.gid : gid },
      ...{ accessedNs: atNs, modifiedNs: atNs, changedNs: atNs, replicas: [], live: false, xattrs: 0 },
      contents: { epoch: 0, seq: 0 },
    };
    const file: UnbornFile = new UnbornFile({ parent, name }, attributes, {
      bear: (whole) => this.#bear(whole, number.bearer),
      make: (whole) => this.#birth.make(whole),
      setAttributes: (inode, changes) => this.#backend.setAttributes(inode, changes),
      open: ({ inode, replicas, contents }) => this.open(inode, replicas, contents),
      there: (_, namedNs) => {
        this.#forget(file);
        this.named(parent, namedNs);
      },
      lost: () => {
        this.#forget(file);
        this.named(parent, null);
        this.changed(file, 'doubt');
      },
      doubted: ({ inode }, error) => {
        this.#log('info', 'a new file is made in the ordinary way', { file: inode, error: String(error) });
      },
      kept: (bytes) => {
        this.#keptBytes += bytes;
      },
      isFull: () => this.#isFull,
      inheritsGroup,
    });
    this.#unborn.set(file.inode, file);
    this.#byPlace.set(keyOf(parent, name), file);
    more(this.#counts, parent);
    this.changed(file, file.inode);
    this.#timer ??= setTimeout(() => this.#age(), UNBORN_MS_MAX);
    return attributes;
  }

  /** What was refused for want of a quota may have room when what was removed before is: it is made in the ordinary way then, by the same number. */
  async #bear(file: NewFile, bearer: string): Promise<BirthOutcome> {
    const { isEmpty } = this.#removals;
    const outcome = await this.#births.bear(file, bearer);
    if (isEmpty || outcome.kind !== 'refused' || !isOverQuota(outcome.error)) return outcome;
    await this.#removals.gone();
    return { kind: 'unborn' };
  }

  /** A file as the cluster has it. */
  open(...which: Parameters<FileSystemBackend['openFile']>): BackendFile {
    return afterRemovals(this.#backend.openFile(...which), this.#removals);
  }

  isHeld(directory: number): boolean {
    return this.#names.of(directory) !== undefined;
  }

  #hold(directory: DelegatedDirectory): void {
    this.#names.begin(directory);
    this.held(directory.attributes.inode);
  }

  /** A directory that was just made here has no names. */
  madeDirectory(attributes: Attributes): void {
    if (this.#birth.isDelegated(attributes.inode)) this.#hold(new DelegatedDirectory(attributes, EMPTY));
  }

  async lookup({ parent, name }: Place): Promise<Attributes> {
    const unborn = this.unbornAt({ parent, name });
    if (unborn !== undefined) return unborn.attributes;
    if (this.#removals.isAt({ parent, name })) throw notThere(name);
    const directory = this.#names.of(parent);
    const changes = directory?.changes ?? 0;
    if (this.#stateOf({ parent, name }) === 'free') throw notThere(name);
    try {
      const attributes = await this.#backend.lookup(parent, name);
      directory?.heard(name, nameStateOf(attributes), changes);
      return attributes;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found')
        directory?.heard(name, 'free', changes);
      throw error;
    }
  }

  /** A page of the directory, with what is new in it. */
  async list(directory: number, after: string, countMax: number): Promise<ListedPage> {
    await this.#removals.goneFrom(new Set([directory]));
    // Before it is asked for: what comes to the cluster meanwhile may be in the answer, or not.
    const unborn = [...this.#unborn.values()].filter(({ parent }) => parent === directory);
    const page = await this.#backend.list(directory, after, countMax);
    const last = page.more ? page.entries.at(-1)?.name : undefined;
    const isOfPage = (name: string): boolean =>
      (after === '' || namesCompare(name, after) > 0) && (last === undefined || namesCompare(name, last) < 0);
    const listed = new Set(page.entries.map(({ name }) => name));
    const more = unborn.filter(({ name }) => isOfPage(name) && !listed.has(name));
    if (more.length === 0) return page;
    const entries = [...page.entries, ...more.map(({ name, attributes }) => ({ name, attributes }))];
    return { entries: entries.sort((a, b) => namesCompare(a.name, b.name)), more: page.more };
  }

  /** What becomes of names is not known while they are being changed, nor where that fails. */
  async changing<Result>(places: readonly Place[], change: () => Promise<Result>): Promise<Result> {
    const keys = places.map(({ parent, name }) => keyOf(parent, name));
    for (const key of keys) more(this.#changing, key);
    for (const { parent } of places) more(this.#busy, parent);
    try {
      for (const place of places) await this.#removals.goneAt(place);
      return await this.#removals.withQuota(change);
    } finally {
      for (const key of keys) fewer(this.#changing, key);
      for (const { parent } of places) {
        fewer(this.#busy, parent);
        if (!this.#busy.has(parent)) this.#idle.get(parent)?.();
      }
      for (const place of places) this.changed(place, 'doubt');
    }
  }

  changed({ parent, name }: Place, state: NameState): void {
    if (state !== 'free' && state !== 'doubt') this.#rows.end(parent);
    this.#names.changed(parent, name, state);
    this.#asking.get(parent)?.changed.add(name);
  }

  #stateOf({ parent, name }: Place): NameState {
    if (this.#changing.has(keyOf(parent, name))) return 'doubt';
    return this.#names.of(parent)?.stateOf(name) ?? 'doubt';
  }

  /** The file has got a second name here. */
  linked(inode: number): void {
    this.#names.linked(inode);
  }

  /** Takes a name away, at once where nobody can tell that from the ordinary way but by the death of this mount. */
  async unlink(
    place: Place,
    uid: number | undefined,
    isOpen: (inode: number) => boolean,
  ): ReturnType<FileSystemBackend['unlink']> {
    const { parent, name } = place;
    // As whoever makes files.
    await this.#asking.get(parent)?.over;
    await this.comeAt(place);
    await this.#removals.room();
    const inode = this.#removable(place, isOpen);
    if (inode !== null) {
      this.#birth.use();
      this.#rows.removed(parent);
      this.changed(place, 'free');
      return { inode, links: 0, atNs: this.#removals.add({ parent, name, inode }, uid), behind: true };
    }
    const left = await this.changing([place], () => this.#backend.unlink(parent, name, uid));
    this.changed(place, 'free');
    if (left.atNs !== undefined) this.#removals.heard(left.atNs);
    this.#removedAtCluster(parent);
    return left;
  }

  /** @returns the file whose removal can follow behind */
  #removable(place: Place, isOpen: (inode: number) => boolean): number | null {
    const directory = this.#names.of(place.parent);
    if (directory === undefined || this.#removals.isSlow) return null;
    const inode = this.#stateOf(place);
    if (typeof inode !== 'number' || this.#names.isLinked(inode) || isOpen(inode)) return null;
    const isPlain = (directory.attributes.mode & STICKY) === 0;
    return isPlain && this.#rows.lengthOf(place.parent) >= SHOWN_COUNT ? inode : null;
  }

  #removedAtCluster(parent: number): void {
    const count = this.#rows.removed(parent);
    if (count < SHOWN_COUNT) return;
    this.#birth.use();
    const directory = this.#names.of(parent);
    if (directory !== undefined) void this.#learnMore(directory);
    else if (count >= REMOVED_COUNT) void this.#ask(parent);
  }

  /** The next names of a directory in which something was removed that was not known. */
  async #learnMore(directory: DelegatedDirectory): Promise<void> {
    const { knownThrough: after, attributes, count } = directory;
    if (after === null || count >= NAMES_MAX || this.#learning.has(attributes.inode)) return;
    this.#learning.add(attributes.inode);
    try {
      directory.learn(await this.#backend.list(attributes.inode, after, NAMES_COUNT));
    } catch (error) {
      this.#log('debug', 'names are not known', { directory: attributes.inode, error: String(error) });
    } finally {
      this.#learning.delete(attributes.inode);
    }
  }

  /** The directory itself is about to change, or has. */
  async changingDirectory<Result>(directory: number, change: () => Promise<Result>): Promise<Result> {
    this.#names.end(directory);
    await this.comeFrom(directory);
    try {
      return await change();
    } finally {
      this.#names.end(directory);
    }
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await this.comeFrom();
    await this.#birth.stop();
  }

  async #recalled(directories: readonly number[]): Promise<void> {
    for (const directory of directories) {
      this.#names.end(directory);
      remember(this.#recalledMs, directory);
    }
    const called = new Set(directories);
    await this.#removals.goneFrom(called);
    await this.#comeAll(this.#unbornIn(called));
  }

  #unbornIn(directories: ReadonlySet<number>): UnbornFile[] {
    return [...this.#unborn.values()].filter(({ parent }) => directories.has(parent));
  }

  /** Whoever waits for one of them is told why it failed. */
  async #comeAll(files: Iterable<UnbornFile>): Promise<void> {
    await Promise.all([...files].map((file) => this.#bring(file, 'born')));
  }

  async #bring(file: UnbornFile, way: Way): Promise<void> {
    try {
      await file.come(way);
    } catch (error) {
      this.#log('warn', 'a new file is not at the cluster', { file: file.inode, error: String(error) });
    }
  }

  /** What is open for longer is there for others to see; most likely it is written further. */
  #age(): void {
    this.#timer = undefined;
    const nowMs = performance.now();
    for (const file of this.#unborn.values()) {
      const leftMs = file.bornMs + UNBORN_MS_MAX - nowMs;
      if (leftMs > 0) {
        this.#timer = setTimeout(() => this.#age(), leftMs);
        return;
      }
      if (file.isUnborn) void this.#bring(file, 'made');
    }
  }

  #forget(file: UnbornFile): void {
    if (this.#unborn.delete(file.inode)) fewer(this.#counts, file.parent);
    this.#byPlace.delete(keyOf(file.parent, file.name));
    for (const go of this.#waiting.splice(0)) go();
  }

  #madeAtCluster(parent: number, { policy = 'quorum' }: Attributes): void {
    this.#isPossible = policy === 'quorum';
    this.prepare();
    const beforeMs = this.#madeMs.get(parent) ?? Number.NEGATIVE_INFINITY;
    remember(this.#madeMs, parent);
    const isAgain = performance.now() - beforeMs < AGAIN_MS;
    if (this.#isPossible && isAgain && this.#names.of(parent) === undefined) void this.#ask(parent);
  }

  async #ask(directory: number): Promise<void> {
    const recalledMs = this.#recalledMs.get(directory) ?? Number.NEGATIVE_INFINITY;
    const refusedMs = this.#refusedMs.get(directory) ?? Number.NEGATIVE_INFINITY;
    const nowMs = performance.now();
    if (nowMs - recalledMs < RECALLED_MS || nowMs - refusedMs < REFUSED_MS || this.#asking.has(directory))
      return;
    const changed = new Set<string>();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#asking.set(directory, { changed, over: promise });
    try {
      if (this.#busy.has(directory)) await new Promise<void>((idle) => this.#idle.set(directory, idle));
      this.#idle.delete(directory);
      // Of the time before it was called back, or the session was over.
      await this.#removals.goneFrom(new Set([directory]));
      const page = await this.#birth.delegate(directory, NAMES_COUNT);
      if (page === null) {
        remember(this.#refusedMs, directory);
        return;
      }
      // After it was delegated: nobody else changes it from then on.
      const attributes = await this.#backend.attributes(directory);
      if (!this.#birth.isDelegated(directory)) return;
      this.#hold(new DelegatedDirectory(attributes, page, changed));
    } catch (error) {
      this.#log('debug', 'a directory is not delegated', { directory, error: String(error) });
    } finally {
      this.#asking.delete(directory);
      resolve();
    }
  }
}

function notThere(name: string): ServiceError {
  return new ServiceError('not-found', `There is no "${name}"`);
}

function keyOf(parent: number, name: string): string {
  return `${parent}/${name}`;
}

function remember(map: Map<number, number>, directory: number): void {
  map.delete(directory);
  map.set(directory, performance.now());
  for (const oldest of map.keys()) {
    if (map.size <= REMEMBERED_MAX) return;
    map.delete(oldest);
  }
}

function more<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function fewer<Key>(counts: Map<Key, number>, key: Key): void {
  const count = counts.get(key) ?? 0;
  if (count <= 1) counts.delete(key);
  else counts.set(key, count - 1);
}
