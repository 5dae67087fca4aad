import { BoundedMap } from '../../base/bounded-map.ts';
import { type CatalogNumber, catalogOfInode } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { allDone } from '../all-done.ts';
import type { Answered } from '../answered.ts';
import type { Attachment, Attachments } from '../attachments.ts';
import type { Junction } from '../backend.ts';
import { ErrnoError, messageOf } from '../errno.ts';
import type { DirectoryPage, FileKernel, Log } from '../transport.ts';
import type { FileSystem, Volume } from '../volume.ts';

const JUNCTIONS_MAX = 10_000;

interface Found {
  readonly attachment: Attachment | null;
  readonly askedMs: number;
}

interface Attached {
  readonly volume: Volume;
  readonly root: number;
  /** The inode, in another volume, at which it was entered last. */
  junction: number;
}

/**
 * The file systems of a mount: of the mounted volume, and of each attached one since a program first crossed its
 * junction. They share nothing: a volume that cannot be reached fails alone.
 */
export class NestedVolumes {
  readonly own: Volume;
  /** Open descriptors of the mount's root. */
  readonly rootHandles = new Set<number>();
  readonly #world: World;
  readonly #attachments: Attachments;
  readonly #enter: (attachment: Attachment) => Volume;
  readonly #log: Log;
  readonly #attached = new Map<CatalogNumber, Attached>();
  /** Open handles of attached volumes; all others are of the mounted one. */
  readonly #handles = new Map<number, Volume>();
  /** By junction. */
  readonly #found = new BoundedMap<number, Found>(JUNCTIONS_MAX);
  #kernel: FileKernel | null = null;
  #recordsAccesses = true;
  #hasEnded = false;

  /** @param enter opens a volume and begins its file system */
  constructor(
    world: World,
    own: Volume,
    attachments: Attachments,
    enter: (attachment: Attachment) => Volume,
    log: Log,
  ) {
    this.#world = world;
    this.own = own;
    this.#attachments = attachments;
    this.#enter = enter;
    this.#log = log;
  }

  /**
   * Where calls about an inode go. A file stays with the mounted volume while programs have it open there for writing,
   * also if its directory has become another volume: that file system alone has the bytes that are not sent yet, and
   * has changes executed where the inode is now.
   */
  of(inode: number): Volume {
    const volume = this.ofNumber(inode);
    return volume !== this.own && this.own.fileSystem.isOpenForWriting(inode) ? this.own : volume;
  }

  /** The volume that has the inode, as far as known. */
  ofNumber(inode: number): Volume {
    return this.#attachedOf(inode)?.volume ?? this.own;
  }

  /**
   * The number by which the mounted volume's file system serves a file that a look-up has found in another volume; null
   * if it does not. The answer of the other one lacks the bytes that are not sent yet.
   */
  heldAs(inode: number): number | null {
    const { own } = this;
    if (this.ofNumber(inode) === own) return null;
    const number = own.fileSystem.formerNumberOf(inode);
    return number !== inode || own.fileSystem.isOpenForWriting(inode) ? number : null;
  }

  ofHandle(handle: number): Volume {
    return this.#handles.get(handle) ?? this.own;
  }

