import { BoundedMap } from '../../base/bounded-map.ts';
import { Sequencer } from '../../base/sequencer.ts';
import { laterNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Answered } from '../answered.ts';
import type { Attributes, ListedPage } from '../backend.ts';
import { KernelView } from '../kernel-view/kernel-view.ts';
import type { Place } from '../place.ts';
import { placeKey } from '../place.ts';
import { Ages, type Learned, RECORDS_MAX } from './ages.ts';
import { AttributeRecords, type Origin } from './attribute-records.ts';
import { DelegatedDirectories } from './delegated-directories.ts';

/** How long names and attributes are valid after their request, where the mount does not say. */
export const ATTRIBUTE_AGE_MAX_MS = 1000;

interface NameRecord extends Learned {
  readonly inode: number;
  /** The kernel may cache the name. */
  readonly isKept: boolean;
  /** It was looked up by itself. */
  readonly isAsked: boolean;
}

/**
 * Names, attributes and listings that were learned. Directories answer requests however they were learned, because every path
 * leads through them; files only from a listing or from an own change. The kernel caches each answer for the rest of its time:
 * cached here and there for the whole of it, it would be twice as old.
 *
 * An answer that was requested before an own change may be older than the change, and is not learned after it.
 */
export class MetadataCache {
  readonly attributes: AttributeRecords;
  readonly delegations: DelegatedDirectories;
  /** How long records are valid after their request; 0: not at all. */
  readonly ttlMs: number;
  readonly kernel: KernelView;
  readonly #ages: Ages;
  /** By place (`placeKey`). */
  readonly #names = new BoundedMap<string, NameRecord>(RECORDS_MAX);
  /** Own changes, by inode and by place. Sequence numbers are milliseconds. */
  readonly #sequencer: Sequencer<number | string>;

