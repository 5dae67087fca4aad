import { BoundedMap } from '../../base/bounded-map.ts';
import { Sequencer } from '../../base/sequencer.ts';
import { laterNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Answered } from '../answered.ts';
import type { Attributes, ListedPage } from '../backend.ts';
import { KernelView } from '../kernel-view/kernel-view.ts';
import type { Place } from '../place.ts';
import { placeKey } from '../place.ts';
import { AttributeRecords, type Origin } from './attribute-records.ts';
import { DelegatedDirectories } from './delegated-directories.ts';
import { type CachedAnswer, RECORDS_MAX, RecordValidity } from './record-validity.ts';

export const ATTRIBUTE_AGE_MAX_MS = 1000;

interface NameRecord extends CachedAnswer {
  readonly inode: number;
  /** The kernel may cache the name, too. */
  readonly isCacheable: boolean;
  /** From a look-up, not from a listing or a change, and not used since. */
  readonly isLookedUp: boolean;
}

/**
 * Cached names and attributes. Those of directories answer all requests, as every path needs them; those of files only
 * if they come from a listing or an own change. The kernel caches an answer for the rest of its time, not for all of it
 * again. An answer that was requested before an own change is not cached after it, since it may be older.
 */
export class MetadataCache {
  readonly attributes: AttributeRecords;
  readonly delegations: DelegatedDirectories;
  readonly ttlMs: number;
  readonly kernel: KernelView;
  readonly #validity: RecordValidity;
  readonly #names = new BoundedMap<string, NameRecord>(RECORDS_MAX);
  readonly #sequencer: Sequencer<number | string>;

