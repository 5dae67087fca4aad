import type { FileId } from '../../base/ids.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import type { FileOperation, Seal } from '../../wire/file-operation.ts';
import type { FileLocations } from '../../wire/locations.ts';
import type { ObjectDigests } from './object-digests.ts';
import type { ObjectEntry } from './object-entry.ts';
import type { RecordChanges } from './record-changes.ts';

/** A file without the contents of its objects. The same operations give the same attributes on every replica. */
export interface FileAttributes {
  readonly sizeBytes: number;
  /** Time of the last change of contents, by its primary's clock, in nanoseconds since 1970. */
  readonly modifiedNs: bigint;
  /** Epoch counter and sequence number of the last change of contents; (0, 0) for a file never written. */
  readonly versionEpoch: number;
  readonly versionSeq: number;
  readonly objectBytes: number;
  /** A delete operation was applied: no contents, and no further change. */
  readonly dead: boolean;
  /** From `sealed` on, operations other than `delete` leave the contents as they are. */
  readonly seal: Seal;
}

/** Turns the local state into another replica's. */
export interface FileDifference {
  readonly record: ReplicaRecord;
  readonly attributes: FileAttributes;
  readonly from: Position;
  /** Objects that were staged, and null for those to be deleted. All others stay. */
  readonly changes: ReadonlyMap<number, ObjectEntry | null>;
}

export interface FetchedObject {
  readonly entry: ObjectEntry;
  readonly bytes: Uint8Array;
}

export interface StoreSpace {
  readonly totalBytes: number;
  readonly freeBytes: number;
}

export interface NewReplica {
  readonly file: FileId;
  readonly operations: readonly FileOperation[];
}

/** The first state of a replica that is created with the contents of another file. */
export interface FirstState {
  readonly view: View;
  /** Promised and installed, with `seq` 1. */
  readonly epoch: Epoch;
  readonly attributes: FileAttributes;
}

export type NewTrust = Exclude<Trust, 'damaged'>;

/**
 * Replicas of files on one server's disk. Calls for one file take effect in the order they are made; a promise resolves
 * once its effect has the stated durability. "Applied" survives kill −9 of the process, "synced" survives loss of
 * power.
 *
 * Errors: `ServiceError` with code `no-space` or `storage` if the disk refuses (the replica then steps down),
 * `integrity` if bytes do not match their checksum (they are never returned).
 */
export interface FileStore {
  /** Why the store has failed until a restart, and every call fails with `storage`; null while it works. */
  readonly failure: string | null;

  /** Reports files after their records changed, and after they were removed. */
  readonly recordChanges: RecordChanges;

  /** @returns null if this server has no replica of the file */
  record(file: FileId): ReplicaRecord | null;

  /** Ids of files with a replica here, in ascending order, at most `countMax`, greater than `after`. */
  list(after: FileId, countMax: number): FileId[];

  /**
   * The trust that the replica has what it acknowledged: `suspect` if the machine lost power since its base was
   * installed, so that what was applied but not synced may be lost; `lost` if it was created so. An `install` makes it
   * `intact`.
   */
  trust(file: FileId): Trust;

  /** Files whose view here is later than `number`. */
  filesWithViewAfter(number: number): FileId[];

  /**
   * Creates an empty replica (epochs zero, seq 0) unless there is one. Synced by the first promise.
   * @param trust `lost` if an earlier replica of the file may have been here, of which nothing is left; `suspect` if
   * one may have been lost with the power
   */
  create(file: FileId, view: View, objectBytes: number, trust?: NewTrust): void;

  /**
   * Creates replicas with these operations applied and promised = installed = epoch, in one transaction. None of the
   * files has a replica here, and none is used until the promise resolves. Applied when it resolves.
   * @returns for each, null if it was created, else the error
   */
  createWithContents(
    replicas: readonly NewReplica[],
    epoch: Epoch,
    view: View,
    objectBytes: number,
  ): Promise<(Error | null)[]>;

