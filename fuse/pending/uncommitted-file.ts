import { laterNs, nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { NEW_FILE_BYTES_MAX } from '../../wire/new-files.ts';
import type {
  AttributeChanges,
  Attributes,
  BackendFile,
  BackendLock,
  BackendLocks,
  BackendRange,
  FileState,
} from '../backend.ts';
import { withoutPrivileges } from '../metadata/inodes.ts';
import type { Place } from '../place.ts';
import type { Budget } from './budget.ts';
import { BufferedContents } from './buffered-contents.ts';
import { type CommitRequests, FileCommit, stateOf } from './file-commit.ts';

export interface UncommittedFileParts extends CommitRequests {
  /**
   * Called in the tick in which the cluster is known to have the file; with its number there, and the directory's
   * times, if known.
   */
  readonly committed: (file: UncommittedFile, inode: number, namedNs: string | null) => void;
  readonly failed: (file: UncommittedFile, error: unknown) => void;
  /** @param isReported a program got the failure, by its create, sync or close */
  readonly lost: (file: UncommittedFile, error: unknown, isReported: boolean) => void;
  readonly unknown: (file: UncommittedFile, error: unknown) => void;
  readonly budget: Pick<Budget, 'add' | 'release' | 'isFull'>;
  /** The cluster will replace its group by the directory's. */
  readonly inheritsGroup: boolean;
  /** Attributes can be changed in memory: they are sent with the file. */
  readonly takesAttributes: boolean;
  /** The catalog obeys conditions of changes of attributes. */
  readonly isConditional: boolean;
  /** No other client can have looked the file up. */
  readonly isDelegated: () => boolean;
}

/**
 * A new file in memory. The cluster gets all of it at once: at its close or sync, before another client may look it up,
 * and before any operation at the cluster. After that calls pass to the file there.
 */
export class UncommittedFile implements BackendFile {
  readonly parent: number;
  readonly name: string;
  readonly inode: number;
  readonly sinceMs: number;
  /** The catalog has created it: other clients see its name, and no contents. */
  readonly isNamed: boolean;
  readonly commit: FileCommit;
  readonly #world: World;
  readonly #parts: UncommittedFileParts;
  readonly #contents: BufferedContents;
  /** Without size and version. */
  #attributes: Attributes;
  #areTimesSet = false;
  /** A program has set its mode or owner. */
  #areModeAndOwnerSet = false;
  #seq = 0;
  /** The commit that the close started. */
  #closeCommit: Promise<BackendFile> | null = null;
  /** The failure after its close reached no program: it is a late error. */
  #isLate = false;
  /** A program got the failure, by its create, sync or close. */
  #isReported = false;

  constructor(
    world: World,
    place: Place,
    attributes: Attributes,
    parts: UncommittedFileParts,
    isNamed = false,
  ) {
    this.#world = world;
    this.sinceMs = world.nowMs();
    this.parent = place.parent;
    this.name = place.name;
    this.inode = attributes.inode;
    this.isNamed = isNamed;
    this.#attributes = attributes;
    this.#parts = parts;
    this.#contents = new BufferedContents(parts.budget);
    const of = {
      file: () => {
        const { mode, uid, gid, accessedNs, modifiedNs, changedNs } = this.#attributes;
        return {
          ...{ parent: this.parent, name: this.name, inode: this.inode, mode, uid, gid },
          ...(isNamed ? { hasEntry: true as const } : {}),
          ...{ accessedNs, modifiedNs, changedNs, contents: this.#contents.bytes },
        };
      },
      changes: () => this.#changes(),
      isConditional: parts.isConditional,
      changed: ({ changedNs }: Attributes) => {
        const { modifiedNs } = this.#attributes;
        this.#attributes = { ...this.#attributes, changedNs: laterNs(changedNs, modifiedNs) };
      },
      isTimed: (way: string) => this.#areTimesSet || (this.#contents.sizeBytes > 0 && way !== 'changed'),
      version: () => this.attributes.contents,
      committed: (inode: number, namedNs: string | null) => parts.committed(this, inode, namedNs),
      failed: (error: unknown) => parts.failed(this, error),
      unknown: (error: unknown) => parts.unknown(this, error),
      release: () => this.#contents.release(),
    };
    this.commit = new FileCommit(parts, of, isNamed ? attributes : null);
  }

  get attributes(): Attributes {
    const contents = { epoch: 0, seq: this.#seq };
    return { ...this.#attributes, sizeBytes: this.#contents.sizeBytes, contents };
  }

  /** Whether such a change can be made in memory, to be sent with the file. */
  takes({ mode = 0, gid, modifiedNs }: AttributeChanges): boolean {
    const { inheritsGroup, takesAttributes, isDelegated } = this.#parts;
    if (!this.commit.isUnsent || !takesAttributes || (gid !== undefined && inheritsGroup)) return false;
    if (!this.isNamed) return true;
    // After the session's end another client may write the file, before this mount sends its mode.
    if (mode !== withoutPrivileges(mode)) return false;
    // Contents make their time the ctime of a file that has a name, which must not be in the future.
    const isFuture = modifiedNs !== undefined && BigInt(modifiedNs) > nowNs(this.#world);
    return !isFuture && isDelegated();
  }

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
    this.#areTimesSet ||= accessedNs !== undefined || modifiedNs !== undefined;
    this.#areModeAndOwnerSet ||= isOwned || changes.mode !== undefined;
    return this.attributes;
  }

  /** What programs have changed, modification time aside: contents bring that. */
  #changes(): AttributeChanges {
    const { mode, uid, gid, accessedNs } = this.#attributes;
    return {
      ...(this.#areModeAndOwnerSet ? { mode, uid, gid } : {}),
      ...(this.#areTimesSet ? { accessedNs } : {}),
    };
  }

  staysUncommitted(endBytes: number): boolean {
    return this.commit.isUnsent && endBytes <= NEW_FILE_BYTES_MAX && !this.#parts.budget.isFull;
  }

  async ensureCommitted(isReported = false): Promise<FileState | undefined> {
    await this.#report(this.commit.start('with-contents'), isReported);
    return this.commit.committedState;
  }

  async range(offset: number, length: number): Promise<BackendRange | null> {
    return (await this.commit.clusterFile?.range(offset, length)) ?? null;
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    return this.commit.clusterFile?.read(offset, length) ?? this.#contents.read(offset, length);
  }

  write(offset: number, parts: readonly Uint8Array[]): Promise<FileState> {
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    return this.#change(
      { offset, endBytes: offset + length },
      (file) => file.write(offset, parts),
      () => this.#contents.put(offset, parts),
    );
  }

  writeParts(parts: readonly { readonly offset: number; readonly bytes: Uint8Array }[]): Promise<FileState> {
    const offset = Math.min(...parts.map((part) => part.offset));
    const endBytes = Math.max(...parts.map((part) => part.offset + part.bytes.length));
    return this.#change(
      { offset, endBytes },
      (file) => file.writeParts(parts),
      () => {
        for (const { offset, bytes } of parts) this.#contents.put(offset, [bytes]);
      },
    );
  }

  append(bytes: Uint8Array): Promise<FileState> {
    return this.#change(
      { offset: this.#contents.sizeBytes, endBytes: this.#contents.sizeBytes + bytes.length },
      (file) => file.append(bytes),
      () => this.#contents.put(this.#contents.sizeBytes, [bytes]),
    );
  }

  truncate(sizeBytes: number): Promise<FileState> {
    return this.#change(
      { offset: sizeBytes, endBytes: sizeBytes },
      (file) => file.truncate(sizeBytes),
      () => this.#contents.truncate(sizeBytes),
    );
  }

  punch(from: number, to: number, grows: boolean): Promise<FileState> {
    return this.#changeAtCluster((file) => file.punch(from, to, grows));
  }

  async seek(offset: number, what: 'data' | 'hole'): Promise<number | null> {
    return (await this.commit.start('with-contents')).seek(offset, what);
  }

  copyFrom(
    source: number,
    fromOffset: number,
    toOffset: number,
    length: number,
  ): ReturnType<BackendFile['copyFrom']> {
    return this.#changeAtCluster((file) => file.copyFrom(source, fromOffset, toOffset, length));
  }

  async flush(): Promise<FileState> {
    return (await this.#report(this.commit.start('with-contents'))).flush();
  }

  async seal(): Promise<void> {
    await (await this.commit.start('with-contents')).seal();
  }

  /** Resolves when the cluster has the file. @throws the failure, unless it is a late error */
  async stored(): Promise<void> {
    await (this.#closeCommit ?? this.commit.start('with-contents')).catch((error: unknown) => {
      if (!this.#isLate) throw error;
    });
  }

  /** Called after the last close: commits the file. A failure that no program gets is a late error. */
  async settle(): Promise<void> {
    const isReported = this.#isReported;
    this.#closeCommit = this.commit.start('with-contents').catch((error: unknown) => {
      this.#contents.release();
      this.#isLate = !isReported;
      this.#parts.lost(this, error, isReported);
      throw error;
    });
    const file = await this.#closeCommit;
    if (!this.commit.isSettled) await file.settle();
  }

  openLocks(lost: (locks: readonly BackendLock[]) => void): BackendLocks {
    return locksOf(async () => (await this.commit.start('ordinary')).openLocks(lost));
  }

  async state(): Promise<FileState> {
    return this.commit.clusterFile?.state() ?? stateOf(this.attributes);
  }

  /** Makes a change in memory if the file stays uncommitted and gets no hole; else commits it, then `atCluster`. */
  async #change(
    { offset, endBytes }: { readonly offset: number; readonly endBytes: number },
    atCluster: (file: BackendFile) => Promise<FileState>,
    change: () => void,
  ): Promise<FileState> {
    if (!this.staysUncommitted(endBytes) || this.#contents.leavesHole(offset))
      return this.#changeAtCluster(atCluster);
    change();
    const before = { epoch: 0, seq: this.#seq++ };
    const atNs = String(nowNs(this.#world));
    this.#attributes = { ...this.#attributes, modifiedNs: atNs, changedNs: atNs };
    return { ...stateOf(this.attributes), before };
  }

  async #report<Result>(work: Promise<Result>, isReported = true): Promise<Result> {
    try {
      return await work;
    } catch (error) {
      this.#isReported ||= isReported;
      throw error;
    }
  }

  async #changeAtCluster<Result>(use: (file: BackendFile) => Promise<Result>): Promise<Result> {
    // Others are likely to follow: the server that creates a file is its primary.
    const file = await this.commit.start('changed');
    this.commit.isSettled = false;
    return use(file);
  }
}

/** The locks of an uncommitted file: the first call commits the file, and opens its locks at the cluster. */
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
    findConflict: async (lock) => (await locks()).findConflict(lock),
    isLost: (kind, owner) => opened?.isLost(kind, owner) ?? false,
    close: async () => {
      if (opening !== null) await (await opening).close();
    },
  };
}
