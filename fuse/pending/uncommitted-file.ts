import { ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { BIRTH_BYTES_MAX } from '../../wire/births.ts';
import {
  type AttributeChanges,
  type Attributes,
  type BackendFile,
  type BackendLock,
  type BackendLocks,
  type BackendRange,
  type BirthBackend,
  type BirthOutcome,
  type ContentVersion,
  contentVersionCompare,
  type FileState,
  type NewFile,
} from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import { withoutPrivileges } from '../metadata/inodes.ts';

/** How the cluster hears of it: with all of its contents, or as of any file that is about to be written, `changed` if that is in this moment. */
export type Way = 'born' | 'made' | 'changed';

/** The smallest objects of which files are made. */
const OBJECT_BYTES_MIN = 4096;
/** The contents of a file that was created, and of one that was borne, before anything else has changed them. */
const CREATED: ContentVersion = { epoch: 0, seq: 0 };
const BORNE: ContentVersion = { epoch: 1, seq: 1 };

const FINAL: ReadonlySet<string> = new Set(['exists', 'not-found', 'not-directory', 'precondition-failed']);

export interface UncommittedFileParts {
  readonly bear: (file: NewFile) => Promise<BirthOutcome>;
  readonly make: BirthBackend['make'];
  readonly setAttributes: (inode: number, changes: AttributeChanges) => Promise<Attributes>;
  /** The file as the cluster has it. */
  readonly open: (attributes: Attributes) => BackendFile;
  /** Told in the same turn in which the cluster is known to have it, and since when, if that is known. */
  readonly there: (file: UncommittedFile, namedNs: string | null) => void;
  /** An attempt to store it has failed; where the cluster has a file of this number that others may have written, `isThere`. */
  readonly failed: (file: UncommittedFile, error: unknown) => void;
  /**
   * No attempt to store it follows.
   *
   * @param isReported its creation, or a sync or close of its own, has failed by it
   */
  readonly lost: (file: UncommittedFile, error: unknown, isReported: boolean) => void;
  /** What became of its birth is not known, and it is made in the ordinary way. */
  readonly doubted: (file: UncommittedFile, error: unknown) => void;
  /** So many more bytes are kept here; negative: fewer. */
  readonly kept: (bytes: number) => void;
  /** No more bytes are to be kept here. */
  readonly isFull: () => boolean;
  /** Whatever group it has here, it gets its directory's. */
  readonly inheritsGroup: boolean;
}

/**
 * A new file that only this mount knows of: its contents and attributes are kept here until the cluster is told of all of it at once. It is told
 * when the file is closed or synced, when somebody else may look, and before anything that has to happen at the cluster. From then on it
 * is a file as any other.
 */
export class UncommittedFile implements BackendFile {
  readonly parent: number;
  readonly name: string;
  readonly inode: number;
  readonly bornMs: number;
  readonly #world: World;
  readonly #parts: UncommittedFileParts;
  /** What the cluster will know, size and version left out. */
  #attributes: Attributes;
  /** Its times are not those of its contents. */
  #isTimed = false;
  #bytes = Buffer.alloc(0);
  #sizeBytes = 0;
  /** Of which `kept` was told. */
  #keptBytes = 0;
  #seq = 0;
  #coming: Promise<BackendFile> | null = null;
  #there: BackendFile | null = null;
  /** How the cluster got its contents, where all of them and nothing else. */
  #arrival: FileState | undefined;
  /**
   * What earlier requests of unknown outcome may have left at the cluster: nothing, the file with all of its contents, or a file
   * that was created and perhaps written.
   */
  #attempted: 'nothing' | 'birth' | 'creation' = 'nothing';
  /** Why no attempt follows: the name, or the contents, are another client's, or are gone. */
  #refusal: { readonly error: unknown } | null = null;
  /** What became of the file after its close. */
  #ending: Promise<BackendFile> | null = null;
  /** It was closed, no program had learned of a failure, and it is not stored. */
  #isLate = false;
  /** As the catalog has created it; null where the cluster does not know of it. */
  readonly #named: Attributes | null;
  /** Its creation, or a sync or close of its own, has failed: its program knows that it is not stored. */
  #isReported = false;
  /** The catalog has heard everything of it. */
  #isSettled = false;

  constructor(
    world: World,
    place: { readonly parent: number; readonly name: string },
    attributes: Attributes,
    parts: UncommittedFileParts,
    isNamed = false,
  ) {
    this.#world = world;
    this.bornMs = world.nowMs();
    this.parent = place.parent;
    this.name = place.name;
    this.inode = attributes.inode;
    this.#attributes = attributes;
    this.#parts = parts;
    this.#named = isNamed ? attributes : null;
  }

  /** The catalog has created it: others see its name, and no contents. */
  get isNamed(): boolean {
    return this.#named !== null;
  }

  /** No request has told the cluster of what is kept here. */
  get isUncommitted(): boolean {
    return this.#coming === null && this.#refusal === null && this.#attempted === 'nothing';
  }

  /** No attempt to store it follows: it is kept for its handles, whose calls fail. */
  get isRefused(): boolean {
    return this.#refusal !== null;
  }

  get isThere(): boolean {
    return this.#there !== null;
  }

  get attributes(): Attributes {
    const contents = { epoch: 0, seq: this.#seq };
    return { ...this.#attributes, sizeBytes: this.#sizeBytes, contents };
  }

  /** @returns whether such a change can be made here, of which the cluster then hears together with the file */
  takes({ gid }: AttributeChanges): boolean {
    return this.isUncommitted && !this.isNamed && (gid === undefined || !this.#parts.inheritsGroup);
  }

  /** Changes them here, where it takes them. */
  setAttributes(changes: AttributeChanges): Attributes {
    const { uid, gid, accessedNs, modifiedNs } = changes;
    const isOwned = uid !== undefined || gid !== undefined;
    const before = this.#attributes;
    const mode = changes.mode ?? (isOwned ? withoutPrivileges(before.mode) : before.mode);
    this.#attributes = {
      ...before,
      mode,
      uid: uid ?? before.uid,
      gid: gid ?? before.gid,
      accessedNs: accessedNs ?? before.accessedNs,
      modifiedNs: modifiedNs ?? before.modifiedNs,
      changedNs: String(nowNs(this.#world)),
    };
    this.#isTimed ||= accessedNs !== undefined || modifiedNs !== undefined;
    return this.attributes;
  }

  /**
   * Tells the cluster of it. A way that failed without a definite answer is tried anew by whoever asks next.
   *
   * @returns the file as the cluster has it
   */
  come(way: Way): Promise<BackendFile> {
    if (this.#refusal !== null) return Promise.reject(this.#refusal.error);
    const isAgain = this.#attempted !== 'nothing' && way === 'born';
    this.#coming ??= this.#come(isAgain ? 'made' : way).catch((error: unknown) => {
      this.#coming = null;
      if (this.#refusal === null && isFinal(error)) this.#refusal = { error };
      this.#parts.failed(this, error);
      throw error;
    });
    return this.#coming;
  }

  keeps(endBytes: number): boolean {
    return this.isUncommitted && endBytes <= BIRTH_BYTES_MAX && !this.#parts.isFull();
  }

  /** Whether all bytes of an object would be a hole: a file is borne as data from its beginning to its end. */
  #leavesHole(offset: number): boolean {
    const firstObject = Math.ceil(this.#sizeBytes / OBJECT_BYTES_MIN);
    return (firstObject + 1) * OBJECT_BYTES_MIN <= offset;
  }

  async arrive(isReported = false): Promise<FileState | undefined> {
    await this.#report(this.come('born'), isReported);
    return this.#arrival;
  }

  async range(offset: number, length: number): Promise<BackendRange | null> {
    return (await this.#there?.range?.(offset, length)) ?? null;
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    if (this.#there !== null) return this.#there.read(offset, length);
    // A copy: what is written next may be written in its place.
    return Buffer.from(this.#bytes.subarray(offset, Math.min(offset + length, this.#sizeBytes)));
  }

  write(offset: number, parts: readonly Uint8Array[]): Promise<FileState> {
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    return this.#change(
      { offset, endBytes: offset + length },
      (file) => file.write(offset, parts),
      () => this.#put(offset, parts),
    );
  }

  writeParts(parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[]): Promise<FileState> {
    const offset = Math.min(...parts.map((part) => part.offset));
    const endBytes = Math.max(...parts.map((part) => part.offset + part.bytes.length));
    return this.#change(
      { offset, endBytes },
      (file) => file.writeParts(parts),
      () => {
        for (const { offset, bytes } of parts) this.#put(offset, [bytes]);
      },
    );
  }

  append(bytes: Uint8Array): Promise<FileState> {
    return this.#change(
      { offset: this.#sizeBytes, endBytes: this.#sizeBytes + bytes.length },
      (file) => file.append(bytes),
      () => this.#put(this.#sizeBytes, [bytes]),
    );
  }

  truncate(sizeBytes: number): Promise<FileState> {
    return this.#change(
      { offset: sizeBytes, endBytes: sizeBytes },
      (file) => file.truncate(sizeBytes),
      () => {
        this.#bytes.fill(0, Math.min(sizeBytes, this.#sizeBytes), this.#sizeBytes);
        this.#reserve(sizeBytes);
        this.#sizeBytes = sizeBytes;
      },
    );
  }

  punch(from: number, to: number, grows: boolean): Promise<FileState> {
    return this.#after((file) => file.punch(from, to, grows));
  }

  async seek(offset: number, what: 'data' | 'hole'): Promise<number | null> {
    return (await this.come('born')).seek(offset, what);
  }

  copyFrom(
    source: number,
    fromOffset: number,
    toOffset: number,
    length: number,
  ): ReturnType<BackendFile['copyFrom']> {
    return this.#after((file) => file.copyFrom(source, fromOffset, toOffset, length));
  }

  async flush(): Promise<FileState> {
    return (await this.#report(this.come('born'))).flush();
  }

  async seal(): Promise<void> {
    await (await this.come('born')).seal();
  }

  /** Resolves when the cluster has the file, or its late error is known. @throws why it is not stored, unless that is a late error */
  async stored(): Promise<void> {
    await (this.#ending ?? this.come('born')).catch((error: unknown) => {
      if (!this.#isLate) throw error;
    });
  }

  async settle(): Promise<void> {
    const isReported = this.#isReported;
    this.#ending = this.come('born').catch((error: unknown) => {
      this.#release();
      this.#isLate = !isReported;
      this.#parts.lost(this, error, isReported);
      throw error;
    });
    const file = await this.#ending;
    if (!this.#isSettled) await file.settle();
  }

  openLocks(lost: (locks: readonly BackendLock[]) => void): BackendLocks {
    return locksOf(async () => (await this.come('made')).openLocks(lost));
  }

  async state(): Promise<FileState> {
    if (this.#there !== null) return this.#there.state();
    return this.#state();
  }

  /** @param change what becomes of what is kept here, where the file still is and remains small */
  async #change(
    { offset, endBytes }: { readonly offset: number; readonly endBytes: number },
    atCluster: (file: BackendFile) => Promise<FileState>,
    change: () => void,
  ): Promise<FileState> {
    if (!this.keeps(endBytes) || this.#leavesHole(offset)) return this.#after(atCluster);
    change();
    const before = { epoch: 0, seq: this.#seq++ };
    const atNs = String(nowNs(this.#world));
    this.#attributes = { ...this.#attributes, modifiedNs: atNs, changedNs: atNs };
    return { ...this.#state(), before };
  }

  async #report<Result>(work: Promise<Result>, isReported = true): Promise<Result> {
    try {
      return await work;
    } catch (error) {
      this.#isReported ||= isReported;
      throw error;
    }
  }

  async #after<Result>(use: (file: BackendFile) => Promise<Result>): Promise<Result> {
    // Most likely there is more to come: a file that is made is led by whoever made it.
    const file = await this.come('changed');
    this.#isSettled = false;
    return use(file);
  }

  #put(offset: number, parts: readonly Uint8Array[]): void {
    let at = offset;
    this.#reserve(offset + parts.reduce((sum, part) => sum + part.length, 0));
    for (const part of parts) {
      this.#bytes.set(part, at);
      at += part.length;
    }
    this.#sizeBytes = Math.max(this.#sizeBytes, at);
  }

  #reserve(sizeBytes: number): void {
    const before = this.#bytes.length;
    if (sizeBytes <= before) return;
    const larger = Buffer.alloc(
      before === 0 ? sizeBytes : Math.min(BIRTH_BYTES_MAX, Math.max(sizeBytes, 2 * before)),
    );
    this.#bytes.copy(larger);
    this.#bytes = larger;
    this.#keptBytes += larger.length - before;
    this.#parts.kept(larger.length - before);
  }

  #release(): void {
    this.#bytes = Buffer.alloc(0);
    this.#parts.kept(-this.#keptBytes);
    this.#keptBytes = 0;
  }

  #state(): FileState {
    return stateOf(this.attributes);
  }

  async #come(way: Way): Promise<BackendFile> {
    const { mode, uid, gid, accessedNs, modifiedNs, changedNs } = this.#attributes;
    const file: NewFile = {
      ...{ parent: this.parent, name: this.name, inode: this.inode, mode, uid, gid },
      ...(this.isNamed ? { isNamed: true as const } : {}),
      ...{ accessedNs, modifiedNs, changedNs, contents: this.#bytes.subarray(0, this.#sizeBytes) },
    };
    const born = way === 'born' ? await this.#create(file) : null;
    const { there, namedNs, arrival, isSettled } = born ?? (await this.#make(file, way));
    this.#isSettled = isSettled;
    this.#there = there;
    // What comes later is changed there: until now it was these contents.
    if (arrival !== null) this.#arrival = { ...arrival, before: this.attributes.contents };
    this.#parts.there(this, namedNs);
    this.#release();
    return there;
  }

  /** @returns null where it has to be made in the ordinary way */
  async #create(file: NewFile): Promise<Arrived | null> {
    let outcome: BirthOutcome;
    try {
      outcome = await this.#parts.bear(file);
    } catch (error) {
      // A request that creates it by its number finds it, or creates it.
      this.#parts.doubted(this, error);
      this.#attempted = 'birth';
      return null;
    }
    if (outcome.kind === 'unborn') return null;
    if (outcome.kind === 'refused') throw outcome.error;
    const { attributes, namedNs } = outcome;
    return { there: this.#parts.open(attributes), namedNs, arrival: stateOf(attributes), isSettled: true };
  }

  /**
   * Each attempt, the first one included, writes to the file as it was created: another client may have opened the file and written to
   * it since this process has checked anything.
   */
  async #make(file: NewFile, way: Way): Promise<Arrived> {
    const before = this.#attempted;
    this.#attempted = 'creation';
    const { attributes, created, namedNs } =
      this.#named === null
        ? await this.#parts.make(file)
        : { attributes: this.#named, created: false, namedNs: null };
    const there = this.#parts.open(attributes);
    const found = stateOf(attributes);
    // The birth took effect, with all contents; what others have written since is theirs.
    if (before === 'birth' && !created && !this.isNamed) {
      const isOwn = !attributes.live && contentVersionCompare(attributes.contents, BORNE) === 0;
      return { there, namedNs, arrival: isOwn ? found : null, isSettled: isOwn };
    }
    const { inode, contents, accessedNs, modifiedNs } = file;
    const written = contents.length === 0 ? found : await this.#write(there, contents);
    const isAlone = attributes.sizeBytes === 0 && (written === found || isAfter(written, found));
    // Programs here have seen these times.
    const isTimed = this.#isTimed || (contents.length > 0 && way !== 'changed');
    if (isTimed) await this.#parts.setAttributes(inode, { accessedNs, modifiedNs });
    const arrival = isTimed ? { ...written, modifiedNs } : written;
    return { there, namedNs, arrival: isAlone ? arrival : null, isSettled: false };
  }

  /** @throws ErrnoError `EIO` where the file was written since it was created */
  async #write(there: BackendFile, contents: Uint8Array): Promise<FileState> {
    try {
      return await there.write(0, [contents], CREATED);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'precondition-failed') throw error;
      // Nothing else was ordered in the first epoch of a file that was created by a reserved number.
      const state = await there.state();
      if (contentVersionCompare(state.contents, BORNE) === 0) return state;
      const message = 'The file was written since it was created, perhaps by an attempt of unknown outcome';
      this.#refusal = { error: new ErrnoError('EIO', message) };
      // Open handles read what the file has, not what was refused.
      this.#there = there;
      this.#release();
      throw this.#refusal.error;
    }
  }
}

interface Arrived {
  readonly there: BackendFile;
  readonly namedNs: string | null;
  /** Null where the cluster may have others than these contents. */
  readonly arrival: FileState | null;
  /** The catalog knows size and times. */
  readonly isSettled: boolean;
}

/** Without this name and this number another attempt cannot succeed, or only over what another client has made since. */
function isFinal(error: unknown): boolean {
  return error instanceof ServiceError && FINAL.has(error.code);
}

function stateOf({ sizeBytes, modifiedNs, contents }: FileState): FileState {
  return { sizeBytes, modifiedNs, contents };
}

function isAfter({ before }: FileState, { contents }: FileState): boolean {
  return before !== undefined && contentVersionCompare(before, contents) === 0;
}

/** Locks of a file that is opened at the cluster when the first of them is asked for. */
function locksOf(open: () => Promise<BackendLocks>): BackendLocks {
  let opened: BackendLocks | null = null;
  let opening: Promise<BackendLocks> | null = null;
  const locks = (): Promise<BackendLocks> => {
    opening ??= open().then((there) => {
      opened = there;
      return there;
    });
    return opening;
  };
  return {
    lock: async (lock, waits, signal) => (await locks()).lock(lock, waits, signal),
    unlock: async (range) => (await locks()).unlock(range),
    holder: async (lock) => (await locks()).holder(lock),
    isLost: (kind, owner) => opened?.isLost(kind, owner) ?? false,
    close: async () => {
      if (opening !== null) await (await opening).close();
    },
  };
}
