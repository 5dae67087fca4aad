import assert from 'node:assert/strict';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Fence } from '../../client/cluster/delegations.ts';
import type {
  AttributeChanges,
  Attributes,
  CreateOutcome,
  DelegationBackend,
  FencedName,
  FileSystemBackend,
  NewFile,
  UnlinkOutcome,
} from '../../fuse/backend.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import type { PendingState } from '../../fuse/pending/directory-ops.ts';
import { PendingOps } from '../../fuse/pending/pending-ops.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { MemoryBackend } from './memory-backend.ts';

/** The outcome of a request that creates files with contents. */
export type Fate = 'born' | 'refused' | 'unborn' | 'lost-before' | 'lost-after';

/** How long each delegation is still valid, at any time. */
const DELEGATED_MS = 5_000;

/**
 * Creation with contents and delegations of a cluster in memory: each requested directory is delegated until the test
 * recalls it.
 */
export class MemoryBirths implements DelegationBackend {
  readonly #backend: MemoryBackend;
  readonly #delegated = new Set<number>();
  #events: Parameters<DelegationBackend['listen']>[0] = {
    recalled: async () => undefined,
    ended: () => undefined,
    flushed: async () => undefined,
  };
  /**
   * The cluster's generation of each delegation: a recalled directory stays delegated until the client has returned
   * it.
   */
  readonly #fenced = new Map<number, number>();
  #generation = 0;
  /** The number of calls that change names: meanwhile nothing is delegated. */
  #changing = 0;
  /** The number of requests for delegations, and of delegations. */
  readonly asked = { count: 0, delegated: 0 };
  /** The number of files in each request that creates with contents. */
  readonly requests: number[] = [];
  fate: Fate = 'born';
  /** The names in each request of unlinks. */
  readonly removals: string[][] = [];
  /** The outcome of requests of unlinks; the `lost` ones apply to the next request only. */
  removalFate: 'removed' | 'refused' | 'lost-before' | 'lost-after' = 'removed';
  /** Contents of files that were created exclusively are accepted, too. */
  takesNamed = false;
  isConditional = true;
  /** Changes of a new file by other clients recall its directory. */
  isWatched = true;
  /** The next change of attributes is executed and not answered. */
  changesLost = false;
  /** Changes of attributes fail before they are executed. */
  changesFail = false;
  /** The catalog of the volume that all directories have become parts of; null while none has. */
  movedTo: CatalogNumber | null = null;
  /** That catalog's reserved numbers. */
  readonly #numbersThere = new Set<number>();
  /** Requests are executed after this. */
  held: Promise<void> = Promise.resolve();

  constructor(backend: MemoryBackend) {
    this.#backend = backend;
  }

  /** The memory's own calls, as an object that others can extend; new directories are delegated at once. */
  get backend(): FileSystemBackend {
    const memory = this.#backend;
    const names = Object.getOwnPropertyNames(Object.getPrototypeOf(memory)) as Exclude<
      keyof FileSystemBackend,
      'findsNumbers' | 'caches'
    >[];
    const calls = Object.fromEntries(
      names.map((name) => [name, (memory[name] as () => unknown).bind?.(memory)]),
    );
    return {
      ...(calls as unknown as FileSystemBackend),
      findsNumbers: false,
      caches: false,
      createFile: async (...made) => {
        this.#changing++;
        try {
          return await memory.createFile(...made);
        } finally {
          this.#changing--;
        }
      },
      makeDirectory: async (...made) => {
        const attributes = await memory.makeDirectory(...made);
        this.#delegate(attributes.inode);
        return attributes;
      },
    };
  }

  /** @returns the state that pending operations share with the file system above them */
  state(world: World, ttlMs?: number): PendingState {
    const cache = new MetadataCache(world, ttlMs, (directory) => this.isDelegated(directory));
    return { cache, pending: new PendingOps(world) };
  }

  async recall(directory: number): Promise<void> {
    this.#delegated.delete(directory);
    await this.#events.recalled([directory]);
    this.#fenced.delete(directory);
  }

  /** The cache session has ended, and its timer has not fired yet. */
  expire(): void {
    this.#delegated.clear();
  }

  end(): void {
    this.#delegated.clear();
    this.#fenced.clear();
    this.#events.ended();
  }

  listen(events: Parameters<DelegationBackend['listen']>[0]): void {
    this.#events = events;
  }

  isDelegated(directory: number): boolean {
    return this.#delegated.has(directory);
  }

  delegatedMs(directory: number): number {
    return this.isDelegated(directory) ? DELEGATED_MS : 0;
  }

  markUsed(): void {}

  async delegate(directory: number, countMax: number) {
    this.asked.count++;
    if (this.#changing > 0) return null;
    this.asked.delegated++;
    this.#delegate(directory);
    return this.#backend.list(directory, '', countMax);
  }

  fenceOf(directory: number): Fence | null {
    const generation = this.#delegated.has(directory) ? this.#fenced.get(directory) : undefined;
    return generation === undefined ? null : { client: 1, session: 1, inode: directory, generation };
  }

  #delegate(directory: number): void {
    this.#delegated.add(directory);
    this.#fenced.set(directory, ++this.#generation);
  }

  async reserve(count: number) {
    const named = this.takesNamed ? { named: true as const } : {};
    const first = this.#backend.reserve(count);
    return { first, count, server: 's1', untilMs: Number.POSITIVE_INFINITY, ...named };
  }

  reserving() {
    return { server: 's1', catalog: 0 };
  }

  async createWithContents(_server: string, files: readonly NewFile[]): Promise<readonly CreateOutcome[]> {
    this.requests.push(files.length);
    await this.held;
    this.#refuseMoved();
    const { fate } = this;
    if (fate === 'lost-before') throw new ServiceError('unknown', 'Lost by intent');
    if (fate === 'unborn') return files.map(() => ({ kind: 'not-created' }));
    const refused = new ServiceError('quota-exceeded', 'Refused by intent');
    if (fate === 'refused') return files.map(() => ({ kind: 'refused', error: refused }));
    const outcomes: CreateOutcome[] = [];
    for (const file of files) {
      try {
        const attributes =
          file.hasEntry === true
            ? await this.#backend.fillNumbered(file)
            : await this.#backend.makeNumbered(file, true);
        if (attributes === null) {
          outcomes.push({ kind: 'not-created' });
          continue;
        }
        const { changedNs } = await this.#backend.attributes(file.parent);
        outcomes.push({ kind: 'created', attributes, namedNs: changedNs });
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        outcomes.push({ kind: 'refused', error });
      }
    }
    if (fate === 'lost-after') throw new ServiceError('unknown', 'Lost by intent');
    return outcomes;
  }

  async createAt(catalog: CatalogNumber, file: NewFile): ReturnType<DelegationBackend['createAt']> {
    assert.equal(catalog, this.movedTo);
    if (!this.#numbersThere.has(file.inode))
      throw new ServiceError('precondition-failed', `Inode ${file.inode} is not reserved`);
    const attributes = await this.#backend.makeNumbered(file, false);
    return { attributes, created: true, namedNs: null, isConditional: true, generation: null };
  }

  async reserveAt(catalog: CatalogNumber): Promise<number> {
    assert.equal(catalog, this.movedTo);
    const number = this.#backend.reserve(1);
    this.#numbersThere.add(number);
    return number;
  }

  #refuseMoved(): void {
    const { movedTo } = this;
    if (movedTo !== null)
      throw new ServiceError('not-found', 'Moved by intent', { elsewhere: true, movedTo });
  }

  async create(file: NewFile) {
    this.#refuseMoved();
    const created = this.#backend.inodeAt(file.parent, file.name) !== file.inode;
    const attributes = await this.#backend.makeNumbered(file, false);
    const { changedNs: namedNs } = await this.#backend.attributes(file.parent);
    const generation = this.isWatched ? (this.fenceOf(file.parent)?.generation ?? null) : null;
    return { attributes, created, namedNs, isConditional: this.isConditional, generation };
  }

  async changeAttributes(inode: number, { unchangedNs, ...changes }: AttributeChanges): Promise<Attributes> {
    if (this.changesFail) throw new ServiceError('unknown', 'Lost by intent');
    const { changedNs } = await this.#backend.attributes(inode);
    if (unchangedNs !== changedNs) throw new ServiceError('precondition-failed', 'Changed since');
    const attributes = await this.#backend.setAttributes(inode, changes);
    const { changesLost } = this;
    this.changesLost = false;
    if (changesLost) throw new ServiceError('unknown', 'Lost by intent');
    return attributes;
  }

  async unlink(names: readonly FencedName[], { signal }: Parameters<DelegationBackend['unlink']>[1]) {
    this.removals.push(names.map(({ name }) => name));
    await Promise.race([this.held, aborted(signal)]);
    const fate = this.removalFate;
    const lost = new ServiceError('unknown', 'Lost by intent');
    if (fate.startsWith('lost')) this.removalFate = 'removed';
    if (fate === 'lost-before') throw lost;
    const outcomes: UnlinkOutcome[] = [];
    let atNs: string | null = null;
    const isHeld = names.every(({ fence }) => this.#fenced.get(fence.inode) === fence.generation);
    if (!isHeld) throw new ServiceError('fence-lost', 'The delegation is over');
    for (const { parent, name, inode, contents } of names) {
      const found = this.#backend.inodeAt(parent, name);
      if (fate === 'refused')
        outcomes.push({ kind: 'refused', error: new ServiceError('forbidden', 'Refused by intent') });
      else if (found !== inode) outcomes.push({ kind: 'absent' });
      else if (contentVersionCompare((await this.#backend.attributes(inode)).contents, contents) !== 0)
        outcomes.push({ kind: 'refused', error: new ServiceError('fence-lost', 'It was written since') });
      else {
        atNs = (await this.#backend.unlink(parent, name)).atNs;
        outcomes.push({ kind: 'removed' });
      }
    }
    if (fate === 'lost-after') throw lost;
    return { outcomes, atNs };
  }

  async stop(): Promise<void> {}
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}
