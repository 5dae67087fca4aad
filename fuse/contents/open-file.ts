import { laterNs, nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import {
  type Attributes,
  type BackendFile,
  type BackendLock,
  type ContentVersion,
  contentVersionCompare,
  type FileState,
} from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import { lockLost } from '../errno.ts';
import type { DirtyBudget } from '../pending/dirty-budget.ts';
import type { ErrorSequence } from '../pending/error-sequence.ts';
import { WriteBehind } from '../pending/write-behind.ts';
import type { Answered, MountedTransport, Validity } from '../transport.ts';
import { Lineage } from './lineage.ts';
import { OpenLocks } from './locks.ts';
import type { ReadAhead, ReadPosition } from './read-ahead.ts';
import { type GivePages, ReadSource } from './read-source.ts';
import type { Room } from './room.ts';
import type { PagesOfFile } from './written-pages.ts';

/** How long a question about a file waits for its writes under way before it is answered from here. */
const DRAIN_FOR_ATTRIBUTES_MS = 1000;
/** The kernel keeps whole pages of this size. */
const PAGE_BYTES = 4096;

/** A file that is open on this mount, however often: its writes under way and what is known of its contents. */
export class OpenFile {
  readonly inode: number;
  readonly source: ReadSource;
  readonly writes: WriteBehind;
  readonly #world: World;
  readonly #backend: BackendFile;
  readonly #limitMs: number;
  /** Handles in all, and those among them that write. */
  handleCount = 0;
  writerCount = 0;
  /** Written here, and so to be sealed at its last close, if its policy says so. */
  written = false;
  /** The kernel may have pages of it. */
  mayHavePages = false;
  /** Created or changed here, and the catalog was not told of the outcome yet. */
  unsettled = false;
  /** As last heard of; permission bits for clearing set-user-id, and the version of what was read. */
  attributes: Attributes;
  /** The newest state that the primary told of, if it is newer than `attributes`. */
  #state: FileState | undefined;
  /** When the last dirty byte was written, for as long as the primary's time for it is not known. */
  #writtenNs = 0n;
  #appended: Promise<unknown> = Promise.resolve();
  #locks: OpenLocks | null = null;
  /** What the kernel has, and the pages: as it was told last, and all changes of this mount that followed. */
  readonly #lineage: Lineage;
  readonly #pages: PagesOfFile;
  /** When attributes that no other client had changed were presented last (monotonic), and their validity. */
  #heardMs: number;
  #heard: Validity | undefined;
  /** When the cluster was last asked for the version of the contents, and answered (monotonic, in milliseconds). */
  #confirmedMs = Number.NEGATIVE_INFINITY;
  /** The newest version that was confirmed: what the source fetches in its generation is of this, or newer. */
  #confirmed: ContentVersion;
  /** The size that the kernel was told last. */
  #toldSizeBytes: number;
  readonly #kernel: () => Pick<MountedTransport, 'givePages'> | null;
  readonly #room: Pick<Room, 'failed'>;

  /**
   * @param pages what was written to it before, of the same contents
   * @param kernel null before the mount is there
   * @param room is told of what fails
   */
  constructor(
    world: World,
    attributes: Answered,
    backend: BackendFile,
    budget: DirtyBudget,
    limitMs: number,
    pages: PagesOfFile,
    kernel: () => Pick<MountedTransport, 'givePages'> | null,
    room: Pick<Room, 'failed'>,
    errors: Pick<ErrorSequence, 'set'>,
  ) {
    this.#world = world;
    this.inode = attributes.inode;
    this.attributes = attributes;
    this.#heard = attributes.validity;
    this.#heardMs = world.nowMs();
    this.#confirmed = attributes.contents;
    this.#lineage = new Lineage(attributes.contents);
    this.#pages = pages;
    pages.opened();
    this.#toldSizeBytes = attributes.sizeBytes;
    this.#kernel = kernel;
    this.#room = room;
    this.#backend = backend;
    this.#limitMs = limitMs;
    this.source = new ReadSource(
      world,
      (offset, length) => this.#bounded(backend.read(offset, length), 'A read'),
      () => this.#sizeBytes(),
      () => this.#giver(),
      async (offset, length) => (await backend.range?.(offset, length)) ?? null,
    );
    this.writes = new WriteBehind({
      world,
      write: (offset, parts) => backend.write(offset, parts),
      writeParts: (parts) => backend.writeParts(parts),
      taken: (offset, bytes) => pages.put(offset, bytes),
      acknowledged: (state) => this.#changed(state),
      failed: (error) => {
        pages.clear();
        room.failed(error);
        errors.set({ kind: 'file', inode: attributes.inode }, error);
      },
      budget,
      limitMs,
    });
  }

  /** When, at the earliest, contents that the source fetched before were not yet outdated at the cluster. */
  get confirmedMs(): number {
    return this.#confirmedMs;
  }

  /**
   * What was fetched of earlier contents is not served any more. The kernel is told nothing.
   *
   * @param askedMs when the cluster was asked for them (monotonic, in milliseconds)
   */
  confirm({ contents }: Attributes, askedMs: number): void {
    if (contentVersionCompare(contents, this.#confirmed) > 0) {
      this.source.changed();
      this.#confirmed = contents;
    }
    this.#confirmedMs = Math.max(this.#confirmedMs, askedMs);
  }

  /**
   * @param believedMs for how long what was written here may be read without a word from the cluster that nobody else has changed it
   * @param isCurrent as of `ReadAhead.read`
   */
  async read(
    readAhead: ReadAhead,
    position: ReadPosition,
    offset: number,
    length: number,
    believedMs = 0,
    isCurrent: () => boolean | Promise<boolean> = () => true,
  ): Promise<Uint8Array> {
    // Beyond the size the cluster knows, a hole before dirty bytes would read as the end of the file.
    if (this.writes.dirty && (this.writes.overlaps(offset, length) || offset + length > this.#sizeBytes())) {
      await this.writes.drain();
    }
    const written = this.#written(offset, length, believedMs);
    return written ?? readAhead.read(this.source, position, offset, length, isCurrent);
  }

  /** @returns what was written here, where all of that is known, and nobody else has changed the file since */
  #written(offset: number, length: number, believedMs: number): Uint8Array | null {
    const isOwn = this.#lineage.is(this.#newest) && this.#world.nowMs() - this.#heardMs < believedMs;
    return isOwn ? this.#pages.read(offset, length, this.#sizeBytes()) : null;
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    this.source.changed();
    this.#writtenNs = nowNs(this.#world);
    await this.writes.write(offset, bytes);
  }

  /** Appends go out one by one, each in one piece, after everything that was written before. */
  append(bytes: Uint8Array): Promise<void> {
    const appended = this.#appended.then(async () => {
      await this.writes.drain();
      this.#changed(await this.#bounded(this.#backend.append(bytes), 'An append'));
    });
    this.#appended = appended.catch(() => undefined);
    return appended;
  }

  async truncate(sizeBytes: number): Promise<void> {
    await this.writes.drain();
    const endBytes = this.#sizeBytes();
    if (sizeBytes < endBytes) this.#pages.drop(sizeBytes);
    this.#changed(await this.#bounded(this.#backend.truncate(sizeBytes), 'A truncate'));
    // Had it another end, then somebody else has changed it, and none of the pages is believed any more.
    this.#pages.putZeros(endBytes, sizeBytes);
  }

  /** Bytes `from` to before `to` become a hole. */
  async punch(from: number, to: number, grows: boolean): Promise<void> {
    await this.writes.drain();
    this.#pages.drop(from, to);
    this.#changed(await this.#bounded(this.#backend.punch(from, to, grows), 'Punching a hole'));
  }

  /** @returns where data, or a hole, begins, not before `offset`; null where nothing of it follows */
  async seek(offset: number, what: 'data' | 'hole'): Promise<number | null> {
    await this.writes.drain();
    return this.#bounded(this.#backend.seek(offset, what), `Looking for ${what}`);
  }

  /** @see BackendFile.keeps */
  keeps(endBytes: number): boolean {
    return this.#backend.keeps?.(endBytes) ?? false;
  }

  /** @returns how many bytes were copied: fewer than `length` where there is more to come, 0 at the end of the source */
  async copyFrom(source: OpenFile, fromOffset: number, toOffset: number, length: number): Promise<number> {
    // What is under way here is part of the source, or must not arrive after what is copied over it.
    await Promise.all([source.arrive(), this.writes.drain()]);
    this.#pages.drop(toOffset, toOffset + length);
    const copying = this.#backend.copyFrom(source.inode, fromOffset, toOffset, length);
    const { copiedBytes, state } = await this.#bounded(copying, 'Copying to it');
    if (copiedBytes > 0) this.#changed(state);
    return copiedBytes;
  }

  /** Resolves when all that was written before, and a new file's name, are at the cluster; the error sequence has what was lost. @see BackendFile.arrive */
  async arrive(isReported = false): Promise<void> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.arrive(isReported), 'Making it');
    if (state === undefined || contentVersionCompare(state.contents, this.#newest) <= 0) return;
    this.#lineage.changed(state);
    this.#learn(state);
  }

  /** Nobody here has it open any more. */
  closed(): void {
    this.#pages.closed(this.#lineage.is(this.#newest) && !this.writes.dirty ? this.#newest : null);
  }

  async persist(): Promise<void> {
    this.#learn(await this.#bounded(this.#backend.flush(), 'A flush'));
  }

  /**
   * Whether the last close seals it. An empty file stays open to whoever fills it later, for many programs make a
   * name first; and one of which bytes were lost stays as it is.
   */
  get isToBeSealed(): boolean {
    const isWhole = this.writes.failure === null;
    return this.attributes.policy === 'read-only' && this.written && isWhole && this.#sizeBytes() > 0;
  }

  async seal(): Promise<void> {
    await this.#bounded(this.#backend.seal(), 'Sealing');
  }

  async settle(): Promise<void> {
    await this.#bounded(this.#backend.settle(), 'Settling');
  }

  async state(): Promise<FileState> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.state(), 'Asking for the state');
    this.#learn(state);
    return state;
  }

  /**
   * Puts `attributes`, as the cluster told them, together with what only this mount knows. Bytes under way
   * are waited for, so that the modification time is the primary's and does not change once they are there;
   * while the cluster is slow to take them, size and time are those of this mount.
   */
  async present(attributes: Answered): Promise<Answered> {
    if (this.writes.dirty) {
      const drained = withDeadline(this.#world, this.writes.drain(), DRAIN_FOR_ATTRIBUTES_MS, 'Draining');
      await drained.catch(() => undefined);
    }
    const { validity } = attributes;
    if (validity?.asOf !== this.#heard?.asOf) this.#heardMs = this.#world.nowMs();
    this.#heard = validity;
    // Somebody changed it, perhaps we: blocks read before may be old.
    this.confirm(attributes, validity?.requestedAt ?? Number.NEGATIVE_INFINITY);
    // Otherwise what is on its way to the kernel would come after the word that it is outdated.
    await this.source.withoutOutdated();
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
    if (!this.writes.dirty) {
      this.#tell(presented.contents);
      this.#toldSizeBytes = presented.sizeBytes;
      return presented;
    }
    this.#toldSizeBytes = Math.max(presented.sizeBytes, this.writes.dirtyEnd);
    return { ...this.#asWritten(presented), sizeBytes: this.#toldSizeBytes };
  }

  /** With the times of bytes that are on their way. */
  #asWritten<Known extends Attributes>(attributes: Known): Known {
    const modifiedNs = String(this.#writtenNs);
    return { ...attributes, modifiedNs, changedNs: laterNs(modifiedNs, attributes.changedNs) };
  }

  /** What is known of it, without a question and without waiting for bytes under way. */
  get latest(): Attributes {
    const state = this.#state;
    const isOld = state !== undefined && contentVersionCompare(state.contents, this.attributes.contents) > 0;
    const known = isOld ? withContents(this.attributes, state) : this.attributes;
    return this.writes.dirty ? this.#asWritten(known) : known;
  }

  /** The cluster has a read of this mount. @param from the access time before */
  accessed(from: string, to: string): void {
    if (this.attributes.accessedNs === from) this.attributes = { ...this.attributes, accessedNs: to };
  }

  /** @returns what has become of attributes by what was written here, all of which has arrived; null where that is not known */
  since(attributes: Attributes): Attributes | null {
    if (this.writes.dirty || this.writes.failure !== null) return null;
    const state = this.#state ?? this.attributes;
    // Of a file that is new the cluster has told nothing.
    if (state.contents.epoch === 0) return null;
    if (contentVersionCompare(state.contents, attributes.contents) > 0)
      return withContents(attributes, state);
    return state.sizeBytes === attributes.sizeBytes ? attributes : null;
  }

  /** Null before the first lock. */
  get locks(): OpenLocks | null {
    return this.#locks;
  }

  openLocks(lost: (locks: readonly BackendLock[]) => void): OpenLocks {
    const onLost = (locks: readonly BackendLock[]): void => {
      // What was written under them and has not been sent must not replace what others write under them.
      if (this.writes.dirty) this.writes.abandon(lockLost());
      lost(locks);
    };
    this.#locks ??= new OpenLocks(this.#world, this.#backend.openLocks(onLost));
    return this.#locks;
  }

  /**
   * Whoever has just got a lock shall see what was written under the lock before, at once.
   *
   * @param invalidate makes the kernel forget what it has; called where that may be from before a change made elsewhere
   */
  async refresh(invalidate: () => Promise<void>): Promise<void> {
    await this.#refreshTo((await this.state()).contents, invalidate);
  }

  /**
   * As `refresh`, of contents that the cluster was asked for. What is on its way there from here is not waited for: with it other contents come.
   *
   * Nothing is dropped where the size is another one than the kernel was told. The kernel ignores an answer about attributes if it has dropped
   * the inode since it asked (`fuse_reverse_inval_inode` raises `attr_version`), and a read that has asked would end at the old size.
   */
  async refreshPages({ contents, sizeBytes }: Attributes, invalidate: () => Promise<void>): Promise<void> {
    if (this.writes.dirty || contentVersionCompare(contents, this.#newest) < 0) return;
    if (sizeBytes !== this.#toldSizeBytes) return;
    await this.#refreshTo(contents, invalidate);
  }

  async #refreshTo(contents: ContentVersion, invalidate: () => Promise<void>): Promise<void> {
    if (this.#lineage.is(contents)) return;
    await this.source.withoutOutdated();
    await invalidate();
    this.#tell(contents);
  }

  /** Our own change of what a change of contents does not touch. */
  changed({ mode, uid, gid }: Attributes): void {
    this.attributes = { ...this.attributes, mode, uid, gid };
  }

  /**
   * The kernel puts what it is given over what programs have written, also while that is on its way here: so nothing while
   * somebody may write. Nor does it mind the size: it gets whole pages, within the size that it knows.
   */
  #giver(): GivePages | null {
    const kernel = this.#kernel();
    const isRead = this.handleCount > 0 && this.writerCount === 0 && !this.writes.dirty;
    if (!isRead || kernel?.givePages === undefined) return null;
    const give = kernel.givePages.bind(kernel);
    return async (offset, bytes, isCurrent) => {
      const within = Math.min(bytes.length, this.#toldSizeBytes - offset);
      const whole = Math.floor(within / PAGE_BYTES) * PAGE_BYTES;
      return whole > 0 && give(this.inode, offset, bytes.subarray(0, whole), isCurrent);
    };
  }

  #sizeBytes(): number {
    return this.#state?.sizeBytes ?? this.attributes.sizeBytes;
  }

  #changed(state: FileState): void {
    this.unsettled = true;
    this.written = true;
    if (this.#lineage.changed(state)) this.#heardMs = this.#world.nowMs();
    this.#learn(state);
  }

  /** The newest contents that were heard of, from whomever. */
  get #newest(): ContentVersion {
    return (this.#state ?? this.attributes).contents;
  }

  #tell(contents: ContentVersion): void {
    if (this.#lineage.told(contents)) this.#pages.clear();
  }

  /** Answers of writes in parallel arrive in any order: the newest counts. */
  #learn(state: FileState): void {
    this.source.changed();
    if (contentVersionCompare(state.contents, this.#newest) >= 0) this.#state = pick(state);
  }

  async #bounded<Value>(promise: Promise<Value>, what: string): Promise<Value> {
    try {
      return await withDeadline(this.#world, promise, this.#limitMs, `${what} of file ${this.inode}`);
    } catch (error) {
      this.#room.failed(error);
      throw error;
    }
  }
}

/**
 * Attributes of a live file, of which the catalog knows size and times as they were before it was written.
 *
 * @param known what is known of its contents; a time that was set by hand on newer ones, or on these, stays in force
 */
function withContents<Known extends Attributes>(attributes: Known, known: FileState): Known {
  const { sizeBytes, modifiedNs, contents } = known;
  if (contentVersionCompare(contents, attributes.contents) <= 0) return { ...attributes, sizeBytes };
  // A change of contents is one of the status as well.
  const changedNs = laterNs(modifiedNs, attributes.changedNs);
  return { ...attributes, sizeBytes, modifiedNs, contents, changedNs };
}

function pick(state: FileState): FileState {
  return { sizeBytes: state.sizeBytes, modifiedNs: state.modifiedNs, contents: state.contents };
}
