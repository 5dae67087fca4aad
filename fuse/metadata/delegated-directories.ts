import { BoundedMap } from '../../base/bounded-map.ts';
import { Sequencer } from '../../base/sequencer.ts';
import type { World } from '../../base/world.ts';
import type { Attributes, ListedPage, NodeKind } from '../backend.ts';
import { type Place, placeKey } from '../place.ts';
import { namesCompare } from './name-order.ts';

const DIRECTORIES_MAX = 2_000;
export const NAMES_MAX = 100_000;
/** Files that were linked here; beyond that all cached names are dropped. */
const LINKED_MAX = 10_000;

export interface NamedInode {
  readonly inode: number;
  readonly kind: NodeKind;
  readonly links: number;
}

/** `taken`: by an unknown inode. `unknown`: also while the name is being changed. */
export type NameState = NamedInode | 'free' | 'taken' | 'unknown';

export interface ListedName {
  readonly name: string;
  readonly inode: number;
  readonly kind: NodeKind;
}

export function namedInode({ inode, kind, links }: Attributes): NamedInode {
  return { inode, kind, links };
}

/** The cached names of a directory that is delegated to this mount. */
export class DelegatedDirectory {
  /** Its mode applies to what is created in it. */
  readonly attributes: Attributes;
  /** Names up to this one, in their order, are known; null: all are, and all others are free. */
  #knownThrough: string | null = '';
  readonly #names = new Map<string, NameState>();
  /** Null if not all names are known, undefined since a change. */
  #entries: readonly ListedName[] | null | undefined;

  /** @param changed names that may have changed since `page` */
  constructor(attributes: Attributes, page: ListedPage, changed: Iterable<string> = []) {
    this.attributes = attributes;
    for (const name of changed) this.#names.set(name, 'unknown');
    this.learn(page);
  }

  get knownThrough(): string | null {
    return this.#knownThrough;
  }

  get count(): number {
    return this.#names.size;
  }

  stateOf(name: string): NameState {
    return this.#names.get(name) ?? (this.#knownThrough === null ? 'free' : 'unknown');
  }

