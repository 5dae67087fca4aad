import { BoundedMap } from '../../base/bounded-map.ts';
import type { Sequencer } from '../../base/sequencer.ts';
import { isLater, laterNs } from '../../base/times.ts';
import type { Answered } from '../answered.ts';
import type { Attributes } from '../backend.ts';
import { type Ages, type Learned, LOOKUP_AGE_MAX_MS, RECORDS_MAX } from './ages.ts';

interface AttributeRecord extends Learned {
  readonly attributes: Answered;
  /** Learned from a listing or an own change: the next requests are answered from here. */
  readonly prefetched: boolean;
  /** The only name that was looked up for them, as a key (`placeKey`). */
  readonly askedAt: string | undefined;
  /** In a listing, of a live file whose primary has not answered in time: as the catalog knows it. */
  readonly isUncertain: boolean;
}

/** How attributes were learned. */
export type Origin = Pick<AttributeRecord, 'prefetched'> &
  Partial<Pick<AttributeRecord, 'askedAt' | 'isUncertain'>>;

/** Attributes that were learned, by inode, and what own changes have made of them. */
export class AttributeRecords {
  readonly #ages: Ages;
  /** Own changes, by inode and by name. */
  readonly #sequencer: Sequencer<number | string>;
  readonly #records = new BoundedMap<number, AttributeRecord>(RECORDS_MAX);
  /** Of files that were written here since, and not learned again. */
  readonly #beforeWrites = new BoundedMap<number, AttributeRecord>(RECORDS_MAX);

  constructor(ages: Ages, sequencer: Sequencer<number | string>) {
    this.#ages = ages;
    this.#sequencer = sequencer;
  }

  /** @returns attributes by which requests are answered */
  of(inode: number): Answered | undefined {
    const record = this.#records.get(inode);
    if (record === undefined || !record.prefetched) return undefined;
    return this.#ages.isOld(record, inode) ? undefined : record.attributes;
  }

  /** @returns attributes from whatever request, if valid; of a file that is being written here they lack the writes */
  latest(inode: number): Answered | undefined {
    const record = this.#latest(inode);
    if (record === undefined || record.isUncertain) return undefined;
    return this.#ages.isOld(record, inode) ? undefined : record.attributes;
  }

  /** @returns attributes however old they are */
  lastOf(inode: number): Answered | undefined {
    return this.#records.get(inode)?.attributes;
  }

