import { Counts } from '../../base/counts.ts';
import type { World } from '../../base/world.ts';
import type { Attributes, BirthBackend, FileSystemBackend, ListedPage } from '../backend.ts';
import { type Place, placeKey } from '../place.ts';
import type { Log } from '../transport.ts';
import { DelegatedDirectory, DelegatedNames, NAMES_MAX, type NameState } from './delegated-names.ts';
import { Moments } from './moments.ts';

/** A recalled directory is not requested again for so long, in milliseconds: another client makes names in it. */
const RECALLED_MS = 5_000;
/** The same after a refused request. */
const REFUSED_MS = 250;
/** Names that are requested together with a directory. */
const NAMES_COUNT = 1_000;
const EMPTY: ListedPage = { entries: [], more: false };

export interface HeldDirectoryEvents {
  /** The directory is delegated from now on, and its names are known. */
  held(directory: number): void;
  /** The cluster has answered names and attributes of a delegated directory. */
  listed(page: ListedPage, mark: number): void;
  /** Taken before the request of what `listed` gets. */
  mark(): number;
  /** Resolves when the cluster has all changes of the directory that were acknowledged before. */
  settled(directory: number): Promise<void>;
}

/**
 * The directories that are delegated to this mount: requests for them and for their names, and what is known of these while
 * they are changed at the cluster.
 */
export class HeldDirectories {
  readonly #backend: Pick<FileSystemBackend, 'attributes' | 'list' | 'isAway'>;
  readonly #birth: BirthBackend;
  readonly #log: Log;
  readonly #events: HeldDirectoryEvents;
  readonly #names: DelegatedNames;
  readonly #recalledMs: Moments;
  readonly #refusedMs: Moments;
  /** Directories whose request is under way, with the names that were changed meanwhile. */
  readonly #asking = new Map<number, { readonly changed: Set<string>; readonly over: Promise<void> }>();
  /** Directories whose next names are requested. */
  readonly #learning = new Set<number>();
  /** Changes under way at the cluster, by name. */
  readonly #changing = new Counts<string>();
  /** The same by directory: while one is changed, it is not requested. */
  readonly #busy = new Counts<number>();
  /** Resolve a request that waits until no name of the directory is being changed. */
  readonly #idle = new Map<number, () => void>();

  constructor(
    world: World,
    backend: Pick<FileSystemBackend, 'attributes' | 'list' | 'isAway'>,
    birth: BirthBackend,
    log: Log,
    events: HeldDirectoryEvents,
  ) {
    this.#recalledMs = new Moments(world);
    this.#refusedMs = new Moments(world);
    this.#backend = backend;
    this.#birth = birth;
    this.#log = log;
    this.#events = events;
    this.#names = new DelegatedNames((directory) => birth.isDelegated(directory));
  }

  /** @returns undefined where it is not delegated now */
  of(directory: number): DelegatedDirectory | undefined {
    return this.#names.of(directory);
  }

  /** @returns `doubt` also while the name is being changed */
  stateOf(place: Place): NameState {
    if (this.#changing.has(placeKey(place))) return 'doubt';
    return this.#names.of(place.parent)?.stateOf(place.name) ?? 'doubt';
  }

  /** Names are unknown while they are being changed, and where that fails. */
  async changing<Result>(places: readonly Place[], change: () => Promise<Result>): Promise<Result> {
    for (const place of places) {
      this.#changing.more(placeKey(place));
      this.#busy.more(place.parent);
    }
    try {
      return await change();
    } finally {
      for (const place of places) {
        const { parent } = place;
        this.#changing.fewer(placeKey(place));
        this.#busy.fewer(parent);
        if (!this.#busy.has(parent)) this.#idle.get(parent)?.();
      }
      for (const place of places) this.changed(place, 'doubt');
    }
  }

  changed({ parent, name }: Place, state: NameState): void {
    this.#names.changed(parent, name, state);
    this.#asking.get(parent)?.changed.add(name);
  }

  /** The file has got a second name here. */
  linked(inode: number): void {
    this.#names.linked(inode);
  }

  isLinked(inode: number): boolean {
    return this.#names.isLinked(inode);
  }

  /** A directory that was just made here has no names. */
  made(attributes: Attributes): void {
    if (this.#birth.isDelegated(attributes.inode)) this.#begin(new DelegatedDirectory(attributes, EMPTY));
  }

  /** Its names are forgotten. */
  end(directory: number): void {
    this.#names.end(directory);
  }

  /**
   * It was recalled for another client, unless this mount is changing a name of it at that moment: then its own command, which
   * does not say whose it is because the session has ended, has recalled it.
   */
  recalled(directory: number): void {
    this.#names.end(directory);
    if (!this.#busy.has(directory)) this.#recalledMs.note(directory);
  }

  endAll(): void {
    this.#names.endAll();
  }

  /** Resolves when no request for it is under way: changes that never pause would keep it from being delegated. */
  async asked(directory: number): Promise<void> {
    await this.#asking.get(directory)?.over;
  }

  /** Requests the directory, unless that was refused a moment ago, or another client has had it recalled. */
  async ask(directory: number): Promise<void> {
    const isTooSoon =
      this.#recalledMs.sinceMs(directory) < RECALLED_MS || this.#refusedMs.sinceMs(directory) < REFUSED_MS;
    if (isTooSoon || this.#asking.has(directory) || this.#backend.isAway?.() === true) return;
    const changed = new Set<string>();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#asking.set(directory, { changed, over: promise });
    try {
      if (this.#busy.has(directory)) await new Promise<void>((idle) => this.#idle.set(directory, idle));
      this.#idle.delete(directory);
      // Those from before a recall, or the end of the session.
      await this.#events.settled(directory);
      const mark = this.#events.mark();
      const page = await this.#birth.delegate(directory, NAMES_COUNT);
      if (page === null) {
        this.#refusedMs.note(directory);
        return;
      }
      // After it was delegated: nobody else changes it from then on.
      const attributes = await this.#backend.attributes(directory);
      if (!this.#birth.isDelegated(directory)) return;
      this.#events.listed(page, mark);
      this.#begin(new DelegatedDirectory(attributes, page, changed));
    } catch (error) {
      this.#log('debug', 'a directory is not delegated', { directory, error: String(error) });
    } finally {
      this.#asking.delete(directory);
      resolve();
    }
  }

  /** Requests the next names of a directory of which not all are known. */
  async learnMore(directory: DelegatedDirectory): Promise<void> {
    const { knownThrough: after, attributes, count } = directory;
    const { inode } = attributes;
    if (after === null || count >= NAMES_MAX || this.#learning.has(inode)) return;
    this.#learning.add(inode);
    try {
      const mark = this.#events.mark();
      const page = await this.#backend.list(inode, after, NAMES_COUNT);
      this.#events.listed(page, mark);
      directory.learn(page);
    } catch (error) {
      this.#log('debug', 'names are not known', { directory: inode, error: String(error) });
    } finally {
      this.#learning.delete(inode);
    }
  }

  #begin(directory: DelegatedDirectory): void {
    this.#names.begin(directory);
    this.#events.held(directory.attributes.inode);
  }
}
