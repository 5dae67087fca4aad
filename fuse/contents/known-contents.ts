import { laterNs, nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { Answered, Validity } from '../answered.ts';
import type { Attributes, ContentVersion, FileState } from '../backend.ts';
import type { WriteBehind } from '../pending/write-behind.ts';
import { Lineage } from './lineage.ts';
import type { ReadSource } from './read-source.ts';
import type { PagesOfFile } from './written-pages.ts';

/** What is known of the attributes and contents of an open file, and which of it the kernel has. */
export class KnownContents {
  /** As learned last; permission bits for clearing set-user-id, and the version of what was read. */
  attributes: Attributes;
  /** The size in the last answer to the kernel. */
  toldSizeBytes: number;
  readonly pages: PagesOfFile;
  readonly #world: World;
  readonly #source: Pick<ReadSource, 'changed' | 'withoutOutdated'>;
  /** The newest state that the primary reported, if it is newer than `attributes`. */
  #state: FileState | undefined;
  /** A change here may have left holes, or filled some. */
  #mayHaveHoles = false;
  /** When the last dirty byte was written, for as long as the primary's time for it is not known. */
  #writtenNs = 0n;
  /** The version of what the kernel and the pages have: of the last answer to the kernel, and all changes of this mount that followed. */
  readonly #lineage: Lineage;
  /** When attributes that no other client had changed were presented last (monotonic), and their validity. */
  #heardMs: number;
  #heard: Validity | undefined;
  /** When, at the earliest, contents that the source fetched before were not yet outdated at the cluster (monotonic, in milliseconds). */
  #confirmedMs = Number.NEGATIVE_INFINITY;
  /** The newest version that was confirmed: what the source fetches in its generation is of this, or newer. */
  #confirmed: ContentVersion;

  /** @param pages what was written to it before, of the same contents */
  constructor(
    world: World,
    attributes: Answered,
    pages: PagesOfFile,
    source: Pick<ReadSource, 'changed' | 'withoutOutdated'>,
  ) {
    this.#world = world;
    this.#source = source;
    this.attributes = attributes;
    this.#heard = attributes.validity;
    this.#heardMs = world.nowMs();
    this.#confirmed = attributes.contents;
    this.#lineage = new Lineage(attributes.contents);
    this.toldSizeBytes = attributes.sizeBytes;
    this.pages = pages;
    pages.opened();
  }

  get confirmedMs(): number {
    return this.#confirmedMs;
  }

  get sizeBytes(): number {
    return this.#state?.sizeBytes ?? this.attributes.sizeBytes;
  }

  /** The newest contents that are known, from whichever client. */
  get newest(): ContentVersion {
    return (this.#state ?? this.attributes).contents;
  }

  /** The kernel has the newest contents, or only changes of this mount followed those that it has. */
  get isOwn(): boolean {
    return this.#lineage.is(this.newest);
  }

  /**
   * What was fetched of earlier contents is not served any more. The kernel gets no notice.
   *
   * @param askedMs when the cluster was asked for them (monotonic, in milliseconds)
   */
  confirm({ contents }: Attributes, askedMs: number): void {
    if (contentVersionCompare(contents, this.#confirmed) > 0) {
      this.#source.changed();
      this.#confirmed = contents;
    }
    this.#confirmedMs = Math.max(this.#confirmedMs, askedMs);
  }

  /**
   * @param validMs for how long what was written here is valid after the cluster has reported that no other client changed the file
   * @returns what was written here, where all of that is known and valid
   */
  written(offset: number, length: number, validMs: number): Uint8Array | null {
    const isValid = this.isOwn && this.#world.nowMs() - this.#heardMs < validMs;
    return isValid ? this.pages.read(offset, length, this.sizeBytes) : null;
  }

  /** Attributes from before the changes here do not say which holes there are: the cluster is asked. */
  get areHolesUnknown(): boolean {
    const state = this.#state;
    if (state === undefined || state.holeBytes !== undefined) return false;
    return this.#mayHaveHoles || this.attributes.holeBytes !== undefined;
  }

  /** A change is about to leave a hole, as where it begins behind the end. */
  leavingHole(): void {
    this.#mayHaveHoles = true;
  }

  /** Bytes are about to be written. */
  writing(): void {
    this.#source.changed();
    this.#writtenNs = nowNs(this.#world);
  }

  /** The cluster has a change of this mount. */
  changed(state: FileState): void {
    if (this.#lineage.changed(state)) this.#heardMs = this.#world.nowMs();
    this.learn(state);
  }

  /** Answers of writes in parallel arrive in any order: the newest counts. */
  learn({ sizeBytes, modifiedNs, contents, holeBytes }: FileState): void {
    this.#source.changed();
    if (contentVersionCompare(contents, this.newest) >= 0)
      this.#state = { sizeBytes, modifiedNs, contents, ...(holeBytes !== undefined && { holeBytes }) };
  }

  /** The cluster has a new file with these contents. */
  created(state: FileState): void {
    if (contentVersionCompare(state.contents, this.newest) <= 0) return;
    this.#lineage.changed(state);
    this.learn(state);
  }

  /** Puts `attributes`, as the cluster reported them, together with what only this mount knows. */
  async present(attributes: Answered, writes: Pick<WriteBehind, 'dirty' | 'dirtyEnd'>): Promise<Answered> {
    const { validity } = attributes;
    if (validity?.asOf !== this.#heard?.asOf) this.#heardMs = this.#world.nowMs();
    this.#heard = validity;
    // Some client changed it, perhaps this one: blocks read before may be old.
    this.confirm(attributes, validity?.requestedAt ?? Number.NEGATIVE_INFINITY);
    // Otherwise what is on its way to the kernel would come after the notice that it is outdated.
    await this.#source.withoutOutdated();
    const order = contentVersionCompare(attributes.contents, this.attributes.contents);
    // Answers may overtake each other; contents do not go back.
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
      this.tell(presented.contents);
      this.toldSizeBytes = presented.sizeBytes;
      return presented;
    }
    this.toldSizeBytes = Math.max(presented.sizeBytes, writes.dirtyEnd);
    return { ...this.#asWritten(presented), sizeBytes: this.toldSizeBytes };
  }

  /** What is known of it, without a request and without waiting for bytes under way. */
  latest(isDirty: boolean): Attributes {
    const state = this.#state;
    const isOld = state !== undefined && contentVersionCompare(state.contents, this.attributes.contents) > 0;
    const known = isOld ? withContents(this.attributes, state) : this.attributes;
    return isDirty ? this.#asWritten(known) : known;
  }

  /** @returns what has become of attributes by what was written here, all of which is at the cluster; null where that is not known */
  since(attributes: Attributes): Attributes | null {
    const state = this.#state ?? this.attributes;
    if (this.areHolesUnknown) return null;
    // Of a file that is new the cluster has told nothing.
    if (state.contents.epoch === 0) return null;
    if (contentVersionCompare(state.contents, attributes.contents) > 0)
      return withContents(attributes, state);
    return state.sizeBytes === attributes.sizeBytes ? attributes : null;
  }

  /** The cluster has a read of this mount. @param from the access time before */
  accessed(from: string, to: string): void {
    if (this.attributes.accessedNs === from) this.attributes = { ...this.attributes, accessedNs: to };
  }

  /** This mount has changed what a change of contents does not touch. */
  changedStatus({ mode, uid, gid, flags }: Attributes): void {
    const { flags: _, ...others } = this.attributes;
    this.attributes = { ...others, mode, uid, gid, ...(flags !== undefined && { flags }) };
  }

  /** The kernel learns of these contents. */
  tell(contents: ContentVersion): void {
    if (this.#lineage.told(contents)) this.pages.clear();
  }

  /** @param invalidate makes the kernel drop what it has; called where that may be from before a change of another client */
  async refresh(contents: ContentVersion, invalidate: () => Promise<void>): Promise<void> {
    if (this.#lineage.is(contents)) return;
    await this.#source.withoutOutdated();
    await invalidate();
    this.tell(contents);
  }

  /** With the times of bytes that are on their way. */
  #asWritten<Known extends Attributes>(attributes: Known): Known {
    const modifiedNs = String(this.#writtenNs);
    const { sizeBytes, holeBytes } = attributes;
    return {
      ...attributes,
      modifiedNs,
      changedNs: laterNs(modifiedNs, attributes.changedNs),
      // Programs take a file without blocks for one without data (`tar -S`).
      ...(holeBytes !== undefined && { holeBytes: Math.max(0, Math.min(holeBytes, sizeBytes - 1)) }),
    };
  }
}

/**
 * Attributes of a live file, of which the catalog knows size and times as they were before it was written.
 *
 * @param known what is known of its contents; a time that was set by hand on newer ones, or on these, stays in force
 */
function withContents<Known extends Attributes>(attributes: Known, known: FileState): Known {
  const { sizeBytes, modifiedNs, contents, holeBytes } = known;
  const { holeBytes: _, ...others } = attributes;
  const sized = { ...(others as Known), sizeBytes, ...(holeBytes !== undefined && { holeBytes }) };
  if (contentVersionCompare(contents, attributes.contents) <= 0) return sized;
  // A change of contents is one of the status as well.
  return { ...sized, modifiedNs, contents, changedNs: laterNs(modifiedNs, attributes.changedNs) };
}
