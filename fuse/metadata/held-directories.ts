import { Counts } from '../../base/counts.ts';
import type { World } from '../../base/world.ts';
import type { Attributes, BirthBackend, FileSystemBackend, ListedPage } from '../backend.ts';
import { type Place, placeKey } from '../place.ts';
import type { Log } from '../transport.ts';
import { DelegatedDirectory, DelegatedNames, NAMES_MAX, type NameState } from './delegated-names.ts';
import { Moments } from './moments.ts';

/** A directory that was called back is not asked for again for so long, in milliseconds: somebody else makes names in it. */
const RECALLED_MS = 5_000;
/** Nor is one for so long that was asked for in vain. */
const REFUSED_MS = 250;
/** Names that are asked for together with a directory. */
const NAMES_COUNT = 1_000;
const EMPTY: ListedPage = { entries: [], more: false };

export interface HeldDirectoryEvents {
  /** The directory is delegated from now on, and its names are known. */
  held(directory: number): void;
  /** The cluster has told of names, and attributes, of a directory that is delegated. */
  listed(page: ListedPage, mark: number): void;
  /** Taken before asking for what `listed` is told. */
  mark(): number;
  /** Resolves when nothing of the directory is on its way to the cluster that was told before. */
  settled(directory: number): Promise<void>;
}

/**
 * The directories that are delegated to this mount: asking for them and for their names, and what becomes of these while they are changed at the
 * cluster.
 */
export class HeldDirectories {
  readonly #backend: Pick<FileSystemBackend, 'attributes' | 'list' | 'isAway'>;
  readonly #birth: BirthBackend;
  readonly #log: Log;
  readonly #events: HeldDirectoryEvents;
  readonly #names: DelegatedNames;
  readonly #recalledMs: Moments;
  readonly #refusedMs: Moments;
  /** Directories that are being asked for, with the names that were changed meanwhile. */
  readonly #asking = new Map<number, { readonly changed: Set<string>; readonly over: Promise<void> }>();
  /** Directories of which the next names are being asked for. */
  readonly #learning = new Set<number>();
  /** Names that are being changed at the cluster, and how often at a time. */
  readonly #changing = new Counts<string>();
  /** The same of directories: while one is changed, it is delegated to nobody. */
  readonly #busy = new Counts<number>();
  /** Who waits until no name of a directory is being changed. */
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

  /** @returns `doubt` where nothing is known, or not at the moment */
  stateOf(place: Place): NameState {
    if (this.#changing.has(placeKey(place))) return 'doubt';
    return this.#names.of(place.parent)?.stateOf(place.name) ?? 'doubt';
  }

  /** What becomes of names is not known while they are being changed, nor where that fails. */
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

  /** Nothing is known of it any more. */
  end(directory: number): void {
    this.#names.end(directory);
  }

  /**
   * It was called back: for somebody else, but where this mount is changing a name of it at that moment. That is what calls it back then, if it was
   * asked without saying whose it is, because the session was over.
   */
  recalled(directory: number): void {
    this.#names.end(directory);
    if (!this.#busy.has(directory)) this.#recalledMs.note(directory);
  }

  endAll(): void {
    this.#names.endAll();
  }

  /** Resolves when it is not being asked for: whoever changes names all the time would never come to have the directory. */
  async asked(directory: number): Promise<void> {
    await this.#asking.get(directory)?.over;
  }

  /** Asks for the directory, unless that was in vain a moment ago, or somebody else wanted it. */
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
      // Of the time before it was called back, or the session was over.
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

  /** Asks for the next names of a directory of which not all are known. */
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
