import { ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';
import type { Answered } from '../answered.ts';
import type { AttributeChanges, Attributes, FileSystemBackend, NotedAccess } from '../backend.ts';
import { ErrnoError, isNotFound } from '../errno.ts';
import type { Place } from '../place.ts';
import type { AttributeRequest, Caller, TimeChange } from '../transport.ts';
import type { MetadataCache } from './cache.ts';

const SET_USER_ID = 0o4000;
const SET_GROUP_ID = 0o2000;
const GROUP_EXECUTE = 0o010;
const UNCHANGED_OWNER = 0xffff_ffff;
/** Times are kept as nanoseconds in 64 bits: from 1677 to 2262. */
const TIME_NS_MAX = (1n << 63n) - 1n;
const TIME_NS_MIN = -(1n << 63n);

/** A file that is open on this mount, which knows more of its attributes than the cluster. */
export interface OpenInode {
  readonly inode: number;
  readonly writes: { drain(): Promise<void> };
  /** @returns attributes together with what is known of the open file */
  present(attributes: Answered): Promise<Answered>;
  readonly known: {
    /** Attributes from before the changes here do not say which holes there are. */
    readonly areHolesUnknown: boolean;
    /** Attributes that a change of contents does not touch were changed here. */
    changedStatus(attributes: Attributes): void;
    /** The cluster has a read of this mount. @param from the access time before */
    accessed(from: string, to: string): void;
  };
}

/** Access times of reads of this mount that the cluster may not have yet. */
export interface PendingAccessTimes {
  /** @returns attributes with the access time of reads of this mount */
  shown(attributes: Answered): Answered;
  /** Before an access time is set: resolves when no earlier read takes effect after that. */
  setting(inode: number): Promise<void>;
  /** Before another attribute is changed: resolves when the cluster has the earlier reads. */
  flush(scope: { readonly kind: 'inode'; readonly inode: number }): Promise<void>;
}

/** Unlinks that the cluster does not have yet. */
export interface PendingUnlinks {
  flush(scope: { readonly kind: 'inode'; readonly inode: number }, kinds: readonly ['unlink']): Promise<void>;
}

/** Attributes of inodes: as remembered, as the cluster tells them, and with what only this mount knows of open files. */
export class Inodes {
  readonly cache: MetadataCache;
  readonly #world: World;
  readonly #backend: FileSystemBackend;
  readonly #openFile: (inode: number) => OpenInode | undefined;
  readonly #accesses: PendingAccessTimes;
  readonly #pending: PendingUnlinks;

  constructor(
    world: World,
    backend: FileSystemBackend,
    cache: MetadataCache,
    openFile: (inode: number) => OpenInode | undefined,
    accesses: PendingAccessTimes,
    pending: PendingUnlinks,
  ) {
    this.#pending = pending;
    this.cache = cache;
    this.#world = world;
    this.#backend = backend;
    this.#openFile = openFile;
    this.#accesses = accesses;
  }

  /** The cluster has a read of this mount: access times that were known before it are replaced. */
  accessed({ inode, accessedNs, seen }: NotedAccess): void {
    this.cache.attributes.accessed(inode, seen.accessedNs, accessedNs);
    this.#openFile(inode)?.known.accessed(seen.accessedNs, accessedNs);
  }

  isOpen(inode: number): boolean {
    return this.#openFile(inode) !== undefined;
  }

  async attributes(inode: number): Promise<Answered> {
    // The kernel asks again after each read and write of its own: what others change of the file shows within the usual time all the same.
    const known = this.cache.attributes.latest(inode) ?? this.#granted(inode);
    return this.present(known ?? (await this.ask(inode)));
  }

  /** What the client library has by grant, which is current: no request is made of it. */
  #granted(inode: number): Answered | undefined {
    const attributes = this.#backend.grantedAttributes(inode);
    return attributes && this.cache.attributes.learn(attributes, this.cache.request());
  }

  /** As they are at the cluster now. */
  async ask(inode: number): Promise<Answered> {
    // What is requested while unlinks arrive is not valid here; a backend that caches answers knows what is.
    if (!this.#backend.caches) await this.#pending.flush({ kind: 'inode', inode }, ['unlink']);
    const requestedAt = this.cache.request();
    return this.cache.attributes.learn(await this.#backend.attributes(inode), requestedAt);
  }

  /** Attributes as the cluster answered them, together with what only this mount knows. */
  async present(attributes: Answered): Promise<Answered> {
    const file = this.#openFile(attributes.inode);
    if (file === undefined) return this.#accesses.shown(attributes);
    const presented = await file.present(attributes);
    // What was written here has arrived meanwhile, and the cluster counts the holes that it has left.
    const counted = file.known.areHolesUnknown ? await file.present(await this.ask(file.inode)) : presented;
    return this.#accesses.shown(counted);
  }

  /**
   * As `ask`, of a file that is about to be opened. Where the kernel may have it from a name that it was told a moment ago, that name is
   * asked for: another mount may have given it to another file since, while this one lives on under another name.
   *
   * @param thread that opens it
   * @param isLink it gets a second name, and is not opened
   * @throws ErrnoError `ESTALE` in that case: the kernel looks the name up again
   */
  async askToOpen(inode: number, thread: number, isLink = false): Promise<Answered> {
    const requestedAt = this.cache.request();
    const names = this.cache.kernel.names.of(inode);
    if (names.length === 0) return this.ask(inode);
    const found = await Promise.all(names.map((name) => this.#lookup(name)));
    const lost = names.filter((_, place) => found[place]?.inode !== inode);
    const [attributes] = found;
    if (lost.length === 0 && attributes != null) return this.cache.attributes.learn(attributes, requestedAt);
    this.cache.kernel.refusedOpens.refuse(thread, inode, this.cache.namesOf(inode), isLink);
    for (const name of lost) this.cache.lost(name, inode);
    throw new ErrnoError(
      'ESTALE',
      `"${lost.map(({ name }) => name).join('", "')}" is not file ${inode} any more`,
    );
  }

  /** As by an open, of a file that is to get a second name. @throws ErrnoError `ESTALE` */
  async assertMeantToLink(inode: number, thread: number): Promise<void> {
    if (this.cache.kernel.refusedOpens.isRepetition(thread, inode) || !this.cache.isNameCached(inode)) return;
    await this.askToOpen(inode, thread, true);
  }

  async #lookup({ parent, name }: Place): Promise<Attributes | null> {
    try {
      return await this.#backend.lookup(parent, name);
    } catch (error) {
      if (isNotFound(error)) return null;
      throw error;
    }
  }

  /**
   * The kernel keeps names for a moment. A file that has lost its last one since, on another mount, is not the one that is
   * meant, unless it is open here: told so, the kernel looks the name up again.
   */
  assertNamed({ inode, links }: Attributes): void {
    if (links > 0 || this.isOpen(inode)) return;
    this.cache.attributes.drop(inode);
    throw new ErrnoError('ESTALE', `File ${inode} has lost its name`);
  }

  /**
   * A change of nothing (`chown` with neither an owner nor a group): the time of the last change of status is the present, and the set-id bits
   * of a file go. The kernel says the same, and of anybody, before a write to a file with such bits, which takes them away itself.
   */
  async touch(inode: number, { uid }: Caller): Promise<Answered> {
    const { kind, mode, uid: owner } = await this.ask(inode);
    const isOwner = uid === 0 || uid === owner;
    return this.change(inode, { mode: kind === 'directory' || !isOwner ? mode : withoutPrivileges(mode) });
  }

  /** @returns what the inode's attributes are now */
  async change(inode: number, request: AttributeRequest): Promise<Answered> {
    const file = this.#openFile(inode);
    if (request.modified !== undefined) await file?.writes.drain();
    const changes = changesOf(this.#world, request);
    const owned = changes.uid !== undefined || changes.gid !== undefined;
    if (owned && changes.mode !== undefined && changes.mode !== withoutPrivileges(changes.mode)) {
      const { kind } = await this.attributes(inode);
      if (kind !== 'directory') changes.mode = withoutPrivileges(changes.mode);
    }
    if (Object.keys(changes).length === 0) return this.attributes(inode);
    // What was read before does not count after it, also where it is on its way.
    if (changes.accessedNs !== undefined) await this.#accesses.setting(inode);
    else await this.#accesses.flush({ kind: 'inode', inode });
    const { attributes: records } = this.cache;
    const begunAt = records.changing(inode);
    const attributes = records.changed(await this.#setAttributes(inode, changes, request), begunAt);
    this.assertNamed(attributes);
    this.#openFile(inode)?.known.changedStatus(attributes);
    return this.present(attributes);
  }

  /** What is append-only takes the present as both times, and nothing else. Whether it is the cluster says: other clients set flags. */
  async #setAttributes(
    inode: number,
    changes: AttributeChanges,
    { accessed, modified, ...others }: AttributeRequest,
  ): Promise<Attributes> {
    try {
      return await this.#backend.setAttributes(inode, changes);
    } catch (error) {
      const isNow = accessed?.kind === 'now' && modified?.kind === 'now';
      const isTouch = isNow && Object.keys(others).length === 0;
      if (!isTouch || !(error instanceof ServiceError) || error.code !== 'protected') throw error;
      return this.#backend.setAttributes(inode, { ...changes, touches: true });
    }
  }

  /** Nothing of the inode is pending. @returns what its attributes are now */
  async changeFlags(inode: number, flags: readonly InodeFlag[]): Promise<Answered> {
    const { attributes: records } = this.cache;
    const begunAt = records.changing(inode);
    const attributes = records.changed(await this.#backend.setFlags(inode, flags), begunAt);
    this.#openFile(inode)?.known.changedStatus(attributes);
    return this.present(attributes);
  }
}

/** @returns what the kernel asks for, in the cluster's form */
export function changesOf(
  world: World,
  { mode, uid, gid, accessed, modified }: AttributeRequest,
): {
  -readonly [Key in keyof AttributeChanges]: AttributeChanges[Key];
} {
  return {
    ...(mode !== undefined && { mode: mode & 0o7777 }),
    ...(uid !== undefined && uid !== UNCHANGED_OWNER && { uid }),
    ...(gid !== undefined && gid !== UNCHANGED_OWNER && { gid }),
    ...(accessed !== undefined && { accessedNs: timeNs(world, accessed) }),
    ...(modified !== undefined && { modifiedNs: timeNs(world, modified) }),
  };
}

/** @returns the mode without set-user-id, and without set-group-id where the group may execute */
export function withoutPrivileges(mode: number): number {
  const cleared = mode & ~SET_USER_ID;
  return (cleared & GROUP_EXECUTE) !== 0 ? cleared & ~SET_GROUP_ID : cleared;
}

/** Whether what is created in a directory is of its group, and not of the program's. */
export function inheritsGroup({ mode }: Pick<Attributes, 'mode'>): boolean {
  return (mode & SET_GROUP_ID) !== 0;
}

/** As Linux has it: a time that cannot be kept becomes the nearest one that can. */
function timeNs(world: World, change: TimeChange): string {
  const ns = change.kind === 'now' ? nowNs(world) : change.ns;
  return String(ns > TIME_NS_MAX ? TIME_NS_MAX : ns < TIME_NS_MIN ? TIME_NS_MIN : ns);
}
