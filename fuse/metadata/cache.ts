import { Sequencer } from '../../base/sequencer.ts';
import { isLater, laterNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { Attributes, ListedPage } from '../backend.ts';
import { KeptNames } from '../kernel-view/kept-names.ts';
import { placeKey } from '../place.ts';
import type { Answered, NamePlace, Validity } from '../transport.ts';
import { KnownListings } from './known-listings.ts';

/** Names and attributes are believed for this long after they were heard, where nobody chose otherwise. */
export const ATTRIBUTE_AGE_MAX_MS = 1000;

/** The kernel opens a file right after it looked its name up: one question to the cluster serves both. */
const LOOKUP_AGE_MAX_MS = 50;
const COUNT_MAX = 20_000;

/** When a name or attributes were learned. */
interface Learned {
  readonly validity: Validity;
  readonly answeredMs: number;
}

interface Known extends Learned {
  readonly attributes: Answered;
  /** Learned from a listing or an own change: the next requests are answered from here. */
  readonly prefetched: boolean;
  /** The only name that was looked up for them, as a key of `#entries`. */
  readonly askedAt: string | undefined;
  /** In a listing, of a live file whose primary has not answered in time: as the catalog knows it. */
  readonly isDoubtful: boolean;
}

interface Entry extends Learned {
  readonly inode: number;
  /** The kernel may keep the name. */
  readonly isKept: boolean;
  /** The cluster was asked for the name, and for no other. */
  readonly isAsked: boolean;
}

/**
 * What was heard of names and inodes a moment ago. Directories answer questions whenever they were heard of, because
 * every path leads through them; files only from a listing or from our own change. Of all, the kernel is told for how long
 * it may still believe them: what is believed twice would be as old as both together.
 *
 * An answer that was requested before an own change may be older than the change: after a `forget` no such answer is kept,
 * after a `drop` none about that inode, after `made` none about that name or its directory.
 */
export class MetadataCache {
  readonly #world: World;
  readonly #ageMaxMs: number;
  readonly #isDelegated: (directory: number) => boolean;
  /** By directory, when it was delegated: what was requested from then on stays valid. */
  readonly #delegatedFrom = new Map<number, number>();
  readonly #entries = new Map<string, Entry>();
  readonly #known = new Map<number, Known>();
  /** What was heard of files before they were written here, and since then not again. */
  readonly #beforeWrites = new Map<number, Known>();
  /** Own changes, by inode and by name (a key of `#entries`). Sequence numbers are milliseconds. */
  readonly #sequencer: Sequencer<number | string>;
  /** Whole listings, where no other client changes the directory. */
  readonly listings: KnownListings;
  /** Names by which the kernel may open an inode without a look-up. */
  readonly keptNames: KeptNames;

  /**
   * @param ageMaxMs for how long what was heard is believed; 0 where whoever answers knows better what may be believed,
   *   or nothing shall be
   * @param isDelegated whether no other client changes the directory now
   */
  constructor(
    world: World,
    ageMaxMs = ATTRIBUTE_AGE_MAX_MS,
    isDelegated: (directory: number) => boolean = () => false,
  ) {
    this.#world = world;
    this.#sequencer = new Sequencer(() => world.nowMs(), COUNT_MAX);
    this.#isDelegated = isDelegated;
    this.listings = new KnownListings(world, ageMaxMs, isDelegated);
    this.keptNames = new KeptNames(world);
    this.#ageMaxMs = ageMaxMs;
  }

  /** @see Sequencer.request */
  request(): number {
    return this.#sequencer.request();
  }

  entry(parent: number, name: string): Answered | undefined {
    const key = keyOf(parent, name);
    const entry = this.#entries.get(key);
    if (entry === undefined || this.#isOld(entry, this.#ageMaxMs, parent)) return undefined;
    const attributes = this.attributes(entry.inode);
    // Whoever is told this has not had the cluster asked.
    if (attributes !== undefined && entry.isAsked) this.#entries.set(key, { ...entry, isAsked: false });
    return attributes;
  }

  /** Whether nobody else has been able to change what the name stands for since it was asked for. */
  isCertain({ parent, name }: NamePlace): boolean {
    const entry = this.#entries.get(keyOf(parent, name));
    return entry !== undefined && this.#wasDelegated(entry, parent);
  }

  attributes(inode: number): Answered | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || !known.prefetched) return undefined;
    return this.#isOld(known, this.#ageMaxMs, inode) ? undefined : known.attributes;
  }

  /** What was heard last, by whatever question; of a file that is being written here, to be put together with what is known of that. */
  heardLast(inode: number): Answered | undefined {
    const known = this.#known.get(inode) ?? this.#beforeWrites.get(inode);
    if (known === undefined || known.isDoubtful) return undefined;
    return this.#isOld(known, this.#ageMaxMs, inode) ? undefined : known.attributes;
  }

  /** Whether it was heard a moment ago, by whatever question, that the inode has no extended attributes. */
  hasNoXattrs(inode: number): boolean {
    return this.#hasNoXattrs(inode, this.#ageMaxMs);
  }

  /** The same of access control lists and capabilities: the kernel asks for them right after it asked for the attributes. */
  hasNoAcls(inode: number): boolean {
    return this.#hasNoXattrs(inode, Math.max(this.#ageMaxMs, LOOKUP_AGE_MAX_MS));
  }

  /** What a lookup heard this very moment; undefined where the inode may be meant by another name than that. */
  looked(inode: number): Answered | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || known.prefetched || !this.#wasAnswered(known)) return undefined;
    return this.keptNames.isOnly(inode, known.askedAt) ? known.attributes : undefined;
  }

  /** As `looked`, for the open that follows the look-up: the next one may come without any, as by way of `/proc/self/fd`. */
  lookedToOpen(inode: number): Answered | undefined {
    const attributes = this.looked(inode);
    const known = this.#known.get(inode);
    if (attributes !== undefined && known !== undefined)
      this.#known.set(inode, { ...known, answeredMs: Number.NEGATIVE_INFINITY });
    return attributes;
  }

  /** The same, where it was the name that was looked up. */
  lookedAt(parent: number, name: string): Answered | undefined {
    const entry = this.#entries.get(keyOf(parent, name));
    if (entry?.isAsked !== true || !this.#wasAnswered(entry)) return undefined;
    return this.looked(entry.inode);
  }

  /** How long these attributes are valid, in milliseconds; 0 where others were learned since. */
  leftMs({ inode, validity }: Answered): number {
    const known = this.#known.get(inode);
    return known?.validity.asOf === validity?.asOf ? this.#leftMs(known, inode) : 0;
  }

  /**
   * For how long the kernel, which is about to be told so, may believe that the name is this inode's, in milliseconds.
   *
   * An open comes without a look-up then, and has to ask by itself. So the name of a file that the cluster was asked for alone
   * is not kept the first time: whoever has it opened is going to look it up, and one question serves both. Nor is a name of a file that has
   * several, of which each open would have to ask for all.
   */
  entryLeftMs(parent: number, name: string, inode: number): number {
    const place = { parent, name };
    const entry = this.#entries.get(keyOf(parent, name));
    const isKept = entry?.inode === inode && entry.isKept && this.#hasOneName(inode);
    const leftMs = isKept ? this.#leftMs(entry, parent) : 0;
    // Also what is told from memory, for no time at all, may be opened right now.
    const isRemembered = entry?.inode === inode && !(entry.isAsked && this.#wasAnswered(entry));
    if (isKept || isRemembered) this.keptNames.told(place, inode, leftMs);
    else this.keptNames.notKept(place);
    return leftMs;
  }

  #hasOneName(inode: number): boolean {
    const attributes = this.#known.get(inode)?.attributes;
    return attributes === undefined || attributes.kind !== 'file' || attributes.links <= 1;
  }

  /** @returns keys (`placeKey`) of the names by which whoever asks for the inode may have come to it */
  namesOf(inode: number): string[] {
    const asked = this.#known.get(inode)?.askedAt;
    return [...this.keptNames.of(inode).map(placeKey), ...(asked === undefined ? [] : [asked])];
  }

  /** Whether the kernel may open the inode by a name that it was told before. */
  isNameKept(inode: number): boolean {
    return this.keptNames.of(inode).length > 0;
  }

  /**
   * @param requestedAt sequence number of the request
   * @returns the attributes with their validity
   */
  learn(
    attributes: Attributes,
    requestedAt: number,
    prefetched = false,
    isDoubtful = false,
    askedAt?: string,
  ): Answered {
    const { inode, kind } = attributes;
    const validity = { requestedAt, asOf: requestedAt };
    const answered = { ...attributes, validity };
    this.#beforeWrites.delete(inode);
    if (!this.#sequencer.isValid(requestedAt, inode)) {
      // Nor is what was learned before: this answer may be newer.
      this.#known.delete(inode);
      return answered;
    }
    // Answers overtake each other.
    if (requestedAt < (this.#known.get(inode)?.validity.asOf ?? 0)) return answered;
    bounded(this.#known).set(inode, {
      ...{ attributes: answered, validity, answeredMs: this.#world.nowMs() },
      prefetched: this.#ageMaxMs > 0 && (prefetched || kind === 'directory'),
      ...{ isDoubtful, askedAt },
    });
    return answered;
  }

  /** @returns as `learn` */
  learnEntry(
    parent: number,
    name: string,
    attributes: Attributes,
    requestedAt: number,
    prefetched = false,
    isDoubtful = false,
  ): Answered {
    const key = keyOf(parent, name);
    const validity = { requestedAt, asOf: requestedAt };
    const isOld = requestedAt < (this.#entries.get(key)?.validity.asOf ?? 0);
    if (isOld || !this.#sequencer.isValid(requestedAt, key)) return { ...attributes, validity };
    const isAsked = !prefetched && !isDoubtful;
    const answered = this.learn(attributes, requestedAt, prefetched, isDoubtful, isAsked ? key : undefined);
    const { inode, kind } = attributes;
    const before = this.#entries.get(key);
    const wasHeard = before?.inode === inode && this.#leftMs(before) > 0;
    const isKept = prefetched || kind !== 'file' || wasHeard;
    const answeredMs = this.#world.nowMs();
    bounded(this.#entries).set(key, { inode, validity, answeredMs, isKept, isAsked });
    return answered;
  }

  learnPage(parent: number, { entries }: ListedPage, requestedAt: number): void {
    for (const { name, attributes } of entries) {
      // Where a live file's primary has not answered in time, a listing has what the catalog knows.
      this.learnEntry(parent, name, attributes, requestedAt, !attributes.live, attributes.live);
    }
  }

  forget(inode: number): void {
    this.#sequencer.changedAll();
    this.#known.delete(inode);
    this.#beforeWrites.delete(inode);
  }

  /** From now on, and as long as it is delegated, no other client changes the directory. */
  delegated(directory: number): void {
    bounded(this.#delegatedFrom).set(directory, this.#sequencer.request());
    this.listings.forget(directory);
  }

  /** It is being written here, of which whoever has it open knows more: what was heard before counts beside that, what is on its way does not. */
  written(inode: number): void {
    const known = this.#known.get(inode);
    // Whoever looks its name up, or opens it once more, is told what the cluster has then.
    if (known !== undefined) bounded(this.#beforeWrites).set(inode, known);
    this.#known.delete(inode);
    this.#sequencer.changed(inode);
  }

  /**
   * What was written to it here is at the cluster, and nobody here has it open any more: what was heard before counts for the rest of its time.
   *
   * @param since what has become of that; null where it is not known
   */
  closed(inode: number, since: (heard: Attributes) => Attributes | null): void {
    const known = this.#known.get(inode) ?? this.#beforeWrites.get(inode);
    this.drop(inode);
    const attributes = known === undefined || known.isDoubtful ? null : since(known.attributes);
    if (known === undefined || attributes === null || this.#ageMaxMs === 0) return;
    this.#known.set(inode, { ...this.#amended(known, attributes), prefetched: true });
  }

  /** Its attributes are about to be changed here. @returns the sequence number for `changed` */
  changing(inode: number): number {
    this.drop(inode);
    return this.#sequencer.latest;
  }

  /**
   * The change that began with `changing` was executed.
   *
   * @param attributes as the change was answered
   * @returns them with their validity
   */
  changed(attributes: Attributes, begunAt: number): Answered {
    const isPast = !this.#sequencer.isValid(begunAt, attributes.inode);
    this.drop(attributes.inode);
    const asOf = this.#sequencer.latest;
    // Of a live file the catalog does not know all.
    const isKnown = !isPast && !attributes.live;
    if (isKnown && this.#ageMaxMs > 0) return this.learn(attributes, asOf, true);
    return { ...attributes, validity: { requestedAt: asOf, asOf } };
  }

  /**
   * The cluster has a read of this mount.
   *
   * @param from the access time before
   */
  accessed(inode: number, from: string, to: string): void {
    for (const records of [this.#known, this.#beforeWrites]) {
      const known = records.get(inode);
      if (known?.attributes.accessedNs !== from) continue;
      records.set(inode, { ...known, attributes: { ...known.attributes, accessedNs: to } });
    }
  }

  /** For changes of contents, which are many: what is heard of other inodes meanwhile is kept. */
  drop(inode: number): void {
    this.#known.delete(inode);
    this.#beforeWrites.delete(inode);
    this.#sequencer.changed(inode);
  }

  /**
   * We gave the name to what is new, or gave it a second one, which has changed its directory's times, how many directories there are in it, and nothing
   * else of it: the directory, through which the path of the next file leads as well, stays known for as long as it would have been.
   *
   * @param attributes of what was made, as its making was answered
   * @param since a sequence number from before it began
   */
  made(parent: number, name: string, attributes: Attributes, since: number): void {
    this.changingName(parent, name);
    this.#namesChanged(parent, attributes.changedNs, attributes.kind === 'directory' ? 1 : 0, since);
  }

  /**
   * The cluster knows of what was made or removed here in a directory.
   *
   * @param atNs the directory's times since; null where they are not known
   */
  named(directory: number, atNs: string | null): void {
    this.#namesChanged(directory, atNs, 0, 0);
    if (atNs === null) this.listings.forget(directory);
  }

  /** @param directories so many more are in it now; negative: fewer */
  #namesChanged(directory: number, atNs: string | null, directories: number, since: number): void {
    this.#sequencer.changed(directory);
    const known = this.#known.get(directory);
    if (known === undefined) return;
    // Whether what was heard while they were changed counts them already cannot be told.
    if (atNs === null || (directories !== 0 && known.answeredMs >= since)) {
      this.#known.delete(directory);
      return;
    }
    const { links, changedNs } = known.attributes;
    const times = isLater(atNs, changedNs) ? { modifiedNs: atNs, changedNs: atNs } : {};
    const attributes = { ...known.attributes, links: links + directories, ...times };
    this.#known.set(directory, this.#amended(known, attributes));
  }

  /** @returns the record with what an own change, the latest, has made of its attributes: it is as old as before */
  #amended(known: Known, attributes: Attributes): Known {
    const validity = { ...known.validity, asOf: this.#sequencer.latest };
    return { ...known, validity, attributes: { ...attributes, validity } };
  }

  /** What a name stands for changes: what was asked for before, of it and of its directory, may be older than that. */
  changingName(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#entries.delete(key);
    this.#sequencer.changed(key);
    this.#sequencer.changed(parent);
  }

  /**
   * A file has lost the name, which was begun with `changingName`: of the directory that has changed the times and nothing else, as with `made`.
   *
   * @param inode that had the name
   * @param atNs the directory's times since; null where they are not known
   * @param behind the cluster does not know of it yet: the times are about these, and certainly others than before
   */
  removed(parent: number, name: string, inode: number, atNs: string | null, behind = false): void {
    this.#gone(parent, name, inode);
    const known = this.#known.get(parent);
    if (!behind || atNs === null || known === undefined) {
      this.named(parent, atNs);
      return;
    }
    const nextNs = BigInt(known.attributes.changedNs) + 1n;
    this.named(parent, laterNs(String(nextNs), atNs));
  }

  /** As `removed`, of an empty directory, of which its parent has counted one. @param since as of `made` */
  removedDirectory(parent: number, name: string, inode: number, atNs: string, since: number): void {
    this.#gone(parent, name, inode);
    this.#namesChanged(parent, atNs, -1, since);
  }

  #gone(parent: number, name: string, inode: number): void {
    this.keptNames.gone({ parent, name });
    this.changingName(parent, name);
    this.drop(inode);
  }

  /**
   * What is no directory has another name than before, or another directory, which was begun with `changingName`. It is what it was, but for the time
   * of its change, and counts for the rest of its time; its new name is heard of by that.
   *
   * @param atNs the times of both directories since
   * @param since a sequence number from after `changingName` and before it began
   */
  renamed(from: NamePlace, to: NamePlace, inode: number, atNs: string, since: number): void {
    const isPast = [from, to].some((place) => !this.#sequencer.isValid(since, placeKey(place)));
    for (const { parent, name } of [from, to]) {
      this.changingName(parent, name);
      this.named(parent, atNs);
    }
    const known = this.#known.get(inode);
    this.drop(inode);
    const isKnown = known !== undefined && !known.isDoubtful && !known.attributes.live;
    if (!isKnown || isPast || this.#ageMaxMs === 0) return;
    const changedNs = laterNs(known.attributes.changedNs, atNs);
    const amended = this.#amended(known, { ...known.attributes, changedNs });
    this.#known.set(inode, { ...amended, prefetched: true, askedAt: undefined });
    const learned = { validity: { requestedAt: since, asOf: since }, answeredMs: this.#world.nowMs() };
    bounded(this.#entries).set(placeKey(to), { inode, ...learned, isKept: true, isAsked: false });
  }

  /** @returns the inode that had the name when it was heard of last */
  inodeOf(parent: number, name: string): number | undefined {
    return this.#entries.get(keyOf(parent, name))?.inode;
  }

  /** @returns what was heard of the inode last, however long ago */
  lastOf(inode: number): Answered | undefined {
    return this.#known.get(inode)?.attributes;
  }

  /** The inode turned out to have the name no more. */
  lost({ parent, name }: NamePlace, inode: number): void {
    this.#entries.delete(keyOf(parent, name));
    this.drop(inode);
  }

  /** The name, and with it its directory, changed. */
  forgetEntry(parent: number, name: string): void {
    const key = keyOf(parent, name);
    this.#entries.delete(key);
    this.#sequencer.changed(key);
    this.drop(parent);
  }

  /** What was asked for before now is too old, whatever it is about: something changed of which it is not known what it was. */
  forgetAsked(): void {
    this.#sequencer.changedAll();
  }

  #hasNoXattrs(inode: number, ageMaxMs: number): boolean {
    // A write changes no extended attributes.
    const known = this.#known.get(inode) ?? this.#beforeWrites.get(inode);
    return known?.attributes.xattrs === 0 && !this.#isOld(known, ageMaxMs);
  }

  /** @param directory which it is about, or which has the name */
  #leftMs(record: Learned | undefined, directory?: number): number {
    if (record === undefined) return 0;
    if (this.#wasDelegated(record, directory)) return this.#ageMaxMs;
    return Math.max(0, record.validity.requestedAt + this.#ageMaxMs - this.#world.nowMs());
  }

  #isOld(record: Learned, ageMaxMs: number, directory?: number): boolean {
    if (ageMaxMs === 0) return true;
    return (
      this.#world.nowMs() - record.validity.requestedAt > ageMaxMs && !this.#wasDelegated(record, directory)
    );
  }

  #wasDelegated({ validity }: Learned, directory: number | undefined): boolean {
    if (directory === undefined) return false;
    const from = this.#delegatedFrom.get(directory);
    return from !== undefined && validity.requestedAt >= from && this.#isDelegated(directory);
  }

  /** @returns whether that was a moment ago */
  #wasAnswered({ answeredMs }: Learned): boolean {
    return this.#world.nowMs() - answeredMs <= LOOKUP_AGE_MAX_MS;
  }
}

function keyOf(parent: number, name: string): string {
  return placeKey({ parent, name });
}

function bounded<Key, Value>(map: Map<Key, Value>): Map<Key, Value> {
  if (map.size >= COUNT_MAX) {
    for (const key of map.keys()) {
      map.delete(key);
      break;
    }
  }
  return map;
}