  /**
   * Creates a replica in this state, with the objects that `objects` yields, in ascending order. There is none of the
   * file here, and none uses the file before the promise settles. Synced when it resolves; else nothing is here, and
   * also after an end of the process before that.
   */
  createWithState(file: FileId, state: FirstState, objects: AsyncIterable<FetchedObject>): Promise<void>;

  /** Sets `promised`. Synced when it resolves. */
  promise(file: FileId, epoch: Epoch): Promise<void>;

  /**
   * Applies the next operation: contents, attributes, seq and sessions in one transaction. Applied when it resolves;
   * from then on `attributes` and `read` show it. The store keeps `sessions`; neither it nor the operation's bytes
   * change before the promise settles. If it rejects, so do later calls for the same file that had not begun.
   */
  apply(
    file: FileId,
    epoch: Epoch,
    seq: number,
    operation: FileOperation,
    sessions: Uint8Array,
  ): Promise<void>;

  /** Everything but contents, of any file, that was applied before the call is synced when it resolves. */
  flushIndex(): Promise<void>;

  /** Everything applied before the call is synced when it resolves. Concurrent callers share one sync. */
  flush(file: FileId): Promise<void>;

  attributes(file: FileId): FileAttributes;

  /** @returns how many bytes within the size no object has; null for a large file before `whenHolesCounted` resolved */
  holeBytes(file: FileId): number | null;

  whenHolesCounted(file: FileId): Promise<void>;

  /**
   * Sequence number of the newest operation of the installed epoch that a read of these bytes (and of the size) depends
   * on; 0 if all of it is from earlier epochs.
   */
  readDependsOn(file: FileId, offset: number, length: number): number;

  /** Pins the contents at the call, then reads and verifies them. Short at the end of the file; holes are zeros. */
  read(file: FileId, offset: number, length: number): Promise<Uint8Array>;

  /**
   * Positions on this disk of the bytes that `read` would return. They are not verified. For `pinnedMs` milliseconds
   * from the call the slots are not reused, and the container stays. @returns null if there is no disk
   */
  locate(file: FileId, offset: number, length: number, pinnedMs: number): FileLocations | null;

  /** @returns the first `countMax` entries of objects `first` to `last`, in order, as they are at the call */
  entries(file: FileId, first: number, last: number, countMax: number): ObjectEntry[];

  /**
   * Digests of the object map. The first call reads all of it, a page per tick of the event loop; then they are updated
   * as the map changes. They agree with `record` and `entries` in the tick in which the promise is fulfilled, and may
   * be dropped later: after a wait the caller asks again.
   */
  digests(file: FileId): Promise<ObjectDigests>;

  /** @returns the object's verified bytes if it still has that version, else null */
  readObject(
    file: FileId,
    index: number,
    versionEpoch: number,
    versionSeq: number,
  ): Promise<Uint8Array | null>;

  /** Verified; replaces the bytes only if the object still has that version. Synced when it resolves. */
  repair(file: FileId, object: FetchedObject): Promise<void>;

  /** Stores an object of another replica beside the local contents. Verifies the checksum. Lost at a crash. */
  stage(file: FileId, object: FetchedObject): Promise<void>;

  /** Stages a version whose bytes no replica has: reads fail (`integrity`) until repair or change. Lost at a crash. */
  stageLost(file: FileId, entry: ObjectEntry): Promise<void>;

  /** @returns the entry that was staged last for this object, unless it was installed or dropped since */
  staged(file: FileId, index: number): ObjectEntry | null;

  /** Frees the staged objects that `keeps` rejects; without `keeps`, all. */
  unstage(file: FileId, keeps?: (entry: ObjectEntry) => boolean): void;

  /**
   * In one synced transaction: sets installed, seq and sessions, and, if `base` is given, object map, attributes and
   * view, with each changed object from the staged ones (asserted). Without `base` the contents stay. The difference
   * must be to the local state (asserted).
   */
  install(
    file: FileId,
    epoch: Epoch,
    seq: number,
    sessions: Uint8Array,
    base: FileDifference | null,
  ): Promise<void>;

  remove(file: FileId): Promise<void>;

  space(): Promise<StoreSpace>;

  close(): Promise<void>;
}
