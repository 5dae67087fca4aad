import { laterNs, nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { Answered, Validity } from '../answered.ts';
import type { Attributes, ContentVersion, FileState } from '../backend.ts';
import type { WriteBehind } from '../pending/write-behind.ts';
import { Lineage } from './lineage.ts';
import type { ReadSource } from './read-source.ts';
import type { PagesOfFile } from './written-pages.ts';

/** Known attributes and contents of an open file, and which of them the kernel has. */
export class KnownContents {
  /** The latest: permission bits for clearing set-user-id, and the version of read bytes. */
  attributes: Attributes;
  /** The size in the last answer to the kernel. */
  answeredSizeBytes: number;
  readonly pages: PagesOfFile;
  readonly #world: World;
  readonly #source: Pick<ReadSource, 'changed' | 'withoutOutdated'>;
  /** The newest state from the primary, if newer than `attributes`. */
  #state: FileState | undefined;
  /** A change here may have made or filled holes. */
  #mayHaveHoles = false;
  /** When the last pending byte was written, until the primary's time for it is known. */
  #writtenNs = 0n;
  /** The version that the kernel and `pages` have: of the last answer, plus later changes of this mount. */
  readonly #lineage: Lineage;
  /** The last presented attributes without a change by another client: when (monotonic), and their validity. */
  #presentedMs: number;
  #confirmedValidity: Validity | undefined;
  /** Since when fetched contents are known to be current at the cluster (monotonic, in milliseconds). */
  #confirmedMs = Number.NEGATIVE_INFINITY;
  /** The newest confirmed version: what the source fetches in this generation is of it, or newer. */
  #confirmed: ContentVersion;

  constructor(
    world: World,
    attributes: Answered,
    pages: PagesOfFile,
    source: Pick<ReadSource, 'changed' | 'withoutOutdated'>,
  ) {
    this.#world = world;
    this.#source = source;
    this.attributes = attributes;
    this.#confirmedValidity = attributes.validity;
    this.#presentedMs = world.nowMs();
    this.#confirmed = attributes.contents;
    this.#lineage = new Lineage(attributes.contents);
    this.answeredSizeBytes = attributes.sizeBytes;
    this.pages = pages;
    pages.opened();
  }

  get confirmedMs(): number {
    return this.#confirmedMs;
  }

  get sizeBytes(): number {
    return this.#state?.sizeBytes ?? this.attributes.sizeBytes;
  }

  get newest(): ContentVersion {
    return (this.#state ?? this.attributes).contents;
  }

  /** Whether only this mount has changed the contents since the kernel's last answer. */
  get isOwn(): boolean {
    return this.#lineage.is(this.newest);
  }

  /** Ends the use of bytes of older contents here, not in the kernel. @param askedMs of the request (monotonic) */
  confirm({ contents }: Attributes, askedMs: number): void {
    if (contentVersionCompare(contents, this.#confirmed) > 0) {
      this.#source.changed();
      this.#confirmed = contents;
    }
    this.#confirmedMs = Math.max(this.#confirmedMs, askedMs);
  }

  /**
   * Bytes written here, if all are known and valid.
   * @param validMs how long they are valid after the cluster reported no change by another client
   */
  written(offset: number, length: number, validMs: number): Uint8Array | null {
    const isValid = this.isOwn && this.#world.nowMs() - this.#presentedMs < validMs;
    return isValid ? this.pages.read(offset, length, this.sizeBytes) : null;
  }

  get areHolesUnknown(): boolean {
    const state = this.#state;
    if (state === undefined || state.holeBytes !== undefined) return false;
    return this.#mayHaveHoles || this.attributes.holeBytes !== undefined;
  }

  /** Called before a change that may leave a hole, as one that begins beyond the end. */
  leavingHole(): void {
    this.#mayHaveHoles = true;
  }

  writing(): void {
    this.#source.changed();
    this.#writtenNs = nowNs(this.#world);
  }

  /** The primary has acknowledged a change of this mount. */
  changed(state: FileState): void {
    if (this.#lineage.changed(state)) this.#presentedMs = this.#world.nowMs();
    this.learn(state);
  }

  /** Records a state from the primary. Answers of concurrent writes arrive in any order: the newest stays. */
  learn({ sizeBytes, modifiedNs, contents, holeBytes }: FileState): void {
    this.#source.changed();
    if (contentVersionCompare(contents, this.newest) >= 0)
      this.#state = { sizeBytes, modifiedNs, contents, ...(holeBytes !== undefined && { holeBytes }) };
  }

  /** The cluster has created the file with the contents that were in memory here. */
  created(state: FileState): void {
    if (contentVersionCompare(state.contents, this.newest) <= 0) return;
    this.#lineage.changed(state);
    this.learn(state);
  }

  /** The attributes for the kernel: with the primary's newer state, and with pending writes. */
  async present(attributes: Answered, writes: Pick<WriteBehind, 'dirty' | 'dirtyEnd'>): Promise<Answered> {
    const { validity } = attributes;
    if (validity?.asOf !== this.#confirmedValidity?.asOf) this.#presentedMs = this.#world.nowMs();
    this.#confirmedValidity = validity;
    // Some client changed it, perhaps this one: fetched blocks may be old.
    this.confirm(attributes, validity?.requestedAt ?? Number.NEGATIVE_INFINITY);
    // Otherwise outdated pages could reach the kernel after the notice to drop them.
    await this.#source.withoutOutdated();
    const order = contentVersionCompare(attributes.contents, this.attributes.contents);
    // An earlier request may be answered later; contents never go back.
    const newest = order < 0 ? withContents(attributes, this.attributes) : attributes;
    this.attributes = newest;
    const state = this.#state;
    let presented: Answered = newest;
    if (state !== undefined && contentVersionCompare(state.contents, presented.contents) > 0) {
      presented = withContents(presented, state);
    } else {
      this.#state = undefined;
    }
    if (!writes.dirty) {
      this.answered(presented.contents);
      this.answeredSizeBytes = presented.sizeBytes;
      return presented;
    }
    this.answeredSizeBytes = Math.max(presented.sizeBytes, writes.dirtyEnd);
    return { ...this.#withPendingTimes(presented), sizeBytes: this.answeredSizeBytes };
  }

  /** The attributes as known now, without a request or a wait for pending bytes. */
  latest(isDirty: boolean): Attributes {
    const state = this.#state;
    const isOld = state !== undefined && contentVersionCompare(state.contents, this.attributes.contents) > 0;
    const known = isOld ? withContents(this.attributes, state) : this.attributes;
    return isDirty ? this.#withPendingTimes(known) : known;
  }

  /** Applies own writes, all at the cluster, to attributes from before them; null if the result is unknown. */
  applyOwnWrites(attributes: Attributes): Attributes | null {
    const state = this.#state ?? this.attributes;
    if (this.areHolesUnknown) return null;
    // The cluster has reported nothing yet of a new file.
    if (state.contents.epoch === 0) return null;
    if (contentVersionCompare(state.contents, attributes.contents) > 0)
      return withContents(attributes, state);
    return state.sizeBytes === attributes.sizeBytes ? attributes : null;
  }

  /** The cluster has an access of this mount. @param from the access time before it */
  accessed(from: string, to: string): void {
    if (this.attributes.accessedNs === from) this.attributes = { ...this.attributes, accessedNs: to };
  }

  /** This mount has changed attributes that a change of contents does not affect. */
  changedStatus({ mode, uid, gid, flags }: Attributes): void {
    const { flags: _, ...others } = this.attributes;
    this.attributes = { ...others, mode, uid, gid, ...(flags !== undefined && { flags }) };
  }

  /** The kernel gets this version: copies of written pages are dropped if they are of another. */
  answered(contents: ContentVersion): void {
    if (this.#lineage.answered(contents)) this.pages.clear();
  }

  /** The file has this version. @param invalidate drops the kernel's pages; called if they may be of an older one */
  async refresh(contents: ContentVersion, invalidate: () => Promise<void>): Promise<void> {
    if (this.#lineage.is(contents)) return;
    await this.#source.withoutOutdated();
    await invalidate();
    this.answered(contents);
  }

  #withPendingTimes<Known extends Attributes>(attributes: Known): Known {
    const modifiedNs = String(this.#writtenNs);
    const { sizeBytes, holeBytes } = attributes;
    return {
      ...attributes,
      modifiedNs,
      changedNs: laterNs(modifiedNs, attributes.changedNs),
      // Programs assume that a file without blocks has no data (`tar -S`).
      ...(holeBytes !== undefined && { holeBytes: Math.max(0, Math.min(holeBytes, sizeBytes - 1)) }),
    };
  }
}

/**
 * Merges size and times of the contents into a live file's attributes from before the writes.
 * @param known of the contents; a time that a program set on these or newer ones is kept
 */
function withContents<Known extends Attributes>(attributes: Known, known: FileState): Known {
  const { sizeBytes, modifiedNs, contents, holeBytes } = known;
  const { holeBytes: _, ...others } = attributes;
  const sized = { ...(others as Known), sizeBytes, ...(holeBytes !== undefined && { holeBytes }) };
  if (contentVersionCompare(contents, attributes.contents) <= 0) return sized;
  // A change of contents also changes ctime.
  return { ...sized, modifiedNs, contents, changedNs: laterNs(modifiedNs, attributes.changedNs) };
}
