import type { ErrorCode } from '../base/errors.ts';
import type { CatalogNumber } from '../base/ids.ts';
import {
  Bytes,
  Catalog,
  ClassZones,
  Inode,
  Labels,
  Members,
  Mode,
  Nanoseconds,
  ObjectBytes,
  Owner,
  Path,
  Policy,
  Replicas,
  Retention,
  ServerName,
  type ServerStates,
  ServerUrl,
  TrashMs,
  VOLUME_SETTINGS,
  VolumeName,
  Zone,
} from './catalog-values.ts';
import { INODE_FLAGS, type InodeFlag } from './inode-flags.ts';
import type { PlacementClass } from './placement-class.ts';
import {
  ACCESSES_MAX,
  CHANGES_MAX,
  FLUSH_SESSIONS_MAX,
  FORGETS_MAX,
  MAINTENANCE_MS_MAX,
  NEW_FILES_MAX,
  UNLINKS_MAX,
} from './request-limits.ts';
import { RESERVED_NUMBERS_MAX, RESERVED_SETS_MAX } from './reserved-numbers.ts';
import { type Static, Type } from './schema.ts';
import {
  type CatalogList,
  type ListedCatalog,
  type OwnCatalogState,
  ROOT_COMMANDS,
  type RootCommandResults,
  VOLUME_COMMANDS,
  type VolumeCommandResults,
} from './volume-catalogs.ts';
import {
  MOVE_COMMANDS,
  MOVE_QUERIES,
  type MoveCommandResults,
  type MoveQueryResults,
} from './volume-moves.ts';

/** The catalog's commands and queries in JSON, with their answers. Times are decimal nanoseconds since 1970. */

/** Bits cleared from the mode, unless the directory has a default access control list. */
const Umask = Type.Optional(Mode);
const SnapshotName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
const TreeName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?$' });
const Base64 = Type.String({ pattern: '^[A-Za-z0-9+/]*={0,2}$', maxLength: 90_000 });
const InodeFlags = Type.Array(Type.Union(INODE_FLAGS.map((flag) => Type.Literal(flag))), {
  maxItems: INODE_FLAGS.length,
});
/** The catalog itself checks names and paths, because it counts bytes of UTF-8, not characters. */
const Name = Type.String({ maxLength: 4096 });

/** A directory entry: by directory inode, or by path from the volume's root. */
export const Place = Type.Union([
  Type.Object({ parent: Inode, name: Name }),
  Type.Object({ volume: VolumeName, path: Path }),
]);
export type Place = Static<typeof Place>;

/** Epoch counter and sequence number of a file's last content change. */
export const ContentVersion = Type.Object({
  epoch: Type.Integer({ minimum: 0 }),
  seq: Type.Integer({ minimum: 0 }),
});
export type ContentVersion = Static<typeof ContentVersion>;

/** A primary's mark that a file is live: its epoch counter, and the number of the mark in the epoch. */
export const LiveMark = Type.Object({
  epoch: Type.Integer({ minimum: 0 }),
  turn: Type.Integer({ minimum: 0 }),
});
export type LiveMark = Static<typeof LiveMark>;

/** Mark of a plan for new members: the primary's epoch counter, and the number of the plan in the epoch. */
export const PlanMark = LiveMark;
export type PlanMark = LiveMark;

const VoterSet = Type.Object({
  servers: Type.Array(ServerName, { minItems: 1, maxItems: 1_000 }),
  perCell: Type.Integer({ minimum: 1, maximum: 7 }),
});
/** As `VotersView` of the lease layer. */
const Voters = Type.Object({
  number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  members: VoterSet,
  joint: Type.Optional(VoterSet),
  clockMs: Type.Number(),
});
export type Voters = Static<typeof Voters>;
/** Files in one command about moves. */
export const MOVED_FILES_MAX = 256;
const FollowedView = {
  inode: Inode,
  view: Type.Object({
    number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    members: Members,
  }),
};
const PlannedFile = {
  inode: Inode,
  /** The view to be changed; void if the catalog has a newer one. */
  view: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  mark: PlanMark,
  members: Type.Array(ServerName, { maxItems: 120 }),
};

/** Required state, else `precondition-failed`. `contents`: this inode, with these contents and not live. */
export const Expectation = Type.Union([
  Type.Object({ kind: Type.Literal('anything') }),
  Type.Object({ kind: Type.Literal('nothing') }),
  Type.Object({ kind: Type.Literal('inode'), inode: Inode }),
  Type.Object({ kind: Type.Literal('contents'), inode: Inode, contents: ContentVersion }),
]);
export type Expectation = Static<typeof Expectation>;

/** Extended attribute of an unfinished upload; clients cannot set it, and linking the file removes it. */
export const UPLOAD_NOTE = 'leasehold.upload';

/** For a file that loses its last link, in a volume with a trash. */
const REMOVAL = {
  /** Name of the client, shown to others. */
  by: Type.Optional(Type.String({ maxLength: 300 })),
  /** False: do not keep the file. */
  trash: Type.Optional(Type.Boolean()),
};

const NewXattrs = Type.Array(
  Type.Object({
    name: Type.String({ minLength: 1, maxLength: 255 }),
    value: Type.Union([Base64, Type.Null()]),
  }),
  { maxItems: 8 },
);
export type NewXattrs = Static<typeof NewXattrs>;

/** Extended attributes that it gets with its name; null: it does not keep that of the file that it replaces. */
const NEW_XATTRS = { xattrs: Type.Optional(NewXattrs) };

