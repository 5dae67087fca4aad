import { BoundedMap } from '../../base/bounded-map.ts';
import type { Sequencer } from '../../base/sequencer.ts';
import { isLater, laterNs } from '../../base/times.ts';
import type { Answered } from '../answered.ts';
import type { Attributes } from '../backend.ts';
import { type CachedAnswer, LOOKUP_AGE_MAX_MS, RECORDS_MAX, type RecordValidity } from './record-validity.ts';

interface AttributeRecord extends CachedAnswer {
  readonly attributes: Answered;
  /** From a listing or an own change: the next requests are answered from here. */
  readonly prefetched: boolean;
  /** If a look-up of a name requested them: that name as a key (`placeKey`). */
  readonly lookupKey: string | undefined;
  /** From a listing, of a live file whose primary did not answer in time: the catalog's attributes. */
  readonly isUncertain: boolean;
}

export type Origin = Pick<AttributeRecord, 'prefetched'> &
  Partial<Pick<AttributeRecord, 'lookupKey' | 'isUncertain'>>;

export class AttributeRecords {
  readonly #validity: RecordValidity;
  readonly #sequencer: Sequencer<number | string>;
  readonly #records = new BoundedMap<number, AttributeRecord>(RECORDS_MAX);
  /** Records from before writes of this mount, until the attributes are requested again. */
  readonly #beforeWrites = new BoundedMap<number, AttributeRecord>(RECORDS_MAX);

  constructor(validity: RecordValidity, sequencer: Sequencer<number | string>) {
    this.#validity = validity;
    this.#sequencer = sequencer;
  }

  /** @returns attributes for any request: a directory's, or a file's from a listing or an own change, while valid */
  of(inode: number): Answered | undefined {
    const record = this.#records.get(inode);
    if (record === undefined || !record.prefetched) return undefined;
    return this.#validity.isExpired(record, inode) ? undefined : record.attributes;
  }

  /** Attributes of any valid record; of a file that is being written here they lack the writes. */
  latest(inode: number): Answered | undefined {
    const record = this.#latest(inode);
    if (record === undefined || record.isUncertain) return undefined;
    return this.#validity.isExpired(record, inode) ? undefined : record.attributes;
  }

  /** Attributes of any age. */
  lastOf(inode: number): Answered | undefined {
    return this.#records.get(inode)?.attributes;
  }

