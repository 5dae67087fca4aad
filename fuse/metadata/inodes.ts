import { ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';
import type { Answered } from '../answered.ts';
import type { AttributeChanges, Attributes, FileSystemBackend, RecordedAccess } from '../backend.ts';
import { ErrnoError, isNotFound } from '../errno.ts';
import type { Place } from '../place.ts';
import type { AttributeRequest, Caller, TimeChange } from '../transport.ts';
import type { MetadataCache } from './cache.ts';

const SET_USER_ID = 0o4000;
const SET_GROUP_ID = 0o2000;
const GROUP_EXECUTE = 0o010;
const UNCHANGED_OWNER = 0xffff_ffff;
/** Times are nanoseconds in 64 bits: from 1677 to 2262. */
const TIME_NS_MAX = (1n << 63n) - 1n;
const TIME_NS_MIN = -(1n << 63n);

/** A file that is open here; this mount may know newer attributes than the cluster. */
export interface OpenInode {
  readonly inode: number;
  readonly writes: { drain(): Promise<void> };
  present(attributes: Answered): Promise<Answered>;
  readonly known: {
    /** Attributes from before changes here do not show the holes that these left. */
    readonly areHolesUnknown: boolean;
    changedStatus(attributes: Attributes): void;
    /** The cluster has an access of this mount. @param from the access time before it */
    accessed(from: string, to: string): void;
  };
}

export interface PendingAccessTimes {
  withReads(attributes: Answered): Answered;
  /** Called before an access time is set. Resolves when no earlier access can take effect after that. */
  setting(inode: number): Promise<void>;
  /** Called before another attribute is set. Resolves when the cluster has earlier accesses. */
  flush(scope: { readonly kind: 'inode'; readonly inode: number }): Promise<void>;
}

export interface PendingUnlinks {
  flush(scope: { readonly kind: 'inode'; readonly inode: number }, kinds: readonly ['unlink']): Promise<void>;
}

/** Attributes of inodes: cached or requested, merged with what only this mount knows of open files. */
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

  /** The cluster has an access of this mount: replaces access times that were cached before. */
  accessed({ inode, accessedNs, seen }: RecordedAccess): void {
    this.cache.attributes.accessed(inode, seen.accessedNs, accessedNs);
    this.#openFile(inode)?.known.accessed(seen.accessedNs, accessedNs);
  }

  isOpen(inode: number): boolean {
    return this.#openFile(inode) !== undefined;
  }

  async attributes(inode: number): Promise<Answered> {
    // Enough for the kernel after its own reads and writes: changes of other clients show within the usual time.
    const known = this.cache.attributes.latest(inode) ?? this.#granted(inode);
    return this.present(known ?? (await this.request(inode)));
  }

  /** From the client library's grants, which are current: no request is sent. */
  #granted(inode: number): Answered | undefined {
    const attributes = this.#backend.grantedAttributes(inode);
    return attributes && this.cache.attributes.learn(attributes, this.cache.request());
  }

  async request(inode: number): Promise<Answered> {
    // Answers requested while unlinks are sent are not cached here; a backend with a cache decides itself.
    if (!this.#backend.caches) await this.#pending.flush({ kind: 'inode', inode }, ['unlink']);
    const requestedAt = this.cache.request();
    return this.cache.attributes.learn(await this.#backend.attributes(inode), requestedAt);
  }

  /** Merges the cluster's answer with what only this mount knows. */
  async present(attributes: Answered): Promise<Answered> {
    const file = this.#openFile(attributes.inode);
    if (file === undefined) return this.#accesses.withReads(attributes);
    const presented = await file.present(attributes);
    // By now the cluster has the writes that left these holes, and counts them.
    const counted = file.known.areHolesUnknown
      ? await file.present(await this.request(file.inode))
      : presented;
    return this.#accesses.withReads(counted);
  }

  /**
   * As `request`, before an open. If the kernel has the inode from a cached name, looks that name up: another client
   * may have given it to another file, while this one exists under another name.
   * @throws ErrnoError `ESTALE` in that case: the kernel then looks the name up again
   */
  async requestToOpen(inode: number, thread: number, isLink = false): Promise<Answered> {
    const requestedAt = this.cache.request();
    const names = this.cache.kernel.names.of(inode);
    if (names.length === 0) return this.request(inode);
    const found = await Promise.all(names.map((name) => this.#lookup(name)));
    const lost = names.filter((_, index) => found[index]?.inode !== inode);
    const [attributes] = found;
    if (lost.length === 0 && attributes != null) return this.cache.attributes.learn(attributes, requestedAt);
    this.cache.kernel.refusedOpens.refuse(thread, inode, this.cache.namesOf(inode), isLink);
    for (const name of lost) this.cache.dropStaleName(name, inode);
    throw new ErrnoError(
      'ESTALE',
      `"${lost.map(({ name }) => name).join('", "')}" is not file ${inode} any more`,
    );
  }

  /** As `requestToOpen`, for a file that is to get another name. @throws ErrnoError `ESTALE` */
  async assertNameCurrentToLink(inode: number, thread: number): Promise<void> {
    if (this.cache.kernel.refusedOpens.isRepetition(thread, inode) || !this.cache.isNameCached(inode)) return;
    await this.requestToOpen(inode, thread, true);
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
   * Throws `ESTALE` if the file has no name and is not open here: another client has removed it, and a program that
   * used a cached name means another file. The kernel then looks the name up again.
   */
  assertNamed({ inode, links }: Attributes): void {
    if (links > 0 || this.isOpen(inode)) return;
    this.cache.attributes.drop(inode);
    throw new ErrnoError('ESTALE', `File ${inode} was unlinked`);
  }

  /**
   * `chown` with neither an owner nor a group sets ctime, and clears the set-id bits of a file. The kernel sends the
   * same, for any user, before a write to a file with such bits; the write clears them itself.
   */
  async touch(inode: number, { uid }: Caller): Promise<Answered> {
    const { kind, mode, uid: owner } = await this.request(inode);
    const isOwner = uid === 0 || uid === owner;
    return this.change(inode, { mode: kind === 'directory' || !isOwner ? mode : withoutPrivileges(mode) });
  }

  async change(inode: number, request: AttributeRequest): Promise<Answered> {
    const file = this.#openFile(inode);
    if (request.modified !== undefined) await file?.writes.drain();
    const changes = changesOf(this.#world, request);
    const changesOwner = changes.uid !== undefined || changes.gid !== undefined;
    if (changesOwner && changes.mode !== undefined && changes.mode !== withoutPrivileges(changes.mode)) {
      const { kind } = await this.attributes(inode);
      if (kind !== 'directory') changes.mode = withoutPrivileges(changes.mode);
    }
    if (Object.keys(changes).length === 0) return this.attributes(inode);
    // Earlier accesses, even those being sent, must not override the change.
    if (changes.accessedNs !== undefined) await this.#accesses.setting(inode);
    else await this.#accesses.flush({ kind: 'inode', inode });
    const { attributes: records } = this.cache;
    const begunAt = records.changing(inode);
    const attributes = records.changed(await this.#setAttributes(inode, changes, request), begunAt);
    this.assertNamed(attributes);
    this.#openFile(inode)?.known.changedStatus(attributes);
    return this.present(attributes);
  }

  /** Sets attributes. An append-only file, which only the cluster recognizes, allows just the current time for both. */
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

  /** Sets the flags of an inode, of which nothing may be pending. @returns the new attributes */
  async changeFlags(inode: number, flags: readonly InodeFlag[]): Promise<Answered> {
    const { attributes: records } = this.cache;
    const begunAt = records.changing(inode);
    const attributes = records.changed(await this.#backend.setFlags(inode, flags), begunAt);
    this.#openFile(inode)?.known.changedStatus(attributes);
    return this.present(attributes);
  }
}

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

/** The mode without set-user-id, and without set-group-id if the group may execute. */
export function withoutPrivileges(mode: number): number {
  const cleared = mode & ~SET_USER_ID;
  return (cleared & GROUP_EXECUTE) !== 0 ? cleared & ~SET_GROUP_ID : cleared;
}

export function inheritsGroup({ mode }: Pick<Attributes, 'mode'>): boolean {
  return (mode & SET_GROUP_ID) !== 0;
}

/** Like Linux, clamps times that cannot be stored. */
function timeNs(world: World, change: TimeChange): string {
  const ns = change.kind === 'now' ? nowNs(world) : change.ns;
  return String(ns > TIME_NS_MAX ? TIME_NS_MAX : ns < TIME_NS_MIN ? TIME_NS_MIN : ns);
}
