import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import type { Attributes, DelegationBackend, FileSystemBackend, ListedPage } from '../backend.ts';
import type { Log } from '../transport.ts';
import type { MetadataCache } from './cache.ts';
import { type DelegatedDirectory, NAMES_MAX } from './delegated-directories.ts';

/** A recalled directory is not requested again for this time: another client creates names in it. */
const RECALLED_MS = 5_000;
const REFUSED_MS = 250;
const NAMES_COUNT = 1_000;
const DIRECTORIES_MAX = 1_000;
const EMPTY: ListedPage = { entries: [], more: false };

export interface DelegationRequestEvents {
  listed(page: ListedPage, requestedAt: number): void;
  request(): number;
  /** Sends acknowledged changes of the directory. Resolves when the cluster has them. */
  flush(directory: number): Promise<void>;
}

export class DelegationRequests {
  readonly #backend: Pick<FileSystemBackend, 'attributes' | 'list' | 'isCatalogUnavailable'>;
  readonly #delegation: Pick<DelegationBackend, 'delegate' | 'isDelegated'>;
  readonly #cache: MetadataCache;
  readonly #log: Log;
  readonly #events: DelegationRequestEvents;
  readonly #world: World;
  readonly #notBeforeMs = new BoundedMap<number, number>(DIRECTORIES_MAX);
  readonly #underWay = new Map<number, Promise<void>>();
  readonly #learning = new Set<number>();

  constructor(
    world: World,
    backend: Pick<FileSystemBackend, 'attributes' | 'list' | 'isCatalogUnavailable'>,
    delegation: Pick<DelegationBackend, 'delegate' | 'isDelegated'>,
    cache: MetadataCache,
    log: Log,
    events: DelegationRequestEvents,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#delegation = delegation;
    this.#cache = cache;
    this.#log = log;
    this.#events = events;
  }

  /** The cluster delegates a new directory, which is empty, to the mount that creates it. */
  created(attributes: Attributes): void {
    if (this.#delegation.isDelegated(attributes.inode)) this.#cache.delegated(attributes, EMPTY);
  }

  /**
   * The directory was recalled: for another client, unless this mount is changing a name. After the end of a session,
   * its own command, which does not identify the mount, can recall the directory.
   */
  recalled(directory: number): void {
    const { delegations } = this.#cache;
    delegations.endDelegation(directory);
    if (!delegations.isChanging(directory)) this.#wait(directory, RECALLED_MS);
  }

  #wait(directory: number, forMs: number): void {
    const notBeforeMs = Math.max(this.#world.nowMs() + forMs, this.#notBeforeMs.get(directory) ?? 0);
    this.#notBeforeMs.set(directory, notBeforeMs);
  }

  /** Resolves when a request under way is answered. Changes of names wait for it: else it might never be granted. */
  async requestEnded(directory: number): Promise<void> {
    await this.#underWay.get(directory);
  }

  /** Requests the directory's delegation, unless that was just refused, or recalled for another client. */
  async send(directory: number): Promise<void> {
    const isTooSoon = this.#world.nowMs() < (this.#notBeforeMs.get(directory) ?? 0);
    if (isTooSoon || this.#underWay.has(directory) || this.#backend.isCatalogUnavailable()) return;
    const { delegations } = this.#cache;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#underWay.set(directory, promise);
    delegations.beginRequest(directory);
    try {
      await delegations.idle(directory);
      // Pending changes may be from before a recall, or before the end of the session.
      await this.#events.flush(directory);
      const requestedAt = this.#events.request();
      const page = await this.#delegation.delegate(directory, NAMES_COUNT);
      if (page === null) {
        this.#wait(directory, REFUSED_MS);
        return;
      }
      // Requested after the delegation, so that no other client can change them any more.
      const attributes = await this.#backend.attributes(directory);
      if (!this.#delegation.isDelegated(directory) || !delegations.isRequested(directory)) return;
      this.#events.listed(page, requestedAt);
      this.#cache.delegated(attributes, page);
    } catch (error) {
      this.#log('debug', 'a directory is not delegated', { directory, error: String(error) });
    } finally {
      delegations.endRequest(directory);
      this.#underWay.delete(directory);
      resolve();
    }
  }

  /** Requests more names of a delegated directory, unless all are known. */
  async learnMore(directory: DelegatedDirectory): Promise<void> {
    const { knownThrough: after, attributes, count } = directory;
    const { inode } = attributes;
    if (after === null || count >= NAMES_MAX || this.#learning.has(inode)) return;
    this.#learning.add(inode);
    try {
      const requestedAt = this.#events.request();
      const page = await this.#backend.list(inode, after, NAMES_COUNT);
      this.#events.listed(page, requestedAt);
      directory.learn(page);
    } catch (error) {
      this.#log('debug', 'names are not known', { directory: inode, error: String(error) });
    } finally {
      this.#learning.delete(inode);
    }
  }
}