  #latest(inode: number): AttributeRecord | undefined {
    return this.#records.get(inode) ?? this.#beforeWrites.get(inode);
  }

  hasNoXattrs(inode: number, ttlMs = this.#validity.ttlMs): boolean {
    // Records from before writes count: a write changes no extended attributes.
    const record = this.#latest(inode);
    return record?.attributes.xattrs === 0 && !this.#validity.isExpired(record, undefined, ttlMs);
  }

  /** As `hasNoXattrs`, for access control lists and capabilities, which the kernel requests right after attributes. */
  hasNoAcls(inode: number): boolean {
    return this.hasNoXattrs(inode, Math.max(this.#validity.ttlMs, LOOKUP_AGE_MAX_MS));
  }

  /** The answer to a request for this inode, or its name, within the last `LOOKUP_AGE_MAX_MS`. */
  recentAnswer(
    inode: number,
  ): { readonly attributes: Answered; readonly lookupKey: string | undefined } | undefined {
    const record = this.#records.get(inode);
    if (record === undefined || record.prefetched || !this.#validity.isRecent(record)) return undefined;
    return { attributes: record.attributes, lookupKey: record.lookupKey };
  }

  /** After this, `recentAnswer` does not return the record again. */
  consume(inode: number): void {
    const record = this.#records.get(inode);
    if (record !== undefined) this.#records.set(inode, { ...record, answeredMs: Number.NEGATIVE_INFINITY });
  }

  lookupKeyOf(inode: number): string | undefined {
    return this.#records.get(inode)?.lookupKey;
  }

  hasOneName(inode: number): boolean {
    const attributes = this.lastOf(inode);
    return attributes === undefined || attributes.kind !== 'file' || attributes.links <= 1;
  }

  /** Remaining validity of these attributes in milliseconds; 0 if others were cached since. */
  leftMs({ inode, validity }: Answered): number {
    const record = this.#records.get(inode);
    return record?.validity.asOf === validity?.asOf ? this.#validity.leftMs(record, inode) : 0;
  }

  /** Caches an answer, unless a newer one, or an own change after the request, is known. */
  learn(
    attributes: Attributes,
    requestedAt: number,
    { prefetched, isUncertain = false, lookupKey }: Origin = { prefetched: false },
  ): Answered {
    const { inode, kind } = attributes;
    const validity = { requestedAt, asOf: requestedAt };
    const answered = { ...attributes, validity };
    this.#beforeWrites.delete(inode);
    if (!this.#sequencer.isValid(requestedAt, inode)) {
      // An own change is newer than both this answer and the cached one, which may be the older.
      this.#records.delete(inode);
      return answered;
    }
    // A later request may be answered first.
    if (requestedAt < (this.#records.get(inode)?.validity.asOf ?? 0)) return answered;
    this.#records.set(inode, {
      ...{ attributes: answered, validity, answeredMs: this.#validity.nowMs() },
      prefetched: this.#validity.ttlMs > 0 && (prefetched || kind === 'directory'),
      ...{ isUncertain, lookupKey },
    });
    return answered;
  }

  /** Drops the inode's record, and voids pending answers about it, not those about others. */
  drop(inode: number): void {
    this.#records.delete(inode);
    this.#beforeWrites.delete(inode);
    this.#sequencer.changed(inode);
  }

  /** As `drop`, and voids all pending answers. */
  forget(inode: number): void {
    this.#records.delete(inode);
    this.#beforeWrites.delete(inode);
    this.#sequencer.changedAll();
  }

  /** Called when the file is written here: its open file has newer attributes; look-ups and opens ask the cluster. */
  written(inode: number): void {
    const record = this.#records.get(inode);
    if (record !== undefined) this.#beforeWrites.set(inode, record);
    this.#records.delete(inode);
    this.#sequencer.changed(inode);
  }

  /**
   * Called after the last close, with all writes stored: earlier attributes are valid for the rest of their time.
   * @param applyWrites to attributes from before; null if their outcome is unknown
   */
  closed(inode: number, applyWrites: (before: Attributes) => Attributes | null): void {
    const record = this.#latest(inode);
    this.drop(inode);
    const attributes = record === undefined || record.isUncertain ? null : applyWrites(record.attributes);
    if (record === undefined || attributes === null || this.#validity.ttlMs === 0) return;
    this.#records.set(inode, { ...this.#amended(record, attributes), prefetched: true });
  }

  /** Called before this mount changes attributes. @returns the sequence number for `changed` */
  changing(inode: number): number {
    this.drop(inode);
    return this.#sequencer.latest;
  }

  /** Called after the change that `changing` began: caches its answer, unless the inode has changed again. */
  changed(attributes: Attributes, begunAt: number): Answered {
    const isPast = !this.#sequencer.isValid(begunAt, attributes.inode);
    this.drop(attributes.inode);
    const asOf = this.#sequencer.latest;
    // Of a live file, the catalog lacks size and times of the contents.
    const isKnown = !isPast && !attributes.live;
    if (isKnown && this.#validity.ttlMs > 0) return this.learn(attributes, asOf, { prefetched: true });
    return { ...attributes, validity: { requestedAt: asOf, asOf } };
  }

  /** The cluster has an access of this mount: replaces the access time `from` in cached attributes. */
  accessed(inode: number, from: string, to: string): void {
    for (const records of [this.#records, this.#beforeWrites]) {
      const record = records.get(inode);
      if (record?.attributes.accessedNs !== from) continue;
      records.set(inode, { ...record, attributes: { ...record.attributes, accessedNs: to } });
    }
  }

  /**
   * Updates a directory's record after own changes of its names, which change only times and the count of directories.
   * @param atNs its new times; null if unknown
   * @param directories change of the number of its directories
   * @param since a sequence number from before the change
   */
  namesChanged(inode: number, atNs: string | null, directories = 0, since = 0): void {
    this.#sequencer.changed(inode);
    const record = this.#records.get(inode);
    if (record === undefined) return;
    // Whether an answer that arrived during the change counts them already is unknown.
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
   * Updates the record of a renamed inode that is no directory: only its ctime changes.
   * @param isPast one of its names was changed beside the rename
   * @returns whether the record is kept
   */
  renamed(inode: number, atNs: string, isPast: boolean): boolean {
    const record = this.#records.get(inode);
    this.drop(inode);
    const isKnown = record !== undefined && !record.isUncertain && !record.attributes.live;
    if (!isKnown || isPast || this.#validity.ttlMs === 0) return false;
    const changedNs = laterNs(record.attributes.changedNs, atNs);
    const amended = this.#amended(record, { ...record.attributes, changedNs });
    this.#records.set(inode, { ...amended, prefetched: true, lookupKey: undefined });
    return true;
  }

  /** The record after the latest own change; its age stays the same. */
  #amended(record: AttributeRecord, attributes: Attributes): AttributeRecord {
    const validity = { ...record.validity, asOf: this.#sequencer.latest };
    return { ...record, validity, attributes: { ...attributes, validity } };
  }
}