  /**
   * @param ttlMs how long records are valid after their request; 0: not here, because the backend caches or nothing shall
   * @param isDelegated whether the directory is delegated to this mount now
   */
  constructor(
    world: World,
    ttlMs = ATTRIBUTE_AGE_MAX_MS,
    isDelegated: (directory: number) => boolean = () => false,
  ) {
    this.delegations = new DelegatedDirectories(world, ttlMs, isDelegated);
    const isKnown = (directory: number): boolean => this.delegations.of(directory) !== undefined;
    this.ttlMs = ttlMs;
    this.#ages = new Ages(world, ttlMs, isKnown);
    this.#sequencer = new Sequencer(() => world.nowMs(), RECORDS_MAX);
    this.attributes = new AttributeRecords(this.#ages, this.#sequencer);
    this.kernel = new KernelView(world);
  }

  /** @see Sequencer.request */
  request(): number {
    return this.#sequencer.request();
  }

  entry(parent: number, name: string): Answered | undefined {
    const key = keyOf(parent, name);
    const record = this.#names.get(key);
    if (record === undefined || this.#ages.isOld(record, parent)) return undefined;
    const attributes = this.attributes.of(record.inode);
    // Served from the cache; no request was sent.
    if (attributes !== undefined && record.isAsked) this.#names.set(key, { ...record, isAsked: false });
    return attributes;
  }

  /** Whether no other client can have given the name to another inode since it was learned. */
  isCertain({ parent, name }: Place): boolean {
    const record = this.#names.get(keyOf(parent, name));
    return record !== undefined && this.#ages.isDelegated(record, parent);
  }

  /** What was looked up this very moment; undefined where the kernel may mean the inode by another name. */
  lookedUp(inode: number): Answered | undefined {
    const asked = this.attributes.justAsked(inode);
    return asked !== undefined && this.kernel.names.isOnly(inode, asked.at) ? asked.attributes : undefined;
  }

  /** As `lookedUp`, for the open that follows; the next open may come without a look-up, as by way of `/proc/self/fd`. */
  lookedUpToOpen(inode: number): Answered | undefined {
    const attributes = this.lookedUp(inode);
    if (attributes !== undefined) this.attributes.used(inode);
    return attributes;
  }

  /** As `lookedUp`, where that was by this name. */
  lookedUpAt(parent: number, name: string): Answered | undefined {
    const record = this.#names.get(keyOf(parent, name));
    if (record?.isAsked !== true || !this.#ages.isRecent(record)) return undefined;
    return this.lookedUp(record.inode);
  }

  /**
   * How long the kernel may cache that the name is this inode's, in milliseconds; it is about to be answered so.
   *
   * After that an open comes without a look-up, and has to ask by itself. So a file's name that was looked up by itself is not
   * cached the first time: its open is about to follow, and one request serves both. Nor is a name of a file that has several,
   * all of which each open would have to look up.
   */
  entryLeftMs(parent: number, name: string, inode: number): number {
    const place = { parent, name };
    const record = this.#names.get(keyOf(parent, name));
    const isKept = record?.inode === inode && record.isKept && this.attributes.hasOneName(inode);
    const leftMs = isKept ? this.#ages.leftMs(record, parent) : 0;
    // What is answered from the cache may be opened right now, also if it is valid no longer.
    const isRemembered = record?.inode === inode && !(record.isAsked && this.#ages.isRecent(record));
    if (isKept || isRemembered) this.kernel.names.answered(place, inode, leftMs);
    else this.kernel.names.notCached(place);
    return leftMs;
  }

  /** @returns keys (`placeKey`) of the names by which the kernel may have come to the inode */
  namesOf(inode: number): string[] {
    const asked = this.attributes.askedAt(inode);
    return [...this.kernel.names.of(inode).map(placeKey), ...(asked === undefined ? [] : [asked])];
  }

  /** Whether the kernel may open the inode by a cached name. */
  isNameCached(inode: number): boolean {
    return this.kernel.names.of(inode).length > 0;
  }

  /**
   * @param requestedAt sequence number of the request
   * @returns the attributes with their validity
   */
  learnEntry(
    parent: number,
    name: string,
    attributes: Attributes,
    requestedAt: number,
    origin: Omit<Origin, 'askedAt'> = { prefetched: false },
  ): Answered {
    const key = keyOf(parent, name);
    const before = this.#names.get(key);
    const validity = { requestedAt, asOf: requestedAt };
    const isPast = requestedAt < (before?.validity.asOf ?? 0);
    if (isPast || !this.#sequencer.isValid(requestedAt, key)) return { ...attributes, validity };
    const { prefetched, isUncertain = false } = origin;
    const isAsked = !prefetched && !isUncertain;
    const answered = this.attributes.learn(attributes, requestedAt, {
      ...{ prefetched, isUncertain },
      askedAt: isAsked ? key : undefined,
    });
    const { inode, kind } = attributes;
    const wasValid = before?.inode === inode && this.#ages.leftMs(before) > 0;
    const isKept = prefetched || kind !== 'file' || wasValid;
    this.#names.set(key, { inode, validity, answeredMs: this.#ages.nowMs(), isKept, isAsked });
    return answered;
  }

  learnPage(parent: number, { entries }: ListedPage, requestedAt: number): void {
    for (const { name, attributes } of entries) {
      // Where a live file's primary has not answered in time, a listing has what the catalog knows.
      const origin = { prefetched: !attributes.live, isUncertain: attributes.live };
      this.learnEntry(parent, name, attributes, requestedAt, origin);
    }
  }

  /**
   * From now on, as long as it is delegated, no other client changes the directory.
   *
   * @param page its first names, as they were when it was delegated
   */
  delegated(attributes: Attributes, page: ListedPage): void {
    this.delegations.begin(attributes, page);
    this.#ages.delegated(attributes.inode, this.#sequencer.request());
  }

  /** A name is about to change: answers about it and its directory that were requested before are void. */
  changingName(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#names.delete(key);
    this.#sequencer.changed(key);
    this.#sequencer.changed(parent);
  }

  /**
   * This mount has created the name, or linked it.
   *
   * @param attributes as the change was answered
   * @param since a sequence number from before it began
   */
  made(parent: number, name: string, attributes: Attributes, since: number): void {
    this.changingName(parent, name);
    const directories = attributes.kind === 'directory' ? 1 : 0;
    this.attributes.namesChanged(parent, attributes.changedNs, directories, since);
  }

  /**
   * The cluster has what this mount created or removed in a directory.
   *
   * @param atNs the directory's times since; null where they are unknown
   */
  named(directory: number, atNs: string | null): void {
    this.attributes.namesChanged(directory, atNs);
  }

  /**
   * This mount has unlinked a name, after `changingName`.
   *
   * @param inode that had the name
   * @param atNs the directory's times since; null where they are unknown
   * @param behind the cluster has not executed it: the times are estimates, and certainly others than before
   */
  removed(parent: number, name: string, inode: number, atNs: string | null, behind = false): void {
    this.#gone(parent, name, inode);
    const directory = this.attributes.lastOf(parent);
    if (!behind || atNs === null || directory === undefined) {
      this.named(parent, atNs);
      return;
    }
    const nextNs = BigInt(directory.changedNs) + 1n;
    this.named(parent, laterNs(String(nextNs), atNs));
  }

  /** As `removed`, of an empty directory, which its parent has counted. @param since as of `made` */
  removedDirectory(parent: number, name: string, inode: number, atNs: string, since: number): void {
    this.#gone(parent, name, inode);
    this.attributes.namesChanged(parent, atNs, -1, since);
  }

  #gone(parent: number, name: string, inode: number): void {
    this.kernel.names.gone({ parent, name });
    this.changingName(parent, name);
    this.attributes.drop(inode);
  }

  /**
   * This mount has renamed what is no directory, after `changingName`. It keeps its attributes but for ctime; its new name is
   * learned.
   *
   * @param atNs the times of both directories since
   * @param since a sequence number from after `changingName` and before the rename
   */
  renamed(from: Place, to: Place, inode: number, atNs: string, since: number): void {
    const isPast = [from, to].some((place) => !this.#sequencer.isValid(since, placeKey(place)));
    for (const { parent, name } of [from, to]) {
      this.changingName(parent, name);
      this.named(parent, atNs);
    }
    if (!this.attributes.renamed(inode, atNs, isPast)) return;
    const learned = { validity: { requestedAt: since, asOf: since }, answeredMs: this.#ages.nowMs() };
    this.#names.set(placeKey(to), { inode, ...learned, isKept: true, isAsked: false });
  }

  /** @returns the inode that had the name when it was learned last */
  inodeOf(parent: number, name: string): number | undefined {
    return this.#names.get(keyOf(parent, name))?.inode;
  }

  /** The inode turned out to have lost the name. */
  lost({ parent, name }: Place, inode: number): void {
    this.#names.delete(keyOf(parent, name));
    this.attributes.drop(inode);
  }

  /** The name, and with it its directory, changed. */
  forgetEntry(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#names.delete(key);
    this.#sequencer.changed(key);
    this.attributes.drop(parent);
  }

  /** Something changed, and it is unknown what: answers that were requested before are void. */
  forgetAsked(): void {
    this.#sequencer.changedAll();
  }
}

function keyOf(parent: number, name: string): string {
  return placeKey({ parent, name });
}