  /** @param ttlMs 0: nothing is cached here, because the backend caches, or with `strict` */
  constructor(
    world: World,
    ttlMs = ATTRIBUTE_AGE_MAX_MS,
    isDelegated: (directory: number) => boolean = () => false,
  ) {
    this.delegations = new DelegatedDirectories(world, ttlMs, isDelegated);
    const isKnown = (directory: number): boolean => this.delegations.of(directory) !== undefined;
    this.ttlMs = ttlMs;
    this.#validity = new RecordValidity(world, ttlMs, isKnown);
    this.#sequencer = new Sequencer(() => world.nowMs(), RECORDS_MAX);
    this.attributes = new AttributeRecords(this.#validity, this.#sequencer);
    this.kernel = new KernelView(world);
  }

  /** Called before a request. @returns a sequence number, for the caching of the answer */
  request(): number {
    return this.#sequencer.request();
  }

  entry(parent: number, name: string): Answered | undefined {
    const key = keyOf(parent, name);
    const record = this.#names.get(key);
    if (record === undefined || this.#validity.isExpired(record, parent)) return undefined;
    const attributes = this.attributes.of(record.inode);
    // Served from cache; no request was sent.
    if (attributes !== undefined && record.isLookedUp) this.#names.set(key, { ...record, isLookedUp: false });
    return attributes;
  }

  /** Whether no other client can have changed the name since it was cached. */
  isCertain({ parent, name }: Place): boolean {
    const record = this.#names.get(keyOf(parent, name));
    return record !== undefined && this.#validity.isDelegated(record, parent);
  }

  /** The answer of a look-up within the last 50 ms; undefined if the kernel may refer to the inode by another name. */
  lookedUp(inode: number): Answered | undefined {
    const recent = this.attributes.recentAnswer(inode);
    return recent !== undefined && this.kernel.names.isOnly(inode, recent.lookupKey)
      ? recent.attributes
      : undefined;
  }

  /** As `lookedUp`, for one open: the next one may come without a look-up, as through `/proc/self/fd`. */
  lookedUpToOpen(inode: number): Answered | undefined {
    const attributes = this.lookedUp(inode);
    if (attributes !== undefined) this.attributes.consume(inode);
    return attributes;
  }

  /** @returns the answer to a look-up of this name within the last 50 ms; undefined as in `lookedUp` */
  lookedUpAt(parent: number, name: string): Answered | undefined {
    const record = this.#names.get(keyOf(parent, name));
    if (record?.isLookedUp !== true || !this.#validity.isRecent(record)) return undefined;
    return this.lookedUp(record.inode);
  }

  /**
   * How long the kernel may cache the name, in milliseconds, in the answer being sent.
   * An open by a cached name needs a request of its own. So a file's name is not cached after its first look-up: its
   * open follows, and one request serves both. Nor is a file's with several names, of which an open would look up all.
   */
  nameValidMs(parent: number, name: string, inode: number): number {
    const place = { parent, name };
    const record = this.#names.get(keyOf(parent, name));
    const isCacheable = record?.inode === inode && record.isCacheable && this.attributes.hasOneName(inode);
    const leftMs = isCacheable ? this.#validity.leftMs(record, parent) : 0;
    // The kernel may open an inode that was answered from the cache, even after its validity.
    const isRemembered = record?.inode === inode && !(record.isLookedUp && this.#validity.isRecent(record));
    if (isCacheable || isRemembered) this.kernel.names.answered(place, inode, leftMs);
    else this.kernel.names.answeredUncached(place);
    return leftMs;
  }

  /** Keys of the names by which the kernel may have found the inode. */
  namesOf(inode: number): string[] {
    const key = this.attributes.lookupKeyOf(inode);
    return [...this.kernel.names.of(inode).map(placeKey), ...(key === undefined ? [] : [key])];
  }

  isNameCached(inode: number): boolean {
    return this.kernel.names.of(inode).length > 0;
  }

  /** Caches an answer about a name, unless a newer one, or an own change after the request, is known. */
  learnEntry(
    parent: number,
    name: string,
    attributes: Attributes,
    requestedAt: number,
    origin: Omit<Origin, 'lookupKey'> = { prefetched: false },
  ): Answered {
    const key = keyOf(parent, name);
    const before = this.#names.get(key);
    const validity = { requestedAt, asOf: requestedAt };
    const isPast = requestedAt < (before?.validity.asOf ?? 0);
    if (isPast || !this.#sequencer.isValid(requestedAt, key)) return { ...attributes, validity };
    const { prefetched, isUncertain = false } = origin;
    const isLookedUp = !prefetched && !isUncertain;
    const answered = this.attributes.learn(attributes, requestedAt, {
      ...{ prefetched, isUncertain },
      lookupKey: isLookedUp ? key : undefined,
    });
    const { inode, kind } = attributes;
    const wasValid = before?.inode === inode && this.#validity.leftMs(before) > 0;
    const isCacheable = prefetched || kind !== 'file' || wasValid;
    this.#names.set(key, { inode, validity, answeredMs: this.#validity.nowMs(), isCacheable, isLookedUp });
    return answered;
  }

  learnPage(parent: number, { entries }: ListedPage, requestedAt: number): void {
    for (const { name, attributes } of entries) {
      // The primary did not answer in time: these are the catalog's attributes.
      const origin = { prefetched: !attributes.live, isUncertain: attributes.live };
      this.learnEntry(parent, name, attributes, requestedAt, origin);
    }
  }

  /** The directory is delegated from now on. @param page its first names, as of then */
  delegated(attributes: Attributes, page: ListedPage): void {
    this.delegations.beginDelegation(attributes, page);
    this.#validity.delegated(attributes.inode, this.#sequencer.request());
  }

  /** Called before a name changes: voids pending answers about it and its directory. */
  changingName(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#names.delete(key);
    this.#sequencer.changed(key);
    this.#sequencer.changed(parent);
  }

  /** This mount has created or linked the name: updates its directory. @param since sequence number from before it */
  nameAdded(parent: number, name: string, attributes: Attributes, since: number): void {
    this.changingName(parent, name);
    const directories = attributes.kind === 'directory' ? 1 : 0;
    this.attributes.namesChanged(parent, attributes.changedNs, directories, since);
  }

  /** The cluster has creates or unlinks of this mount. @param atNs the directory's new times; null if unknown */
  directoryChanged(directory: number, atNs: string | null): void {
    this.attributes.namesChanged(directory, atNs);
  }

  /**
   * A name was removed here. @param atNs the directory's new times; null if unknown
   * @param isPending the cluster has not executed it: the times are estimates, and certainly newer than before
   */
  removed(parent: number, name: string, inode: number, atNs: string | null, isPending = false): void {
    this.#dropName(parent, name, inode);
    const directory = this.attributes.lastOf(parent);
    if (!isPending || atNs === null || directory === undefined) {
      this.directoryChanged(parent, atNs);
      return;
    }
    const nextNs = BigInt(directory.changedNs) + 1n;
    this.directoryChanged(parent, laterNs(String(nextNs), atNs));
  }

  /** As `removed`, for an empty directory, which its parent counts. @param since as of `nameAdded` */
  removedDirectory(parent: number, name: string, inode: number, atNs: string, since: number): void {
    this.#dropName(parent, name, inode);
    this.attributes.namesChanged(parent, atNs, -1, since);
  }

  #dropName(parent: number, name: string, inode: number): void {
    this.kernel.names.removed({ parent, name });
    this.changingName(parent, name);
    this.attributes.drop(inode);
  }

  /**
   * After a rename of an inode that is no directory: caches its new name, and keeps its attributes except for ctime.
   * @param atNs the new times of both directories
   * @param since a sequence number from after `changingName` and before the rename
   */
  renamed(from: Place, to: Place, inode: number, atNs: string, since: number): void {
    const isPast = [from, to].some((place) => !this.#sequencer.isValid(since, placeKey(place)));
    for (const { parent, name } of [from, to]) {
      this.changingName(parent, name);
      this.directoryChanged(parent, atNs);
    }
    if (!this.attributes.renamed(inode, atNs, isPast)) return;
    const learned = { validity: { requestedAt: since, asOf: since }, answeredMs: this.#validity.nowMs() };
    this.#names.set(placeKey(to), { inode, ...learned, isCacheable: true, isLookedUp: false });
  }

  inodeOf(parent: number, name: string): number | undefined {
    return this.#names.get(keyOf(parent, name))?.inode;
  }

  /** A request showed that the name does not refer to the inode any more. */
  dropStaleName({ parent, name }: Place, inode: number): void {
    this.#names.delete(keyOf(parent, name));
    this.attributes.drop(inode);
  }

  /** Drops what is cached of a name and its directory, after a change whose outcome is unknown. */
  forgetEntry(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#names.delete(key);
    this.#sequencer.changed(key);
    this.attributes.drop(parent);
  }

  /** Voids all pending answers, after a change of unknown inodes. */
  voidPendingAnswers(): void {
    this.#sequencer.changedAll();
  }
}

function keyOf(parent: number, name: string): string {
  return placeKey({ parent, name });
}