  #latest(inode: number): AttributeRecord | undefined {
    return this.#records.get(inode) ?? this.#beforeWrites.get(inode);
  }

  /** Whether a valid answer said that the inode has no extended attributes. */
  hasNoXattrs(inode: number, ttlMs = this.#ages.ttlMs): boolean {
    // A write changes no extended attributes.
    const record = this.#latest(inode);
    return record?.attributes.xattrs === 0 && !this.#ages.isOld(record, undefined, ttlMs);
  }

  /** The same of access control lists and capabilities: the kernel asks for them right after it asked for the attributes. */
  hasNoAcls(inode: number): boolean {
    return this.hasNoXattrs(inode, Math.max(this.#ages.ttlMs, LOOKUP_AGE_MAX_MS));
  }

  /** @returns what a request for this inode or its name was answered this very moment */
  justAsked(inode: number): { readonly attributes: Answered; readonly at: string | undefined } | undefined {
    const record = this.#records.get(inode);
    if (record === undefined || record.prefetched || !this.#ages.isRecent(record)) return undefined;
    return { attributes: record.attributes, at: record.askedAt };
  }

  /** `justAsked` does not answer it again. */
  used(inode: number): void {
    const record = this.#records.get(inode);
    if (record !== undefined) this.#records.set(inode, { ...record, answeredMs: Number.NEGATIVE_INFINITY });
  }

  /** @returns the only name that was looked up for the attributes */
  askedAt(inode: number): string | undefined {
    return this.#records.get(inode)?.askedAt;
  }

  /** Whether no other name of a file is known. */
  hasOneName(inode: number): boolean {
    const attributes = this.lastOf(inode);
    return attributes === undefined || attributes.kind !== 'file' || attributes.links <= 1;
  }

  /** How long these attributes are valid, in milliseconds; 0 where others were learned since. */
  leftMs({ inode, validity }: Answered): number {
    const record = this.#records.get(inode);
    return record?.validity.asOf === validity?.asOf ? this.#ages.leftMs(record, inode) : 0;
  }

  /**
   * @param requestedAt sequence number of the request
   * @returns the attributes with their validity
   */
  learn(
    attributes: Attributes,
    requestedAt: number,
    { prefetched, isUncertain = false, askedAt }: Origin = { prefetched: false },
  ): Answered {
    const { inode, kind } = attributes;
    const validity = { requestedAt, asOf: requestedAt };
    const answered = { ...attributes, validity };
    this.#beforeWrites.delete(inode);
    if (!this.#sequencer.isValid(requestedAt, inode)) {
      // Nor is what was learned before: this answer may be newer.
      this.#records.delete(inode);
      return answered;
    }
    // Answers overtake each other.
    if (requestedAt < (this.#records.get(inode)?.validity.asOf ?? 0)) return answered;
    this.#records.set(inode, {
      ...{ attributes: answered, validity, answeredMs: this.#ages.nowMs() },
      prefetched: this.#ages.ttlMs > 0 && (prefetched || kind === 'directory'),
      ...{ isUncertain, askedAt },
    });
    return answered;
  }

  /** Answers about it that were requested before are void; about other inodes they stay valid. */
  drop(inode: number): void {
    this.#records.delete(inode);
    this.#beforeWrites.delete(inode);
    this.#sequencer.changed(inode);
  }

  /** As `drop`, and answers about whatever that were requested before are void. */
  forget(inode: number): void {
    this.#records.delete(inode);
    this.#beforeWrites.delete(inode);
    this.#sequencer.changedAll();
  }

  /** A file is being written here. Its open file knows more; look-ups and opens are answered by the cluster. */
  written(inode: number): void {
    const record = this.#records.get(inode);
    if (record !== undefined) this.#beforeWrites.set(inode, record);
    this.#records.delete(inode);
    this.#sequencer.changed(inode);
  }

  /**
   * The cluster has all writes of this mount, and the file is closed here: what was learned before is valid for the rest of its
   * time.
   *
   * @param since applies the writes; null where their outcome is unknown
   */
  closed(inode: number, since: (before: Attributes) => Attributes | null): void {
    const record = this.#latest(inode);
    this.drop(inode);
    const attributes = record === undefined || record.isUncertain ? null : since(record.attributes);
    if (record === undefined || attributes === null || this.#ages.ttlMs === 0) return;
    this.#records.set(inode, { ...this.#amended(record, attributes), prefetched: true });
  }

  /** This mount is about to change attributes. @returns the sequence number for `changed` */
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
    // The catalog does not know all of a live file.
    const isKnown = !isPast && !attributes.live;
    if (isKnown && this.#ages.ttlMs > 0) return this.learn(attributes, asOf, { prefetched: true });
    return { ...attributes, validity: { requestedAt: asOf, asOf } };
  }

  /** The cluster has a read of this mount. @param from the access time before */
  accessed(inode: number, from: string, to: string): void {
    for (const records of [this.#records, this.#beforeWrites]) {
      const record = records.get(inode);
      if (record?.attributes.accessedNs !== from) continue;
      records.set(inode, { ...record, attributes: { ...record.attributes, accessedNs: to } });
    }
  }

  /**
   * Names of a directory were changed by this mount, which changes its times, its count of directories and nothing else: it is
   * valid for the rest of its time.
   *
   * @param atNs its times since; null where they are unknown
   * @param directories so many more are in it now; negative: fewer
   * @param since a sequence number from before the change
   */
  namesChanged(inode: number, atNs: string | null, directories = 0, since = 0): void {
    this.#sequencer.changed(inode);
    const record = this.#records.get(inode);
    if (record === undefined) return;
    // Whether an answer during the change counts them already is unknown.
    if (atNs === null || (directories !== 0 && record.answeredMs >= since)) {
      this.#records.delete(inode);
      return;
    }
    const { links, changedNs } = record.attributes;
    const times = isLater(atNs, changedNs) ? { modifiedNs: atNs, changedNs: atNs } : {};
    const attributes = { ...record.attributes, links: links + directories, ...times };
    this.#records.set(inode, this.#amended(record, attributes));
  }

  /**
   * This mount has given another name to what is no directory: only its ctime changes.
   *
   * @param atNs when
   * @param isPast something of it was changed beside the rename
   * @returns whether it is known
   */
  renamed(inode: number, atNs: string, isPast: boolean): boolean {
    const record = this.#records.get(inode);
    this.drop(inode);
    const isKnown = record !== undefined && !record.isUncertain && !record.attributes.live;
    if (!isKnown || isPast || this.#ages.ttlMs === 0) return false;
    const changedNs = laterNs(record.attributes.changedNs, atNs);
    const amended = this.#amended(record, { ...record.attributes, changedNs });
    this.#records.set(inode, { ...amended, prefetched: true, askedAt: undefined });
    return true;
  }

  /** @returns the record with what the latest own change has made of its attributes; it is as old as before */
  #amended(record: AttributeRecord, attributes: Attributes): AttributeRecord {
    const validity = { ...record.validity, asOf: this.#sequencer.latest };
    return { ...record, validity, attributes: { ...attributes, validity } };
  }
}