export const Command = Type.Union([
  Type.Object({
    kind: Type.Literal('volume-create'),
    name: VolumeName,
    ...VOLUME_SETTINGS,
    /** Even with fewer servers than replicas. */
    force: Type.Optional(Type.Boolean()),
  }),
  /** Absent fields stay. Existing files follow in replicas, labels and zones; the policy is for new files. */
  Type.Object({
    kind: Type.Literal('volume-set'),
    name: VolumeName,
    replicas: Type.Optional(Replicas),
    policy: Type.Optional(Policy),
    force: Type.Optional(Type.Boolean()),
    /** For files being written, a quota counts from their next sync or close. */
    quotaBytes: Type.Optional(Bytes),
    quotaInodes: Type.Optional(Bytes),
    /** For files removed from now on. */
    trashMs: Type.Optional(TrashMs),
    /** Empty: any server. */
    labels: Type.Optional(Labels),
    zones: Type.Optional(ClassZones),
  }),
  /** Refused with `not-empty` unless the volume is empty. */
  /** A volume's own catalog then closes: its row says `removed`, or `ready` if it refused, with the reason. */
  /** `lost`: although the volume's own catalog has lost its majority for good; refused while it can serve. */
  Type.Object({
    kind: Type.Literal('volume-remove'),
    name: VolumeName,
    lost: Type.Optional(Type.Literal(true)),
  }),
  /** Returns an existing file unless `exclusive`. A new file is live: its primary knows its size. */
  Type.Object({
    kind: Type.Literal('create-file'),
    place: Place,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    exclusive: Type.Boolean(),
    umask: Umask,
    /** A reserved number, else `precondition-failed`; an existing file with it is returned even if `exclusive`. */
    reserved: Type.Optional(Type.Object({ inode: Inode, owner: Inode })),
    /** For a file that its client already used; absent: the time of the command. */
    times: Type.Optional(
      Type.Object({ accessedNs: Nanoseconds, modifiedNs: Nanoseconds, changedNs: Nanoseconds }),
    ),
  }),
  /** Voids `owner`'s unused reserved numbers: no file can be created by them, and their contents are garbage. */
  Type.Object({
    kind: Type.Literal('void-inodes'),
    owner: Inode,
    inodes: Type.Array(Inode, { minItems: 1, maxItems: RESERVED_NUMBERS_MAX }),
  }),
  /** Reserves numbers for the client that knows `owner`, a random number; unused ones expire. */
  Type.Object({
    kind: Type.Literal('reserve-inodes'),
    owner: Inode,
    count: Type.Integer({ minimum: 1, maximum: RESERVED_NUMBERS_MAX }),
    /**
     * Members of the files' first view, see `numberRuns`. If absent, refused with `precondition-failed`: two ways to
     * create a file would choose two member sets for one view.
     */
    members: Type.Optional(
      Type.Array(Type.Array(ServerName, { minItems: 1, maxItems: 15 }), {
        minItems: 1,
        maxItems: RESERVED_SETS_MAX,
      }),
    ),
    /** The volume whose files alone may have the numbers: they move with it. Absent: of any volume of this catalog. */
    volume: Type.Optional(VolumeName),
  }),
  /** Links new files of one volume whose contents a majority of replicas has. Each is created or refused by itself. */
  Type.Object({
    kind: Type.Literal('bear'),
    owner: Inode,
    /** Servers and object size of the contents; `precondition-failed` if the volume's object size differs by now. */
    replicas: Type.Array(ServerName, { maxItems: 15 }),
    elsewhere: Type.Optional(
      Type.Array(
        Type.Object({
          replicas: Type.Array(ServerName, { minItems: 1, maxItems: 15 }),
          inodes: Type.Array(Inode, { minItems: 1, maxItems: NEW_FILES_MAX }),
        }),
        { maxItems: NEW_FILES_MAX },
      ),
    ),
    objectBytes: ObjectBytes,
    files: Type.Array(
      Type.Object({
        parent: Inode,
        name: Name,
        inode: Inode,
        mode: Mode,
        uid: Owner,
        gid: Owner,
        sizeBytes: Bytes,
        /** Absent: the time of the command. */
        accessedNs: Type.Optional(Nanoseconds),
        modifiedNs: Type.Optional(Nanoseconds),
        changedNs: Type.Optional(Nanoseconds),
        contents: ContentVersion,
      }),
      { minItems: 1, maxItems: NEW_FILES_MAX },
    ),
  }),
  /** Uses the number of a request that may still arrive: it then has no effect. Returns its result if it came first. */
  Type.Object({ kind: Type.Literal('forgo') }),
  /** Changes nothing. Its result, stored for the session, is the first attempt's target of a keyed write. */
  Type.Object({
    kind: Type.Literal('pin-write'),
    inode: Inode,
    /** An operation of the file from before the first attempt. */
    since: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  }),
  /** An unlinked file for an upload; `replace` links it, else it is collected. */
  Type.Object({
    kind: Type.Literal('create-orphan'),
    volume: VolumeName,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    /** Upload metadata: the extended attribute `UPLOAD_NOTE` until the file is linked. */
    note: Type.Optional(Base64),
    untilNs: Type.Optional(Nanoseconds),
    /** Where it will be linked: its servers are chosen for that. Execution does not use it. */
    place: Type.Optional(Place),
    /** The directory whose placement class it has until then; absent: its volume's. */
    placement: Type.Optional(Inode),
  }),
  /** Postpones an orphan's collection: its age counts from now, or from `untilNs`, which may be in the future. */
  Type.Object({
    kind: Type.Literal('keep-orphan'),
    inode: Inode,
    untilNs: Type.Optional(Nanoseconds),
  }),
  /** Links orphan `inode` instead of the entry's file, whose mode, owner and extended attributes it takes. */
  Type.Object({
    kind: Type.Literal('replace'),
    place: Place,
    inode: Inode,
    expect: Expectation,
    ...REMOVAL,
    ...NEW_XATTRS,
  }),
  /**
   * Like `replace`, but creates the file, created with contents under a reserved number. `bad-request` if the number
   * is not reserved for these servers, or the volume stores files otherwise.
   */
  Type.Object({
    kind: Type.Literal('replace-with-contents'),
    place: Place,
    inode: Inode,
    owner: Inode,
    replicas: Type.Array(ServerName, { minItems: 1, maxItems: 15 }),
    objectBytes: ObjectBytes,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    sizeBytes: Bytes,
    modifiedNs: Nanoseconds,
    contents: ContentVersion,
    expect: Expectation,
    ...REMOVAL,
    ...NEW_XATTRS,
  }),
  Type.Object({
    kind: Type.Literal('make-directory'),
    place: Place,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    umask: Umask,
    ...NEW_XATTRS,
  }),
  /** FIFOs, sockets and devices: entries with attributes, without contents. */
  Type.Object({
    kind: Type.Literal('make-node'),
    place: Place,
    type: Type.Union([
      Type.Literal('fifo'),
      Type.Literal('socket'),
      Type.Literal('character'),
      Type.Literal('block'),
    ]),
    device: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    mode: Mode,
    uid: Owner,
    gid: Owner,
    umask: Umask,
  }),
  /**
   * A directory at which the volume `volume` of catalog `catalog` is to be attached. Nothing is created in it, and no
   * path leads on in this volume. Returns the existing one of that catalog, if there is one at the place.
   */
  Type.Object({
    kind: Type.Literal('junction-create'),
    place: Place,
    catalog: Catalog,
    volume: VolumeName,
    mode: Mode,
    uid: Owner,
    gid: Owner,
  }),
  /**
   * Removes a junction with its name, once its volume is not attached there. Changes nothing if it is gone; with
   * `unshared`, also if more than one `junction-create` has returned it.
   */
  Type.Object({
    kind: Type.Literal('junction-remove'),
    inode: Inode,
    unshared: Type.Optional(Type.Literal(true)),
  }),
  Type.Object({
    kind: Type.Literal('remove-directory'),
    place: Place,
    /** Only if it has this extended attribute; else `precondition-failed`. */
    xattr: Type.Optional(Type.Object({ name: Type.String({ minLength: 1, maxLength: 255 }), value: Base64 })),
  }),
  Type.Object({
    kind: Type.Literal('unlink'),
    place: Place,
    expect: Type.Optional(Expectation),
    ...REMOVAL,
  }),
  /** Removes entries of files, each only if it has the given inode. Each is done or refused by itself. */
  Type.Object({
    kind: Type.Literal('unlink-files'),
    files: Type.Array(Type.Object({ parent: Inode, name: Name, inode: Inode }), {
      minItems: 1,
      maxItems: UNLINKS_MAX,
    }),
    ...REMOVAL,
  }),
  /** Like `unlink-files`, with a fence. A separate kind, so that servers without fences refuse it. */
  Type.Object({
    kind: Type.Literal('unlink-fenced'),
    files: Type.Array(Type.Object({ parent: Inode, name: Name, inode: Inode }), {
      minItems: 1,
      maxItems: UNLINKS_MAX,
    }),
    /** The contents that each file must have, in order; `fence-lost` if it was written since, or is live. Null: any. */
    contents: Type.Array(Type.Union([ContentVersion, Type.Null()]), { minItems: 1, maxItems: UNLINKS_MAX }),
    ...REMOVAL,
  }),
  Type.Object({
    kind: Type.Literal('rename'),
    from: Place,
    to: Place,
    mode: Type.Union([Type.Literal('replace'), Type.Literal('no-replace'), Type.Literal('exchange')]),
    expect: Type.Optional(Expectation),
    ...REMOVAL,
  }),
  /** Like `rename`; `from` becomes a whiteout: device 0/0, mode 0. @see RENAME_WHITEOUT of renameat2(2) */
  Type.Object({
    kind: Type.Literal('rename-whiteout'),
    from: Place,
    to: Place,
    mode: Type.Union([Type.Literal('replace'), Type.Literal('no-replace')]),
    uid: Owner,
    gid: Owner,
    ...REMOVAL,
  }),
  Type.Object({
    kind: Type.Literal('symlink'),
    place: Place,
    target: Type.String({ minLength: 1, maxLength: 4096 }),
    uid: Owner,
    gid: Owner,
  }),
  Type.Object({ kind: Type.Literal('link'), inode: Inode, place: Place }),
  /** Absent fields stay. A modification time holds until contents newer than `contents` arrive. */
  Type.Object({
    kind: Type.Literal('set-attributes'),
    inode: Inode,
    mode: Type.Optional(Mode),
    uid: Type.Optional(Owner),
    gid: Type.Optional(Owner),
    accessedNs: Type.Optional(Nanoseconds),
    modifiedNs: Type.Optional(Nanoseconds),
    contents: Type.Optional(ContentVersion),
    /** Ignores the given times and uses the command's: allowed for append-only files. */
    touches: Type.Optional(Type.Literal(true)),
    /** Executed only while the inode's ctime is this; otherwise refused with `precondition-failed`. */
    unchangedNs: Type.Optional(Nanoseconds),
  }),
  /** Sets and clears flags, as `chattr`. A live file is settled first: then no forbidden change is ordered any more. */
  Type.Object({ kind: Type.Literal('set-flags'), inode: Inode, set: InodeFlags, clear: InodeFlags }),
  /** Retains a file, or prolongs that: until then nothing removes or changes it. A live file is settled first. */
  Type.Object({ kind: Type.Literal('retain'), inode: Inode, retain: Retention }),
  /** Access times of reads, reported asynchronously: they only increase. Skips deleted inodes and other volumes'. */
  Type.Object({
    kind: Type.Literal('note-accesses'),
    volume: VolumeName,
    /** A read before the last ctime change counts only if a write made it; absent: also with an unchanged atime. */
    unset: Type.Optional(Type.Literal(true)),
    accesses: Type.Array(
      Type.Object({
        inode: Inode,
        accessedNs: Nanoseconds,
        /** Known at the read. One must be unchanged; else a client may have set the access time. */
        seen: Type.Object({ accessedNs: Nanoseconds, changedNs: Nanoseconds }),
      }),
      { minItems: 1, maxItems: ACCESSES_MAX },
    ),
  }),
  /** From now on the file's primary knows size and modification time, not the catalog. */
  Type.Object({
    kind: Type.Literal('open-for-write'),
    inode: Inode,
    mark: Type.Optional(LiveMark),
    /** The file's next size; `quota-exceeded` if its volume may not hold that. */
    growTo: Type.Optional(Bytes),
    /** The caller preserves what snapshots show, if the answer says so, and repeats the command. */
    preserves: Type.Optional(Type.Literal(true)),
    /** The calling primary only appends if the answer has the flag `append-only`. */
    restricts: Type.Optional(Type.Literal(true)),
    /**
     * The contents that snapshots show are at these servers, safe from power loss; `lost`: gone; `again`: not as that
     * inode, maybe as another.
     */
    preserved: Type.Optional(
      Type.Union([
        Type.Object({
          inode: Inode,
          view: Type.Object({ number: Type.Integer({ minimum: 1 }), members: Members }),
        }),
        Type.Literal('lost'),
        Type.Literal('again'),
      ]),
    ),
    /** The contents of `preserved`; absent from earlier releases: those at execution. */
    contents: Type.Optional(ContentVersion),
  }),
  /** Reports of files' primaries; the newest version of each file wins and ends `live`. */
  Type.Object({
    kind: Type.Literal('settle'),
    files: Type.Array(
      Type.Object({
        inode: Inode,
        sizeBytes: Type.Integer({ minimum: 0 }),
        /** Bytes of holes; absent: none known. */
        holeBytes: Type.Optional(Type.Integer({ minimum: 0 })),
        modifiedNs: Nanoseconds,
        contents: ContentVersion,
        /** The mark that this report belongs to; void after a newer mark. */
        mark: Type.Optional(LiveMark),
      }),
      { maxItems: 1000 },
    ),
  }),
  Type.Object({
    kind: Type.Literal('set-xattr'),
    inode: Inode,
    name: Type.String({ minLength: 1, maxLength: 255 }),
    value: Base64,
    mode: Type.Union([Type.Literal('set'), Type.Literal('create'), Type.Literal('replace')]),
    /** With an access control list: clear setgid, because the caller is not in the group. */
    clearsSetgid: Type.Optional(Type.Boolean()),
  }),
  Type.Object({
    kind: Type.Literal('remove-xattr'),
    inode: Inode,
    name: Type.String({ minLength: 1, maxLength: 255 }),
  }),
  /** Deletes orphans from before `beforeNs` that no snapshot shows, and forgets expired reservations. */
  Type.Object({
    kind: Type.Literal('collect'),
    beforeNs: Nanoseconds,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /**
   * A server reports its store and free space. A removed one stays removed. Zone absent: unchanged. `commandsVersion`:
   * of its release; absent from releases that do not know volumes with a catalog of their own.
   */
  Type.Object({
    kind: Type.Literal('server-register'),
    id: ServerName,
    url: ServerUrl,
    zone: Type.Optional(Zone),
    storageId: Type.String({ minLength: 1, maxLength: 64 }),
    freeBytes: Bytes,
    totalBytes: Bytes,
    commandsVersion: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
  }),
  Type.Object({
    kind: Type.Literal('server-add'),
    id: ServerName,
    url: ServerUrl,
    zone: Type.Optional(Zone),
  }),
  Type.Object({
    kind: Type.Literal('server-state'),
    id: ServerName,
    state: Type.Union([Type.Literal('in'), Type.Literal('draining')]),
  }),
  Type.Object({ kind: Type.Literal('server-zone'), id: ServerName, zone: Zone }),
  /** Replaces the labels of a server. */
  Type.Object({ kind: Type.Literal('server-label'), id: ServerName, labels: Labels }),
  /** Replicas of the server are not replaced for this time, however long it is away; null ends that. */
  Type.Object({
    kind: Type.Literal('server-maintenance'),
    id: ServerName,
    forMs: Type.Union([Type.Integer({ minimum: 1, maximum: MAINTENANCE_MS_MAX }), Type.Null()]),
  }),
  /** Settings of the cluster; absent ones stay. `catalogReplicas`: 3, 5 or 7; null: by the number of servers. */
  Type.Object({
    kind: Type.Literal('cluster-set'),
    catalogReplicas: Type.Optional(Type.Union([Type.Integer({ minimum: 3, maximum: 7 }), Type.Null()])),
  }),
  /** Removes a server for good; `precondition-failed` while it holds replicas, unless it is `dead`. */
  Type.Object({ kind: Type.Literal('server-remove'), id: ServerName, dead: Type.Boolean() }),
  /** A file's primary reports the file's servers; the largest number wins. */
  Type.Object({
    kind: Type.Literal('follow-view'),
    ...FollowedView,
  }),
  /** `follow-view` of many files. */
  Type.Object({
    kind: Type.Literal('follow-views'),
    files: Type.Array(Type.Object(FollowedView), { minItems: 1, maxItems: MOVED_FILES_MAX }),
  }),
  /**
   * A file's primary reports future members before it changes them, so that none is removed until the change is over.
   * Replaces an earlier plan, by its mark; empty: no change is under way. `precondition-failed` if a server is out.
   */
  Type.Object({
    kind: Type.Literal('plan-members'),
    ...PlannedFile,
  }),
  /** `plan-members` of many files; one that is refused does not affect the others. */
  Type.Object({
    kind: Type.Literal('plan-files'),
    files: Type.Array(Type.Object(PlannedFile), { minItems: 1, maxItems: MOVED_FILES_MAX }),
  }),
  /** A server has finished with the rows of its log of deletions up to `through`. */
  Type.Object({
    kind: Type.Literal('trim-deletions'),
    server: ServerName,
    through: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  }),
  /** The next view of named leases' voters; `precondition-failed` unless it follows the present one. */
  Type.Object({ kind: Type.Literal('set-voters'), view: Voters }),
  Type.Object({
    kind: Type.Literal('snapshot-create'),
    volume: VolumeName,
    name: SnapshotName,
    retain: Type.Optional(Retention),
  }),
  /** Retains a snapshot, or prolongs its retention: until then it is not removed. */
  Type.Object({
    kind: Type.Literal('snapshot-retain'),
    volume: VolumeName,
    name: SnapshotName,
    retain: Retention,
  }),
  Type.Object({ kind: Type.Literal('snapshot-remove'), volume: VolumeName, name: SnapshotName }),
  /** Creates the volume `name`, whose tree is that of a snapshot of `volume`: see docs/design/clones.md. */
  Type.Object({
    kind: Type.Literal('clone-create'),
    name: VolumeName,
    volume: VolumeName,
    snapshot: SnapshotName,
  }),
  /** Copies the next entries of a directory of a clone from its snapshot, at most `countMax`. */
  Type.Object({
    kind: Type.Literal('clone-fill'),
    inode: Inode,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Before the first change of a file of a clone: chooses the servers that copy its contents. */
  Type.Object({ kind: Type.Literal('clone-open'), inode: Inode }),
  /** A majority of the chosen servers has the contents, synced. */
  Type.Object({ kind: Type.Literal('clone-filled'), inode: Inode }),
  /** Has all of a clone copied in the background. */
  Type.Object({ kind: Type.Literal('clone-flatten'), name: VolumeName }),
  /** Deletes what only removed snapshots showed: at most this many rows of each kind. */
  Type.Object({ kind: Type.Literal('sweep'), countMax: Type.Integer({ minimum: 1, maximum: 10_000 }) }),
  /** The file's replica count; null: its volume's. */
  Type.Object({
    kind: Type.Literal('set-replicas'),
    inode: Inode,
    count: Type.Union([Replicas, Type.Null()]),
  }),
  /** The placement class of a directory, for what is created in it; null: none of its own. */
  Type.Object({
    kind: Type.Literal('set-placement'),
    inode: Inode,
    class: Type.Union([
      /** `replicas` null: as many as the volume. */
      Type.Object({ labels: Labels, zones: ClassZones, replicas: Type.Union([Replicas, Type.Null()]) }),
      Type.Null(),
    ]),
    /** Even with fewer servers than replicas. */
    force: Type.Optional(Type.Boolean()),
  }),
  /**
   * The quota of a directory, of all that is in it; absent limits stay as they are, and are none at first. Null: none.
   * `walks`: also of a directory with entries, which are counted after the answer (`quota-walk`); absent: the first one
   * needs a directory without entries, and it ends once nothing but the directory counts against it.
   */
  Type.Object({
    kind: Type.Literal('set-quota'),
    inode: Inode,
    quota: Type.Union([
      /** 0: no limit. */
      Type.Object({ quotaBytes: Type.Optional(Bytes), quotaInodes: Type.Optional(Bytes) }),
      Type.Null(),
    ]),
    walks: Type.Optional(Type.Literal(true)),
  }),
  /** Continues quotas that begin or end at directories with entries, by at most `countMax` inodes. */
  Type.Object({
    kind: Type.Literal('walk-quotas'),
    countMax: Type.Integer({ minimum: 1, maximum: 1_000 }),
  }),
  /** Gives a directory's class to its entries after `after`, which are then placed by it. */
  Type.Object({
    kind: Type.Literal('inherit-placement'),
    inode: Inode,
    after: Name,
    countMax: Type.Integer({ minimum: 1, maximum: 1_000 }),
  }),
  /** Links a file from the trash again, with missing directories; `exists` if the path is taken. `to`: another path. */
  Type.Object({
    kind: Type.Literal('trash-restore'),
    volume: VolumeName,
    inode: Inode,
    to: Type.Optional(Path),
  }),
  /** Empties the trash: one file, or at most `countMax` at and below a path, by default the whole volume. */
  Type.Object({
    kind: Type.Literal('trash-empty'),
    volume: VolumeName,
    inode: Type.Optional(Inode),
    path: Type.Optional(Path),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  ...ROOT_COMMANDS,
  ...VOLUME_COMMANDS,
  ...MOVE_COMMANDS,
]);
export type Command = Static<typeof Command>;
export type CommandOf<Kind extends Command['kind']> = Extract<Command, { kind: Kind }>;

export const NodeKind = Type.Union(
  (['file', 'directory', 'symlink', 'fifo', 'socket', 'character', 'block'] as const).map((kind) =>
    Type.Literal(kind),
  ),
);
export type NodeKind = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'character' | 'block';

export interface Attributes {
  readonly inode: number;
  readonly volume: string;
  readonly kind: NodeKind;
  /** Without the file type. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly sizeBytes: number;
  /** Bytes of holes; absent if none are known. */
  readonly holeBytes?: number;
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
  /** Absent if created before all catalog members stored it. */
  readonly createdNs?: string;
  readonly target: string;
  readonly device: number;
  /** Servers with the file's replicas; empty for other kinds. */
  readonly replicas: readonly string[];
  readonly view: number;
  /** Policy of the file's first view; absent for other kinds. */
  readonly policy?: Policy;
  readonly objectBytes: number;
  /** Size up to which the file may grow before its primary asks; absent without a quota. */
  readonly allowedBytes?: number;
  /** Newest contents reported to the catalog, or that a modification time was set on. */
  readonly contents: ContentVersion;
  /** The primary may know a newer size and modification time. */
  readonly live: boolean;
  /** Number of extended attributes; absent from some servers. */
  readonly xattrs?: number;
  /** Protecting flags; absent if none. */
  readonly flags?: readonly InodeFlag[];
  /** Until when the file is retained, perhaps in the past; absent if it never was, and in snapshots. */
  readonly retainUntilNs?: string;
  /** The directory whose placement class it has; absent if it has its volume's. */
  readonly placement?: number;
  /** The directory whose quota it counts against, the innermost one; absent if only its volume's. */
  readonly quota?: number;
  /** The volume that may be attached at this directory: it is, if the list of catalogs says so. */
  readonly junction?: Junction;
  /** The caller's right to the contents; absent without access control. */
  readonly capability?: string;
  /** In a snapshot: its number in the volume. Contents are the snapshot's if their version is `contents`. */
  readonly snapshot?: number;
  /** The file that has the snapshot's contents, if another one. */
  readonly source?: number;
  /** A file of a clone whose contents are still its snapshot's: `shared-contents` says where. Absent in snapshots. */
  readonly shared?: true;
}

/** A volume, and the number of its catalog. */
export interface Junction {
  readonly catalog: number;
  readonly volume: string;
}

export interface SnapshotInfo {
  readonly volume: string;
  readonly name: string;
  /** Number in the volume; never reused. */
  readonly serial: number;
  readonly madeNs: string;
  /** Until when it is retained, perhaps in the past; absent if it never was. */
  readonly retainUntilNs?: string;
}

/** Where the contents of a file are that may be shared with a snapshot. */
export interface SharedContents {
  /** The file that has them: the file itself once it has contents of its own. */
  readonly source: number;
  /** Their version in that file. */
  readonly contents: ContentVersion;
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly objectBytes: number;
  readonly policy: Policy;
  /** Of a shared file: the servers that copy them; empty before `clone-open`. */
  readonly members: readonly string[];
}

/** The snapshot that a volume is a clone of, while it needs that. */
export interface CloneInfo {
  /** The volume of the snapshot, and the snapshot's name. */
  readonly source: string;
  readonly snapshot: string;
  /** Directories and files that need it. What they have in turn is not known yet. */
  readonly unfilled: number;
  /** Whether all of it is being copied. */
  readonly flattens: boolean;
}

/** `in`: takes new replicas. `draining`: its replicas are moved away. `out`: removed; does not rejoin by itself. */
export type ServerState = Static<typeof ServerStates>;

export interface ServerInfo {
  readonly id: string;
  readonly url: string;
  readonly zone: string;
  /** Absent if it has none. */
  readonly labels?: readonly string[];
  readonly state: ServerState;
  readonly storageId: string;
  /** Next inode number when this store replaced another, else 1: of older files a replica may have been lost. */
  readonly bornAt: number;
  readonly freeBytes: number;
  readonly totalBytes: number;
  readonly registeredNs: string;
  /** Until this time its replicas are not replaced; absent without maintenance. */
  readonly maintenanceNs?: string;
}

/** Settings of the cluster that the catalog stores. */
export interface ClusterSettings {
  /** Wanted number of the catalog's members; null: 3, and 5 from five servers on. */
  readonly catalogReplicas: number | null;
}

/** A directory with a placement class of its own; `replicas` is absent for as many as the volume. `path`: if asked. */
export interface DirectoryClass extends PlacementClass {
  readonly directory: number;
  readonly volume: string;
  readonly path?: string;
  readonly replicas?: number;
}

/** A directory with a quota; limits are 0 for none. */
export interface DirectoryQuota {
  readonly directory: number;
  readonly volume: string;
  /** Absent if the directory was removed, and files in the trash count still. */
  readonly path?: string;
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  /** What counts against the quota: the directory and all in it, with files in the trash and growth allowances. */
  readonly namedBytes: number;
  readonly namedInodes: number;
  /** What was there before it is being counted: these limits begin after that. */
  readonly counting?: { readonly quotaBytes: number; readonly quotaInodes: number };
  /** It ends: what still counts against it is being returned to the next outer quota. */
  readonly ending?: true;
}

/** Whether a directory's quota begins, ends, or was refused after it had begun. */
export type QuotaWalkState =
  | { readonly state: 'none' | 'counting' | 'ending' }
  | { readonly state: 'refused'; readonly why: string };

/** A file's replicas, and how many are wanted. */
export interface PlacedFile {
  readonly inode: number;
  readonly members: readonly string[];
  readonly view: number;
  readonly wanted: number;
  readonly sizeBytes: number;
  readonly settings?: FileSettings;
  /** Absent if any server may hold the file. */
  readonly class?: PlacementClass;
  /** Absent without a plan, and from earlier releases. */
  readonly planned?: PlannedMembers;
}

/** Servers that a change under way may make members of a file. */
export interface PlannedMembers {
  readonly servers: readonly string[];
  readonly view: number;
  readonly mark: PlanMark;
}

export interface FileSettings {
  readonly volume: string;
  readonly policy: Policy;
  readonly objectBytes: number;
  /** A quota may limit bytes: growth needs the catalog's permission. */
  readonly limited: boolean;
}

/** `labels` and `zones` are absent if any server may hold the files. */
export interface VolumeInfo extends PlacementClass {
  readonly name: string;
  readonly root: number;
  /** In answers of queries: the number of the volume's own catalog; absent in the root catalog. */
  readonly catalog?: CatalogNumber;
  readonly replicas: number;
  readonly policy: Policy;
  readonly objectBytes: number;
  readonly inodes: number;
  /** Includes orphans that are still to be collected. */
  readonly usedBytes: number;
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  /** What counts against the quotas: linked and trashed inodes, and growth allowances. */
  readonly namedBytes: number;
  readonly namedInodes: number;
  /** Milliseconds that unlinked files are kept; 0: not at all. */
  readonly trashMs: number;
  readonly trashedBytes: number;
  readonly trashedInodes: number;
  /** In lists: directories that have used more than nine tenths of a limit of their quota; absent if none. */
  readonly fullDirectories?: number;
  /** The directory of another volume at which it is attached; absent if at none. */
  readonly attached?: number;
  /** In answers of queries; absent if it needs no snapshot. */
  readonly clone?: CloneInfo;
}

export interface TrashedFile {
  readonly inode: number;
  /** Last path, from the volume's root. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly removedNs: string;
  readonly removedBy?: string;
  /** Deleted some time after this. */
  readonly keptUntilNs: string;
}

const Serial = Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }));

export const AnsweredCommands = Type.Object({
  session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  numbers: Type.Array(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }), { maxItems: 128 }),
});
export type AnsweredCommands = Static<typeof AnsweredCommands>;

/** Position in a list of files by volume, class, number of replicas, wanted number, and servers. */
export const PlacedPosition = Type.Object({
  volume: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  placement: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  members: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  wanted: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  /** Ids of servers, separated by commas; absent from earlier releases, which start with the first ones. */
  replicas: Type.Optional(Type.String({ maxLength: 1_000 })),
  inode: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
});
export type PlacedPosition = Static<typeof PlacedPosition>;

/** Position in the differences of two snapshots: a past row; with `name`, its directory's entries follow after it. */
export const ChangesPosition = Type.Object({
  until: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  since: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  inode: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  name: Type.Optional(Name),
});
export type ChangesPosition = Static<typeof ChangesPosition>;

export const Query = Type.Union([
  /**
   * The inode at a path; a final symbolic link is followed only with `follow`. A path that leads into an attached
   * volume is refused with `junction`; one that ends at the junction only without `junction`.
   */
  Type.Object({
    kind: Type.Literal('resolve'),
    volume: TreeName,
    path: Path,
    follow: Type.Boolean(),
    junction: Type.Optional(Type.Literal('self')),
  }),
  /** `snapshot`, here and below: read from that snapshot of the inode's volume. */
  Type.Object({ kind: Type.Literal('lookup'), parent: Inode, name: Name, snapshot: Serial }),
  Type.Object({ kind: Type.Literal('attributes'), inode: Inode, snapshot: Serial }),
  Type.Object({
    kind: Type.Literal('list'),
    inode: Inode,
    after: Name,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
    snapshot: Serial,
    /** Each entry comes with its extended attribute of this name. */
    xattr: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
  }),
  Type.Object({
    kind: Type.Literal('xattr'),
    inode: Inode,
    name: Type.String({ minLength: 1, maxLength: 255 }),
    snapshot: Serial,
  }),
  Type.Object({ kind: Type.Literal('xattrs'), inode: Inode, snapshot: Serial }),
  Type.Object({ kind: Type.Literal('volume-of'), inode: Inode }),
  Type.Object({ kind: Type.Literal('snapshots'), volume: VolumeName }),
  /**
   * What differs between two snapshots of a volume, by their numbers, for the inodes that `from` shows. A page may be
   * empty and have a next one. `directory`: instead, the names in a directory that only `to` shows.
   */
  Type.Object({
    kind: Type.Literal('snapshot-changes'),
    volume: VolumeName,
    from: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    to: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    directory: Type.Optional(Inode),
    after: Type.Union([ChangesPosition, Type.Null()]),
    countMax: Type.Integer({ minimum: 1, maximum: CHANGES_MAX }),
  }),
  Type.Object({ kind: Type.Literal('sweeps') }),
  /** Directories and files that are to be copied in the background, ascending: see `clone-flatten`, `clone-open`. */
  Type.Object({
    kind: Type.Literal('unfilled'),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** The file, and its version, that has the contents of a file with the attribute `shared`. */
  Type.Object({ kind: Type.Literal('shared-contents'), inode: Inode }),
  /** Linked files of a volume that may be being written. */
  Type.Object({
    kind: Type.Literal('live-files'),
    volume: VolumeName,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Files that count more than their size. `live`: all linked live files, whose known size may be old. */
  Type.Object({
    kind: Type.Literal('reservations'),
    live: Type.Optional(Type.Literal(true)),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  Type.Object({ kind: Type.Literal('volume'), name: VolumeName }),
  Type.Object({ kind: Type.Literal('volumes') }),
  Type.Object({ kind: Type.Literal('outcome'), session: Inode }),
  /** Commands without a stored outcome: not executed, lost with power, or too old. */
  Type.Object({
    kind: Type.Literal('missing-commands'),
    answered: Type.Array(AnsweredCommands, { maxItems: FLUSH_SESSIONS_MAX }),
  }),
  Type.Object({ kind: Type.Literal('existing'), inodes: Type.Array(Inode, { maxItems: 10_000 }) }),
  /** A path of each linked file. Reads all entries: for people, not for programs. */
  Type.Object({ kind: Type.Literal('paths'), inodes: Type.Array(Inode, { maxItems: 1_000 }) }),
  /** All servers, removed ones too. `counts`: with their numbers of files. */
  Type.Object({ kind: Type.Literal('servers'), counts: Type.Boolean() }),
  Type.Object({ kind: Type.Literal('voters') }),
  /** Directories with a placement class of their own. `paths`: with paths, which reads all entries beside them. */
  /** Quotas of a volume's directories, in the order of their numbers. */
  Type.Object({
    kind: Type.Literal('directory-quotas'),
    volume: VolumeName,
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 1_000 }),
  }),
  /** Quotas of directories that an inode counts against, the innermost first. */
  Type.Object({ kind: Type.Literal('quotas-of'), inode: Inode }),
  /** Whether quotas begin or end at directories with entries: `walk-quotas` continues them. */
  Type.Object({ kind: Type.Literal('quota-walks') }),
  /** Whether the quota of a directory is being counted, or ends. */
  Type.Object({ kind: Type.Literal('quota-walk'), inode: Inode }),
  Type.Object({ kind: Type.Literal('placement-classes'), paths: Type.Optional(Type.Literal(true)) }),
  /**
   * Volumes with a catalog of their own, removed ones too, and servers. `known`: version that the caller has; if the
   * list has no other, only the version is returned.
   */
  Type.Object({ kind: Type.Literal('catalogs'), known: Type.Optional(Type.Integer({ minimum: 0 })) }),
  /** Of a volume's catalog, also before it has begun and after it has closed. */
  Type.Object({ kind: Type.Literal('catalog-state') }),
  /** Files with a replica on a server, ascending, after `after`. */
  Type.Object({
    kind: Type.Literal('files-on'),
    server: ServerName,
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /**
   * How many files have a majority of their servers only with `server` while those of `without` and removed ones are
   * missing, or move to a missing one.
   */
  Type.Object({
    kind: Type.Literal('files-needing'),
    server: ServerName,
    without: Type.Array(ServerName, { maxItems: 1_000 }),
  }),
  /**
   * Files with too few replicas, of those that `servers` servers can have, or too many. `away`: servers that take none,
   * of those that the files' labels and zones allow.
   */
  Type.Object({
    kind: Type.Literal('files-miscounted'),
    servers: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    away: Type.Optional(Type.Array(ServerName, { maxItems: 1_000 })),
    after: Type.Union([PlacedPosition, Type.Null()]),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /**
   * Files on servers that their labels and zones do not allow, while there is an allowed one, not `away`, without them.
   * Examines a bounded number of sets of servers: a page without files may have a next one.
   */
  Type.Object({
    kind: Type.Literal('files-misplaced'),
    away: Type.Array(ServerName, { maxItems: 1_000 }),
    after: Type.Union([PlacedPosition, Type.Null()]),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Files with planned members, ascending, after `after`. `begun`: plans were ever made. */
  Type.Object({
    kind: Type.Literal('plans'),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Places of the given inodes that are existing files. `settings`: with settings. */
  Type.Object({
    kind: Type.Literal('placed'),
    inodes: Type.Array(Inode, { maxItems: 10_000 }),
    settings: Type.Optional(Type.Literal(true)),
  }),
  /** Files that were deleted or moved away from a server: rows of its log after `after`. */
  Type.Object({
    kind: Type.Literal('deletions'),
    server: ServerName,
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Trashed files at or below a path, by path, then number. */
  Type.Object({
    kind: Type.Literal('trash'),
    volume: VolumeName,
    path: Path,
    after: Type.Union([Type.Object({ path: Path, inode: Inode }), Type.Null()]),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  ...MOVE_QUERIES,
]);
export type Query = Static<typeof Query>;

/** An inode that both snapshots show, with other contents or attributes. Access times do not count. */
export interface InodeChange {
  readonly before: Attributes;
  readonly after: Attributes;
  readonly contents: boolean;
  /** Extended attributes were set or removed. */
  readonly xattrs: boolean;
}

/** A name that was added, removed or given to another inode; an inode in both kinds of changes was renamed. */
export interface EntryChange {
  readonly parent: number;
  readonly name: string;
  /** `isRemoved`: the newer snapshot does not show the inode under any name. */
  readonly before: { readonly inode: number; readonly kind: NodeKind; readonly isRemoved: boolean } | null;
  /** `isNew`: the older snapshot does not show the inode. */
  readonly after: { readonly attributes: Attributes; readonly isNew: boolean } | null;
}

/** `next`: resume point, null at the end. */
export interface SnapshotChanges {
  readonly inodes: readonly InodeChange[];
  readonly names: readonly EntryChange[];
  readonly next: ChangesPosition | null;
}

export type CreateWithContentsCommand = CommandOf<'bear'>;

/** Result of `bear`; short, because every session stores it. */
export interface CreateWithContentsResult {
  readonly atNs: string;
  /** A quota limits the bytes of one of them. */
  readonly limited: boolean;
  readonly files: Readonly<Record<string, FileCreationResult>>;
}

/** Null: created as requested; else what the directory changed, or why the file was not created. */
export type FileCreationResult =
  | null
  | { readonly mode: number; readonly gid: number; readonly xattrs: number }
  | { readonly code: ErrorCode; readonly message: string };

export type PlanOutcome =
  | { readonly planned: readonly string[] }
  | { readonly code: ErrorCode; readonly message: string };

export type UnlinkedFile = number | { readonly code: ErrorCode; readonly message: string };

/** Contents to preserve, and the inode to preserve them as. */
export interface Preservation {
  readonly inode: number;
  readonly contents: ContentVersion;
}

export interface CommandResults extends RootCommandResults, VolumeCommandResults, MoveCommandResults {
  readonly 'volume-create': { readonly volume: VolumeInfo };
  readonly 'volume-set': { readonly volume: VolumeInfo };
  /** `catalog`: the row of a volume with a catalog of its own, which is removed once that has closed. */
  readonly 'volume-remove': { readonly catalog?: ListedCatalog };
  /** `atNs`: as in `unlink`; the file's own times differ if the command gave them. */
  readonly 'create-file': {
    readonly attributes: Attributes;
    readonly created: boolean;
    readonly atNs?: string;
    /** All members of the catalog obey `unchangedNs` of `set-attributes`. Absent from servers of earlier releases. */
    readonly conditional?: true;
    /**
     * Delegation of the directory, under which the file's creator may keep changes of its attributes: another client's
     * change of the file recalls it. Absent if it must not, in a retry's answer, and from servers of earlier releases.
     */
    readonly generation?: number;
  };
  readonly 'reserve-inodes': { readonly first: number };
  readonly 'void-inodes': { readonly voided: readonly number[] };
  readonly bear: CreateWithContentsResult;
  readonly forgo: Record<string, never>;
  readonly 'pin-write': {
    readonly inode: number;
    readonly since: number;
    readonly session: number;
    readonly number: number;
  };
  readonly 'create-orphan': { readonly attributes: Attributes };
  readonly 'keep-orphan': Record<string, never>;
  readonly replace: { readonly attributes: Attributes; readonly replaced: number | null };
  readonly 'replace-with-contents': { readonly attributes: Attributes; readonly replaced: number | null };
  /** `delegated`, `generation`: the new directory's delegation, @see GrantedAnswer; absent if none. */
  readonly 'make-directory': {
    readonly attributes: Attributes;
    readonly delegated?: number;
    readonly generation?: number;
    readonly atNs?: string;
  };
  readonly 'make-node': { readonly attributes: Attributes; readonly atNs?: string };
  readonly 'junction-create': { readonly attributes: Attributes };
  readonly 'junction-remove': Record<string, never>;
  readonly 'remove-directory': { readonly atNs?: string };
  /** `atNs`: the directory's new times; absent in a retry's answer, and from earlier releases. */
  readonly unlink: { readonly inode: number; readonly links: number; readonly atNs?: string };
  /** One per entry, in order. `atNs`: as in `unlink`. */
  readonly 'unlink-files': { readonly files: readonly UnlinkedFile[]; readonly atNs?: string };
  readonly 'unlink-fenced': { readonly files: readonly UnlinkedFile[]; readonly atNs?: string };
  /** `replaced`: the inode that lost the target entry. `atNs`: as in `unlink`; also absent if nothing changed. */
  readonly rename: { readonly replaced: number | null; readonly atNs?: string };
  readonly 'rename-whiteout': { readonly replaced: number | null; readonly atNs?: string };
  readonly symlink: { readonly attributes: Attributes; readonly atNs?: string };
  readonly link: { readonly attributes: Attributes; readonly atNs?: string };
  /** `granted`: the client's session to which the attributes are granted; absent if none, and from earlier releases. */
  readonly 'set-attributes': { readonly attributes: Attributes; readonly granted?: number };
  readonly 'set-flags': { readonly attributes: Attributes };
  readonly retain: { readonly attributes: Attributes };
  readonly 'note-accesses': { readonly noted: number };
  /** `preserve`: the file is not marked yet; first preserve contents of this version as the inode. */
  readonly 'open-for-write': { readonly attributes: Attributes; readonly preserve?: Preservation };
  readonly settle: { readonly settled: number };
  readonly 'set-xattr': Record<string, never>;
  readonly 'remove-xattr': Record<string, never>;
  readonly collect: { readonly inodes: readonly number[] };
  /**
   * `catalogsVersion`: of the root's list of volumes' catalogs at this registration; `storedAt`: at the first one of
   * the store. Absent: it had no versions yet.
   */
  readonly 'server-register': {
    readonly server: ServerInfo;
    readonly catalogsVersion?: number;
    readonly storedAt?: number;
  };
  readonly 'server-add': { readonly server: ServerInfo };
  readonly 'server-state': { readonly server: ServerInfo };
  readonly 'server-zone': { readonly server: ServerInfo };
  readonly 'server-label': { readonly server: ServerInfo };
  readonly 'set-placement': Record<string, never>;
  readonly 'set-quota': Record<string, never>;
  readonly 'walk-quotas': { readonly more: boolean };
  /** `directories`: those that got it. `next`: null at the end. */
  readonly 'inherit-placement': { readonly directories: readonly number[]; readonly next: string | null };
  readonly 'server-maintenance': { readonly server: ServerInfo };
  readonly 'cluster-set': { readonly settings: ClusterSettings };
  readonly 'server-remove': { readonly server: ServerInfo };
  /** For each file, in order. */
  readonly 'follow-views': { readonly followed: readonly boolean[] };
  /** For each file, in order: the servers that are planned now, or why the plan was refused. */
  readonly 'plan-files': { readonly plans: readonly PlanOutcome[] };
  /** `followed`: the view was newer than the catalog's. */
  readonly 'follow-view': { readonly followed: boolean };
  /** The present plan, which differs from the command's if a later plan or view exists. */
  readonly 'plan-members': { readonly planned: readonly string[] };
  readonly 'trim-deletions': Record<string, never>;
  readonly 'set-voters': Record<string, never>;
  readonly 'set-replicas': Record<string, never>;
  readonly 'trash-restore': { readonly attributes: Attributes; readonly path: string };
  readonly 'trash-empty': { readonly removed: number };
  readonly 'snapshot-create': { readonly snapshot: SnapshotInfo };
  readonly 'snapshot-remove': Record<string, never>;
  readonly 'clone-create': { readonly volume: VolumeInfo };
  /** `done`: the directory has all its entries. */
  readonly 'clone-fill': { readonly done: boolean };
  /** Null if the file has contents of its own. */
  readonly 'clone-open': { readonly members: readonly string[] | null };
  readonly 'clone-filled': Record<string, never>;
  /** How many directories and files need the snapshot, as in `CloneInfo`; 0 for a volume that is no clone. */
  readonly 'clone-flatten': { readonly unfilled: number };
  readonly 'snapshot-retain': { readonly snapshot: SnapshotInfo };
  readonly sweep: { readonly rows: number; readonly more: boolean };
}

export interface QueryResults extends MoveQueryResults {
  readonly resolve: { readonly attributes: Attributes };
  readonly lookup: { readonly attributes: Attributes };
  readonly attributes: { readonly attributes: Attributes };
  readonly list: {
    /** `xattr`: value of the requested attribute, in base64; absent without one. */
    readonly entries: readonly {
      readonly name: string;
      readonly attributes: Attributes;
      readonly xattr?: string;
    }[];
    readonly more: boolean;
  };
  readonly xattr: { readonly value: string };
  readonly xattrs: { readonly names: readonly string[] };
  readonly 'volume-of': { readonly volume: string };
  readonly snapshots: { readonly snapshots: readonly SnapshotInfo[] };
  readonly 'snapshot-changes': SnapshotChanges;
  /**
   * `garbage`: whether there is anything that `collect` deletes, at once or when its time has come. `retains`: whether
   * there is a date of a retention that has not come.
   */
  /** `next`: the position after which there may be more; null at the end. */
  readonly unfilled: {
    readonly inodes: readonly { readonly inode: number; readonly kind: NodeKind }[];
    readonly next: number | null;
  };
  readonly 'shared-contents': SharedContents;
  readonly sweeps: { readonly pending: boolean; readonly garbage?: boolean; readonly retains?: boolean };
  readonly 'live-files': { readonly inodes: readonly number[] };
  /** `next`: resume point, null at the end. */
  readonly reservations: {
    readonly files: readonly { readonly inode: number; readonly mark: LiveMark }[];
    readonly next: number | null;
  };
  readonly volume: { readonly volume: VolumeInfo };
  /** `unavailable`: names of volumes whose catalogs have not answered. */
  readonly volumes: { readonly volumes: readonly VolumeInfo[]; readonly unavailable?: readonly string[] };
  /** `result`: null if the session is unknown, or its last command was refused. */
  readonly outcome: { readonly result: CommandResults[Command['kind']] | null; readonly number: number };
  readonly 'missing-commands': FlushAnswer;
  readonly existing: { readonly inodes: readonly number[] };
  readonly paths: {
    readonly paths: readonly { readonly inode: number; readonly volume: string; readonly path: string }[];
  };
  /**
   * `settings`: absent from servers of earlier releases. `unavailable`: names of volumes whose catalogs have not
   * answered, so that their files are not counted.
   */
  readonly servers: {
    readonly servers: readonly (ServerInfo & { readonly replicas?: number })[];
    readonly settings?: ClusterSettings;
    readonly unavailable?: readonly string[];
  };
  readonly voters: { readonly view: Voters | null };
  readonly catalogs: CatalogList;
  readonly 'catalog-state': OwnCatalogState;
  /** `examples`: numbers of some of these files. `planned`: files of which the server is to become a member. */
  readonly 'files-needing': {
    readonly files: number;
    readonly examples: readonly number[];
    readonly planned: number;
  };
  readonly 'files-on': { readonly files: readonly PlacedFile[]; readonly more: boolean };
  /** `next`: resume point, null at the end. */
  /** `next`: after which to continue, null at the end. */
  readonly 'directory-quotas': { readonly quotas: readonly DirectoryQuota[]; readonly next: number | null };
  readonly 'quotas-of': { readonly quotas: readonly DirectoryQuota[] };
  readonly 'quota-walks': { readonly pending: boolean };
  readonly 'quota-walk': QuotaWalkState;
  readonly 'placement-classes': { readonly classes: readonly DirectoryClass[] };
  readonly 'files-miscounted': {
    readonly files: readonly PlacedFile[];
    readonly next: PlacedPosition | null;
  };
  readonly 'files-misplaced': {
    readonly files: readonly PlacedFile[];
    readonly next: PlacedPosition | null;
  };
  readonly plans: {
    readonly files: readonly PlacedFile[];
    readonly next: number | null;
    readonly begun: boolean;
  };
  /** `reserved`: numbers that may still become files. */
  readonly placed: { readonly files: readonly PlacedFile[]; readonly reserved: readonly number[] };
  /**
   * Rows up to `trimmed` are gone, the latest is `last`. `written`: all members of the catalog write the log; if not,
   * it misses deletions.
   */
  readonly deletions: {
    readonly rows: readonly (readonly [seq: number, inode: number])[];
    readonly trimmed: number;
    readonly last: number;
    readonly written: boolean;
  };
  readonly trash: { readonly files: readonly TrashedFile[]; readonly more: boolean };
}

const CacheNumber = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** A delegation; each has its own generation number. */
export const DelegationOfSession = Type.Object({ inode: Inode, generation: CacheNumber });
export type DelegationOfSession = Static<typeof DelegationOfSession>;

/** Requests changes in or below a directory after an operation of the catalog; null: from now on. */
export const ChangesRequest = Type.Object({
  inode: Inode,
  recursive: Type.Boolean(),
  after: Type.Union([Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), Type.Null()]),
  /** How long to wait for a first change, in milliseconds. */
  waitMs: Type.Integer({ minimum: 0, maximum: 10_000 }),
});
export type ChangesRequest = Static<typeof ChangesRequest>;

export interface TreeChange {
  /** `modified`: written in place. */
  readonly change: 'created' | 'replaced' | 'removed' | 'modified';
  readonly path: string;
  readonly kind?: NodeKind;
}

export interface ChangesAnswer {
  readonly changes: readonly TreeChange[];
  /** All changes up to this operation are included. */
  readonly through: number;
  /** Earlier changes are unknown: list again. */
  readonly resync: boolean;
}

/** A caching client, and what it dropped from its cache and does not cache until the command is answered. */
export const CacheOwner = Type.Object({
  client: CacheNumber,
  forgets: Type.Array(Inode, { maxItems: FORGETS_MAX }),
  /** The session that gets a new directory's delegation, if possible. */
  session: Type.Optional(CacheNumber),
  /**
   * The session whose grants of these inodes are not recalled. Its client ends the session before it uses a grant
   * after it stopped waiting, so that a late command recalls every later grant. Absent: recalls all.
   */
  under: Type.Optional(CacheNumber),
  /** The command runs only while session `under` holds these delegations, else `fence-lost`. Checked in its tick. */
  fence: Type.Optional(Type.Array(DelegationOfSession, { minItems: 1, maxItems: FORGETS_MAX })),
  /**
   * Of `create-file`: the client wants to keep changes of the new file's attributes. All its commands contain `under`,
   * which clients of earlier releases omit.
   */
  keeps: Type.Optional(Type.Literal(true)),
});
export type CacheOwner = Static<typeof CacheOwner>;

/** A command with its request id: a retry is answered, not repeated. */
export const CommandRequest = Type.Object({
  session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  /** The catalog's `seq` at the session's start, if known: distinguishes a forgotten session from a new one. */
  since: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  cache: Type.Optional(CacheOwner),
  command: Command,
});
export type CommandRequest = Static<typeof CommandRequest>;

/** Optional body of `POST /v1/catalog/flush`: commands answered to the client that the flush must cover. */
export const FlushRequest = Type.Object({
  answered: Type.Array(AnsweredCommands, { maxItems: FLUSH_SESSIONS_MAX }),
});
export type FlushRequest = Static<typeof FlushRequest>;

/** `missing`: commands that the catalog lost or forgot; sessions without any are left out. */
export interface FlushAnswer {
  readonly missing: readonly AnsweredCommands[];
}

/**
 * With `live` the server queries the primaries of live files: returned attributes have current size and times, and a
 * modification time without `contents` is set on the newest contents.
 */
export type CommandBody = CommandRequest & { readonly live?: boolean };

/**
 * `cache`: the session of a caching client; the answer is a `GrantedAnswer`. `delegate`: delegates the directory
 * to that session and grants nothing else. `exact`, without a session: includes entries that a client with the
 * delegation has not reported yet.
 */
export const QueryRequest = Type.Object({
  query: Query,
  cache: Type.Optional(CacheNumber),
  delegate: Type.Optional(Type.Boolean()),
  exact: Type.Optional(Type.Boolean()),
});
export type QueryRequest = Static<typeof QueryRequest>;

/** A caching client's long poll: renews its session, acknowledges and receives recalls. First without `session`. */
export const CacheRequest = Type.Object({
  client: CacheNumber,
  session: Type.Optional(CacheNumber),
  /** The previous session, whose grants the client no longer uses. */
  left: Type.Optional(CacheNumber),
  /** All recalls up to this number are carried out. */
  acked: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  /** The client names the session in each command; earlier releases do not, and get no session. */
  fenced: Type.Optional(Type.Boolean()),
});
export type CacheRequest = Static<typeof CacheRequest>;

/** A read under a grant. `changedNs`: ctime of the attributes that the access time belongs to. */
export interface NotedRead {
  readonly inode: number;
  readonly accessedNs: string;
  readonly changedNs: string;
}

export interface CacheAnswer {
  /** A new one voids all earlier grants. Null: none available now. */
  readonly session: number | null;
  /** Validity of grants in milliseconds, from before the poll was sent; 0: not extended. */
  readonly validMs: number;
  /** Inodes whose attributes, entries and contents must be dropped. */
  readonly recalls: readonly number[];
  /** Increased access times, without an acknowledgement; absent if none, and from earlier releases. */
  readonly reads?: readonly NotedRead[];
  readonly through: number;
  /** The primary obeys `CacheOwner.under` and `fence`; absent from earlier releases. */
  readonly fenced?: boolean;
}

export interface GrantedAnswer<Result> {
  /** Null: a `lookup` found no entry in an existing directory. */
  readonly result: Result | null;
  /** What may be cached: all but the inodes `refused`; nothing if null. */
  readonly granted: { readonly session: number; readonly refused: readonly number[] } | null;
  readonly delegated?: number;
  readonly generation?: number;
}
