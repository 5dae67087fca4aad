import type { FileId } from '../../base/ids.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import type { FileOperation, Seal } from '../../wire/file-operation.ts';
import type { FileLocations } from '../../wire/locations.ts';
import type { ObjectDigests } from './object-digests.ts';
import type { ObjectEntry } from './object-entry.ts';

/** What a file is, besides the contents of its objects. Same operations, same attributes, on every replica. */
export interface FileAttributes {
  readonly sizeBytes: number;
  /** Time of the last change of contents, as its primary told it, in nanoseconds since 1970. */
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

/** A whole state at one instant, for another replica to compare with its own. */
export interface FileDescription {
  readonly record: ReplicaRecord;
  readonly attributes: FileAttributes;
  readonly objects: readonly ObjectEntry[];
}

/** What makes the own state another replica's: a description that leaves out what both have. */
export interface FileDifference {
  readonly record: ReplicaRecord;
  readonly attributes: FileAttributes;
  /** Position of the own state that this is the difference to. */
  readonly from: Position;
  /** Objects that were staged, and null for those that go. All others stay. */
  readonly changes: ReadonlyMap<number, ObjectEntry | null>;
}

/** An object that another replica sent, with its bytes. */
export interface FetchedObject {
  readonly entry: ObjectEntry;
  readonly bytes: Uint8Array;
}

/** Space of the disk that holds the objects, in bytes. */
export interface StoreSpace {
  readonly totalBytes: number;
  readonly freeBytes: number;
}

/** A replica that is made with its first operations. */
export interface NewReplica {
  readonly file: FileId;
  readonly operations: readonly FileOperation[];
}

/** What is known of a replica when it is made. */
export type NewTrust = Exclude<Trust, 'damaged'>;

/**
 * Replicas of files on one server's disk. Calls for one file take effect in the order they are made;
 * a promise resolves once its effect has the stated durability.
 *
 * "Applied" survives kill −9 of the process. "Synced" survives loss of power.
 *
 * Errors: `ServiceError` with code `no-space` or `storage` where the disk refuses (the replica then
 * steps down), `integrity` where bytes do not match their checksum (never returned to anybody).
 */
export interface FileStore {
  /** Why the store is over until a restart, and every call fails with `storage`; null while it works. */
  readonly failure: string | null;

  /** @returns the replica's record, or null where this server has none for the file */
  record(file: FileId): ReplicaRecord | null;

  /** Ids of all files with a replica here, in ascending order, at most `countMax`, greater than `after`. */
  list(after: FileId, countMax: number): FileId[];

  /**
   * How far the replica can be trusted to have what it acknowledged: `suspect` where the machine lost power
   * since the replica's base was installed (or the replica was made), so that what it had applied but
   * not synced may be gone; `lost` where it was made so. An `install` makes it `intact`.
   */
  trust(file: FileId): Trust;

  /** Files whose view here is a later one than `number`. */
  filesWithViewAfter(number: number): FileId[];

  /**
   * Makes an empty replica (epochs zero, seq 0) unless there is one. Synced by the first promise.
   * @param trust `lost` where an earlier replica of the file may have been here, of which nothing is left; `suspect` where one may be
   *   gone with the power
   */
  create(file: FileId, view: View, objectBytes: number, trust?: NewTrust): void;

  /**
   * Makes replicas that stand at the end of these operations, promised := installed := epoch, all of them in one transaction. There is none of them
   * here before, and nothing is asked of them until it resolves.
   *
   * Applied when it resolves.
   *
   * @returns for each, null where it is there; else why it is not
   */
  bear(
    births: readonly NewReplica[],
    epoch: Epoch,
    view: View,
    objectBytes: number,
  ): Promise<(Error | null)[]>;

  /** promised := epoch. Synced when it resolves. */
  promise(file: FileId, epoch: Epoch): Promise<void>;

  /**
   * Applies one operation, which must be the next one: contents, attributes, seq and sessions in one
   * transaction. Applied when it resolves; in memory, `attributes` and `read` show it from that moment on.
   * The store keeps `sessions`; neither it nor the operation's bytes change before the promise settles.
   * If it rejects, so do the calls that were made after it for the same file and had not begun.
   */
  apply(
    file: FileId,
    epoch: Epoch,
    seq: number,
    operation: FileOperation,
    sessions: Uint8Array,
  ): Promise<void>;