  /** Sorted by name; null if not all names are known. */
  get entries(): readonly ListedName[] | null {
    if (this.#entries === undefined)
      this.#entries = this.#knownThrough === null ? entriesOf(this.#names) : null;
    return this.#entries;
  }

  /** Adds names. @param page those after `knownThrough`; own changes since the delegation are newer */
  learn({ entries, more }: ListedPage): void {
    for (const { name, attributes } of entries)
      if (!this.#names.has(name)) this.#names.set(name, namedInode(attributes));
    this.#knownThrough = more ? (entries.at(-1)?.name ?? this.#knownThrough) : null;
    this.#entries = undefined;
  }

  /** @param page all names, requested since the last own change */
  learnAll(page: ListedPage): void {
    this.#names.clear();
    this.learn(page);
  }

  set(name: string, state: NameState): void {
    if (state === 'free' && this.#knownThrough === null) this.#names.delete(name);
    else this.#names.set(name, state);
    this.#entries = undefined;
  }
}

function entriesOf(names: ReadonlyMap<string, NameState>): readonly ListedName[] | null {
  const entries: ListedName[] = [];
  for (const [name, state] of names) {
    if (state === 'free') continue;
    if (typeof state === 'string') return null;
    entries.push({ name, inode: state.inode, kind: state.kind });
  }
  return entries.sort((one, other) => namesCompare(one.name, other.name));
}

interface Delegation {
  readonly directory: DelegatedDirectory;
  /** Sequence number: answers that were requested earlier may be older than the delegation. */
  readonly begunAt: number;
  /** When all its names were last requested; the attributes of its files are valid from then on. */
  listedAt: number;
}

/** The directories that are delegated to this mount. Only own changes invalidate their cached names. */
export class DelegatedDirectories {
  readonly #world: World;
  readonly #ttlMs: number;
  readonly #isDelegated: (directory: number) => boolean;
  readonly #delegations = new BoundedMap<number, Delegation>(DIRECTORIES_MAX);
  /** Directories whose delegation is requested, with the names changed meanwhile. */
  readonly #requested = new Map<number, Set<string>>();
  readonly #linked = new Set<number>();
  readonly #sequencer: Sequencer<number | string>;
  readonly #idle = new Map<number, () => void>();

  constructor(world: World, ttlMs: number, isDelegated: (directory: number) => boolean) {
    this.#world = world;
    this.#ttlMs = ttlMs;
    this.#sequencer = new Sequencer(() => world.nowMs());
    this.#isDelegated = isDelegated;
  }

  request(): number {
    return this.#sequencer.request();
  }

  of(directory: number): DelegatedDirectory | undefined {
    return this.#current(directory)?.directory;
  }

  #current(directory: number): Delegation | undefined {
    const known = this.#delegations.get(directory);
    return known !== undefined && this.#isDelegated(directory) ? known : undefined;
  }

  stateOf(place: Place): NameState {
    if (this.#sequencer.changing(placeKey(place)) > 0) return 'unknown';
    return this.of(place.parent)?.stateOf(place.name) ?? 'unknown';
  }

  /** All names; null if not all are cached, or if their files' attributes are too old, which a listing renews. */
  listing(directory: number, countMax: number): readonly ListedName[] | null {
    const known = this.#current(directory);
    if (known === undefined || this.#ttlMs === 0 || this.#world.nowMs() - known.listedAt > this.#ttlMs)
      return null;
    const { count, entries } = known.directory;
    return count > countMax || this.isChanging(directory) ? null : entries;
  }

  isChanging(directory: number): boolean {
    return this.#sequencer.changing(directory) > 0;
  }

  /** Resolves when no name of the directory is being changed. One caller at a time. */
  async idle(directory: number): Promise<void> {
    if (this.isChanging(directory)) await new Promise<void>((idle) => this.#idle.set(directory, idle));
    this.#idle.delete(directory);
  }

  /** Names are unknown during their change, and after an error. @param after the new states of `places`, in order */
  async changing<Result>(
    places: readonly Place[],
    change: () => Promise<Result>,
    after: (result: Result) => readonly NameState[],
  ): Promise<Result> {
    for (const place of places) {
      this.#sequencer.begin(placeKey(place));
      this.#sequencer.begin(place.parent);
    }
    const begunAt = this.#sequencer.latest;
    let states: readonly NameState[] = [];
    try {
      const result = await change();
      states = after(result);
      return result;
    } finally {
      const isAlone = places.map((place) => this.#isAlone(placeKey(place), begunAt));
      for (const [index, place] of places.entries()) {
        this.#sequencer.end(placeKey(place));
        this.#sequencer.end(place.parent);
        if (!this.isChanging(place.parent)) this.#idle.get(place.parent)?.();
        this.changed(place, isAlone[index] === true ? (states[index] ?? 'unknown') : 'unknown');
      }
    }
  }

  /** If changes of a name overlap, the order in which the cluster executed them is unknown. */
  #isAlone(key: string, begunAt: number): boolean {
    return this.#sequencer.changing(key) === 1 && this.#sequencer.isUnchanged(begunAt, key);
  }

  /** Records the new state of a name that this mount has changed. */
  changed(place: Place, state: NameState): void {
    const { parent, name } = place;
    this.#sequencer.changed(placeKey(place));
    this.#sequencer.changed(parent);
    this.#requested.get(parent)?.add(name);
    const known = this.#delegations.get(parent)?.directory;
    known?.set(name, state);
    if (known !== undefined && known.count > NAMES_MAX) this.#delegations.delete(parent);
  }

  /** Caches an answer, unless the name has changed since its request. @param requestedAt sequence number of that */
  learnName(place: Place, state: NameState, requestedAt: number): void {
    const known = this.#current(place.parent);
    if (known === undefined || requestedAt < known.begunAt) return;
    if (this.#sequencer.isValid(requestedAt, placeKey(place))) known.directory.set(place.name, state);
  }

  learnAll(directory: number, page: ListedPage, requestedAt: number): void {
    const known = this.#current(directory);
    if (known === undefined || requestedAt < known.begunAt || page.entries.length > NAMES_MAX) return;
    if (!this.#sequencer.isValid(requestedAt, directory)) return;
    known.directory.learnAll(page);
    known.listedAt = requestedAt;
  }

  /** Called before the file gets another name, which cached link counts lack. */
  linked(inode: number): void {
    this.#linked.add(inode);
    if (this.#linked.size <= LINKED_MAX) return;
    this.#linked.clear();
    this.endAllDelegations();
  }

  hasOneName({ inode, kind, links }: NamedInode): boolean {
    return kind === 'directory' || (links === 1 && !this.#linked.has(inode));
  }

  /** Called before a delegation is requested: a name that changes before the answer is then unknown. */
  beginRequest(directory: number): void {
    this.#requested.set(directory, new Set());
  }

  endRequest(directory: number): void {
    this.#requested.delete(directory);
  }

  /** Caches the names of a new delegation. @param page its first names; names changed since its request are unknown */
  beginDelegation(attributes: Attributes, page: ListedPage): void {
    const { inode } = attributes;
    const directory = new DelegatedDirectory(attributes, page, this.#requested.get(inode));
    this.#delegations.set(inode, {
      directory,
      begunAt: this.#sequencer.request(),
      listedAt: Number.NEGATIVE_INFINITY,
    });
  }

  /** Whether nothing has ended the delegation since it was requested, so that its answer is current. */
  isRequested(directory: number): boolean {
    return this.#requested.has(directory);
  }

  /** Drops the directory's names, and voids the answer of a request for its delegation. */
  endDelegation(directory: number): void {
    this.#delegations.delete(directory);
    this.#requested.delete(directory);
  }

  endAllDelegations(): void {
    this.#delegations.clear();
    this.#requested.clear();
  }
}