  /** Of all volumes: the mounted one first. */
  fileSystems(): FileSystem[] {
    return [this.own.fileSystem, ...[...this.#attached.values()].map(({ volume }) => volume.fileSystem)];
  }

  opened(handle: number, volume: Volume): void {
    if (volume !== this.own) this.#handles.set(handle, volume);
  }

  /** @returns the volume of the handle, which is no longer open */
  released(handle: number): Volume {
    const volume = this.ofHandle(handle);
    this.#handles.delete(handle);
    return volume;
  }

  /** The junction at which an attached volume was entered, if this is its root. */
  junctionOf(root: number): number | null {
    const attached = this.#attachedOf(root);
    return attached?.root === root ? attached.junction : null;
  }

  /** Entries of a directory with the inodes that look-ups find, as far as junctions were crossed. */
  withRoots(entries: DirectoryPage['entries']): DirectoryPage['entries'] {
    if (this.#attached.size === 0) return entries;
    return entries.map((entry) => {
      const attachment = entry.inode === null ? null : this.#found.get(entry.inode)?.attachment;
      if (attachment != null) return { ...entry, inode: attachment.root };
      const held = entry.inode === null ? null : this.heldAs(entry.inode);
      return held === null ? entry : { ...entry, inode: held };
    });
  }

  /** Whether the inode is a junction that leads nowhere, as far as known. */
  isInert(inode: number): boolean {
    return this.#found.get(inode)?.attachment === null;
  }

  /**
   * Replaces the answer about a junction by one about the root of the attached volume. A junction whose volume is not
   * attached at it, as after an interrupted attach or detach, is not crossed.
   */
  async cross(answered: Answered, junction: Junction): Promise<Answered> {
    const { inode } = answered;
    const attachment = await this.#find(junction, inode);
    if (attachment === null) return answered;
    await this.#sendFormer(attachment);
    const { volume, root } = this.#entered(attachment, inode);
    return volume.fileSystem.attributes(root);
  }

  /** Enters the volume of an inode, of which the kernel has a file handle only, if it is attached in this tree. */
  async enterByNumber(inode: number): Promise<void> {
    const { root } = this.own.fileSystem;
    const attachments = this.#attachments;
    const isOwn = attachments.catalogOf(inode) === this.#ownCatalog();
    if (isOwn || this.#attachedOf(inode) !== undefined) return;
    const askedMs = this.#world.nowMs();
    const found = await attachments.findByNumber(inode, root);
    const [junction, top] = [found?.junctions[0], found?.junctions.at(-1)];
    if (found === null || junction === undefined || top === undefined) return;
    // The mounted volume may share its catalog with others.
    await this.own.fileSystem.lookup(top, '.');
    // To find a directory's name, the kernel looks for its inode in the listing of the parent.
    this.#found.set(junction, { attachment: found.attachment, askedMs });
    await this.#sendFormer(found.attachment);
    this.#entered(found.attachment, junction);
  }

  /**
   * Enters the volume of an inode that is no longer of the volume known here: its directory became a volume of its own.
   * @returns whether another volume here has the inode now
   */
  async enterSplit(inode: number): Promise<boolean> {
    const before = this.ofNumber(inode);
    await this.#attachments.refresh();
    await this.enterByNumber(inode);
    return this.ofNumber(inode) !== before;
  }

  mounted(kernel: FileKernel): void {
    this.#kernel = kernel;
    this.own.fileSystem.mounted(kernel);
  }

  enableAccessTimes(isRecorded: boolean): void {
    this.#recordsAccesses = isRecorded;
    for (const fileSystem of this.fileSystems()) fileSystem.enableAccessTimes(isRecorded);
  }

  /** Ends all volumes; none begins after that. */
  async stop(): Promise<void> {
    this.#hasEnded = true;
    const attached = [...this.#attached.values()].map(({ volume }) => volume);
    await allDone([this.own, ...attached, this.#attachments].map((part) => part.stop()));
  }

  /**
   * The mounted volume's catalog, whose inodes have one file system here. The list has no cycles, but a program may
   * stay in a volume that was attached below the mounted one, and then the mounted one is attached in that.
   */
  #ownCatalog(): CatalogNumber {
    return this.#attachments.catalogOf(this.own.fileSystem.root);
  }

  #attachedOf(inode: number): Attached | undefined {
    return this.#attached.size === 0 ? undefined : this.#attached.get(this.#attachments.catalogOf(inode));
  }

  async #find(junction: Junction, inode: number): Promise<Attachment | null> {
    const known = this.#found.get(inode);
    const askedMs = this.#world.nowMs();
    if (known !== undefined && askedMs - known.askedMs < this.#attachments.ageMaxMs) return known.attachment;
    try {
      const listed = await this.#attachments.find(junction, inode);
      const attachment = listed?.catalog === this.#ownCatalog() ? null : listed;
      // A later request may have been answered first.
      if (askedMs >= (this.#found.get(inode)?.askedMs ?? askedMs))
        this.#found.set(inode, { attachment, askedMs });
      return attachment;
    } catch (error) {
      // A volume that was attached serves without the list.
      if (known === undefined || known.attachment === null) throw error;
      this.#log('debug', 'the list of attached volumes is not known', { error: messageOf(error) });
      return known.attachment;
    }
  }

  /** Sends what the mounted volume has of one that was a part of it: the other file system finds only what was sent. */
  async #sendFormer({ catalog, root }: Attachment): Promise<void> {
    const wasPart = catalogOfInode(root) !== catalog;
    if (wasPart && !this.#attached.has(catalog)) await this.own.fileSystem.drain();
  }

  #entered(attachment: Attachment, junction: number): Attached {
    const { catalog, root } = attachment;
    const known = this.#attached.get(catalog);
    if (known !== undefined) {
      known.junction = junction;
      return known;
    }
    if (this.#hasEnded) throw new ErrnoError('ENODEV', 'The mount has ended');
    const volume = this.#enter(attachment);
    const { fileSystem } = volume;
    if (this.#kernel !== null) fileSystem.mounted(this.#kernel);
    fileSystem.enableAccessTimes(this.#recordsAccesses);
    for (const handle of this.rootHandles) fileSystem.trackErrors(handle);
    const attached = { volume, root, junction };
    this.#attached.set(catalog, attached);
    return attached;
  }
}