  /** Everything applied before the call, to any file, is synced but for contents when it resolves: as if it had been promised. */
  flushIndex(): Promise<void>;

  /** Everything applied before the call is synced when it resolves. Many callers share one sync. */
  flush(file: FileId): Promise<void>;

  /** @returns the attributes as of the last applied operation */
  attributes(file: FileId): FileAttributes;

  /**
   * @returns how many bytes within the size no object has, as of the last applied operation; null for a large file of which
   *   `whenHolesCounted` was not awaited yet
   */
  holeBytes(file: FileId): number | null;

  /** Resolves once `holeBytes` knows it. */
  whenHolesCounted(file: FileId): Promise<void>;

  /**
   * Sequence number of the newest operation of the installed epoch that the answer to a read of
   * these bytes (and of the size) depends on; 0 where all of it stems from earlier epochs.
   */
  readDependsOn(file: FileId, offset: number, length: number): number;

  /**
   * Pins the contents as they are at the call, then reads. Short at the end of the file; holes are zeros.
   * Every object's checksum is verified.
   */
  read(file: FileId, offset: number, length: number): Promise<Uint8Array>;

  /**
   * Where the bytes that `read` would read lie on this disk. What is there is not looked at, so it may be damaged. Until `heldMs` have
   * passed nothing else is written there, and the container stays.
   *
   * @param heldMs in milliseconds, from the call
   * @returns null where there is no disk
   */
  locate(file: FileId, offset: number, length: number, heldMs: number): FileLocations | null;

  /** @returns record, attributes and object map at one instant */
  describe(file: FileId): FileDescription;

  /** @returns the first `countMax` entries of objects `first` to `last`, in order, as they are at the call */
  entries(file: FileId, first: number, last: number, countMax: number): ObjectEntry[];

  /**
   * Digests of the object map. The first call reads all of it, a page in each turn of the event loop; from
   * then on they are kept as the map changes. What is returned agrees with `record` and `entries` in
   * the turn in which the promise is fulfilled, and may be forgotten later: whoever waits asks again.
   */
  digests(file: FileId): Promise<ObjectDigests>;

  /** @returns the object's bytes if it still has that version, else null. Checksum verified. */
  readObject(
    file: FileId,
    index: number,
    versionEpoch: number,
    versionSeq: number,
  ): Promise<Uint8Array | null>;

  /**
   * Puts another replica's bytes in the place of a damaged object's. Nothing happens where the object has another
   * version by now. Verifies the checksum. Synced when it resolves.
   */
  repair(file: FileId, object: FetchedObject): Promise<void>;

  /** Puts an object of another replica beside the own contents. Verifies the checksum. Lost at a crash. */
  stage(file: FileId, object: FetchedObject): Promise<void>;

  /**
   * Puts an object of which no replica has the bytes beside the own contents: its version is kept, and reading it fails
   * with `integrity` until it is repaired or replaced. Lost at a crash.
   */
  stageLost(file: FileId, entry: ObjectEntry): Promise<void>;

  /** @returns the entry of the object of this index that was staged last, if it was not installed or forgotten since */
  staged(file: FileId, index: number): ObjectEntry | null;

  /** Forgets what was staged, but for what `keeps` says is still wanted. */
  unstage(file: FileId, keeps?: (entry: ObjectEntry) => boolean): void;

  /**
   * In one synced transaction: installed := epoch, seq, sessions, and, where `base` is given, object
   * map, attributes and view := base's, taking each object from what was staged or from the own contents
   * of the same version (asserted). Without `base` the contents stay. A `FileDifference` costs only what
   * differs, and is of the state that is here (asserted).
   */
  install(
    file: FileId,
    epoch: Epoch,
    seq: number,
    sessions: Uint8Array,
    base: FileDescription | FileDifference | null,
  ): Promise<void>;

  /** Removes the replica and its contents for good. */
  remove(file: FileId): Promise<void>;

  space(): Promise<StoreSpace>;

  /** Finishes what is under way and closes. */
  close(): Promise<void>;
}
