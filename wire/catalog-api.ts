import type { ErrorCode } from '../base/errors.ts';
import { RESERVED_NUMBERS_MAX, RESERVED_SETS_MAX } from './birth-numbers.ts';
import { INODE_FLAGS, type InodeFlag } from './inode-flags.ts';
import { ACCESSES_MAX, BIRTHS_MAX, FLUSH_SESSIONS_MAX, FORGETS_MAX, UNLINKS_MAX } from './request-limits.ts';
import { type Static, Type } from './schema.ts';

/** The catalog's commands and queries as they travel in JSON, and their answers. Times are decimal nanoseconds since 1970. */

const Inode = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
const Nanoseconds = Type.String({ pattern: '^-?[0-9]{1,20}$' });
const Mode = Type.Integer({ minimum: 0, maximum: 0o7777 });
/** Bits that the mode loses, unless the directory has a default access control list. */
const Umask = Type.Optional(Mode);
const Owner = Type.Integer({ minimum: 0, maximum: 0xffff_ffff });
const VolumeName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
const SnapshotName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
/** A volume, or a snapshot of it: `volume@snapshot`. */
const TreeName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?$' });
const Base64 = Type.String({ pattern: '^[A-Za-z0-9+/]*={0,2}$', maxLength: 90_000 });
const InodeFlags = Type.Array(Type.Union(INODE_FLAGS.map((flag) => Type.Literal(flag))), {
  maxItems: INODE_FLAGS.length,
});
/** Names and paths are checked by the catalog itself: bytes of UTF-8, not characters, count. */
const Name = Type.String({ maxLength: 4096 });
const Path = Type.String({ maxLength: 16_384 });

/** A name in a directory: by the directory's inode, or by the path from the volume's root. */
export const Place = Type.Union([
  Type.Object({ parent: Inode, name: Name }),
  Type.Object({ volume: VolumeName, path: Path }),
]);
export type Place = Static<typeof Place>;

/** Epoch counter and sequence number of the last change of a file's contents. */
export const ContentVersion = Type.Object({
  epoch: Type.Integer({ minimum: 0 }),
  seq: Type.Integer({ minimum: 0 }),
});
export type ContentVersion = Static<typeof ContentVersion>;

/** A primary's mark that a file is live: its epoch's counter, and how often it has marked the file in it. */
export const LiveMark = Type.Object({
  epoch: Type.Integer({ minimum: 0 }),
  turn: Type.Integer({ minimum: 0 }),
});
export type LiveMark = Static<typeof LiveMark>;

/** The mark of a plan for new members of a file: the epoch of the file's primary, and how often it had planned in it. */
export const PlanMark = LiveMark;
export type PlanMark = LiveMark;

/** Who must have a change of a file before it is answered: a majority, all, or a majority until the file is sealed. */
export const Policy = Type.Union([Type.Literal('quorum'), Type.Literal('all'), Type.Literal('read-only')]);
export type Policy = Static<typeof Policy>;

const Replicas = Type.Integer({ minimum: 1, maximum: 15 });
const ServerName = Type.String({ pattern: '^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$' });
const ServerUrl = Type.String({ pattern: '^https?://[^/?#\\s]+$', maxLength: 300 });
const VoterSet = Type.Object({
  servers: Type.Array(ServerName, { minItems: 1, maxItems: 1_000 }),
  perCell: Type.Integer({ minimum: 1, maximum: 7 }),
});
/** As `VotersView` of the lease layer has it. */
const Voters = Type.Object({
  number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  members: VoterSet,
  joint: Type.Optional(VoterSet),
  clockMs: Type.Number(),
});
export type Voters = Static<typeof Voters>;
/** A label of what fails together: a rack, a room, a power supply. Empty where nobody gave one. */
const Zone = Type.String({ pattern: '^[A-Za-z0-9._-]{0,63}$' });
const Members = Type.Array(ServerName, { minItems: 1, maxItems: 30 });
const Bytes = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

/**
 * What must be at a place in the moment of a change, else `precondition-failed`. `contents`: this inode, with these
 * contents, and nobody may have written since: a file that is live is settled before, or refused.
 */
export const Expectation = Type.Union([
  Type.Object({ kind: Type.Literal('anything') }),
  Type.Object({ kind: Type.Literal('nothing') }),
  Type.Object({ kind: Type.Literal('inode'), inode: Inode }),
  Type.Object({ kind: Type.Literal('contents'), inode: Inode, contents: ContentVersion }),
]);
export type Expectation = Static<typeof Expectation>;

/** Extended attribute of a file that is being uploaded in pieces; nobody else can set it, and it goes when the file gets its name. */
export const UPLOAD_NOTE = 'leasehold.upload';

/** A century at the most: times in nanoseconds have 64 bits. */
const TrashMs = Type.Integer({ minimum: 0, maximum: 3_155_760_000_000 });

/** What is said of a file that loses its last name, in a volume with a trash. */
const REMOVAL = {
  /** Who takes the name away, as it is told to others. */
  by: Type.Optional(Type.String({ maxLength: 300 })),
  /** False: the file is not kept. */
  trash: Type.Optional(Type.Boolean()),
};

export const Command = Type.Union([
  Type.Object({
    kind: Type.Literal('volume-create'),
    name: VolumeName,
    replicas: Replicas,
    objectBytes: Type.Integer({ minimum: 4096, maximum: 4 * 1024 * 1024 }),
    /** Of the root directory; 0755 and 0:0 where absent. */
    mode: Type.Optional(Mode),
    uid: Type.Optional(Owner),
    gid: Type.Optional(Owner),
    /** Of the volume's files; `quorum` where absent. */
    policy: Type.Optional(Policy),
    /** Also if there are not that many servers yet. */
    force: Type.Optional(Type.Boolean()),
    /** Of the sizes of all files, and of files and directories; 0 for none. */
    quotaBytes: Type.Optional(Bytes),
    quotaInodes: Type.Optional(Bytes),
    /** How long files are kept that lost their last name; 0, or absent: they are not. */
    trashMs: Type.Optional(TrashMs),
  }),
  /** Absent fields stay. The replicas of files that are there follow; the policy is that of files to come. */
  Type.Object({
    kind: Type.Literal('volume-set'),
    name: VolumeName,
    replicas: Type.Optional(Replicas),
    policy: Type.Optional(Policy),
    force: Type.Optional(Type.Boolean()),
    /** For files that are being written, a quota counts from their next sync or close on. */
    quotaBytes: Type.Optional(Bytes),
    quotaInodes: Type.Optional(Bytes),
    /** For what is thrown away from now on. */
    trashMs: Type.Optional(TrashMs),
  }),
  /** Refused with `not-empty` unless the volume is empty. */
  Type.Object({ kind: Type.Literal('volume-remove'), name: VolumeName }),
  /** Answers the file that is there, unless `exclusive`. The new file is live (its primary knows its size). */
  Type.Object({
    kind: Type.Literal('create-file'),
    place: Place,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    exclusive: Type.Boolean(),
    umask: Umask,
    /**
     * By a number that was reserved, refused with `precondition-failed` where it is not, or not any more. Where it is the number of the
     * file that is there, that is the answer, exclusive or not.
     */
    reserved: Type.Optional(Type.Object({ inode: Inode, owner: Inode })),
    /** Of a file that was there for its maker before; the moment in which it is made where they are absent. */
    times: Type.Optional(
      Type.Object({ accessedNs: Nanoseconds, modifiedNs: Nanoseconds, changedNs: Nanoseconds }),
    ),
  }),
  /**
   * Ends reservations of numbers by which no file was made, and none can be from then on: contents that were stored by them go with the next
   * garbage. Numbers that are not reserved for `owner`, or were used, are passed over.
   */
  Type.Object({
    kind: Type.Literal('void-inodes'),
    owner: Inode,
    inodes: Type.Array(Inode, { minItems: 1, maxItems: RESERVED_NUMBERS_MAX }),
  }),
  /** Numbers for files that are to be borne or made by who knows `owner`, a random number; those that nobody uses are void after a while. */
  Type.Object({
    kind: Type.Literal('reserve-inodes'),
    owner: Inode,
    count: Type.Integer({ minimum: 1, maximum: RESERVED_NUMBERS_MAX }),
    /**
     * The members of the files' first view, in any way they are made, see `numberRuns`. Refused with `precondition-failed` where they
     * are absent: two ways of making one file would choose two member sets for one view.
     */
    members: Type.Optional(
      Type.Array(Type.Array(ServerName, { minItems: 1, maxItems: 15 }), {
        minItems: 1,
        maxItems: RESERVED_SETS_MAX,
      }),
    ),
  }),
  /**
   * Names new files of one volume, of which a majority of their replicas has all contents. One that is refused does not hold up the
   * others.
   */
  Type.Object({
    kind: Type.Literal('bear'),
    owner: Inode,
    /** Who holds the contents, and how they were cut: refused with `precondition-failed` where the volume's files are cut otherwise by now. */
    replicas: Type.Array(ServerName, { maxItems: 15 }),
    /** Files of this command whose contents other servers hold. */
    elsewhere: Type.Optional(
      Type.Array(
        Type.Object({
          replicas: Type.Array(ServerName, { minItems: 1, maxItems: 15 }),
          inodes: Type.Array(Inode, { minItems: 1, maxItems: BIRTHS_MAX }),
        }),
        { maxItems: BIRTHS_MAX },
      ),
    ),
    objectBytes: Type.Integer({ minimum: 4096, maximum: 4 * 1024 * 1024 }),
    files: Type.Array(
      Type.Object({
        parent: Inode,
        name: Name,
        inode: Inode,
        mode: Mode,
        uid: Owner,
        gid: Owner,
        sizeBytes: Bytes,
        /** Absent: the moment of the command. */
        accessedNs: Type.Optional(Nanoseconds),
        modifiedNs: Type.Optional(Nanoseconds),
        changedNs: Type.Optional(Nanoseconds),
        contents: ContentVersion,
      }),
      { minItems: 1, maxItems: BIRTHS_MAX },
    ),
  }),
  /** Takes the place of a request that may be still to come, which has no effect then. Answered with its result where it came before. */
  Type.Object({ kind: Type.Literal('forgo') }),
  /**
   * Changes nothing: its result, which is remembered for its session, is what the first attempt of a keyed write named. So each later
   * attempt writes to the same file, by the same name.
   */
  Type.Object({
    kind: Type.Literal('pin-write'),
    inode: Inode,
    /** An operation of the file from before the first attempt. */
    since: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    /** By which the file remembers the write. */
    session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  }),
  /** A file without a name, for an upload; `replace` gives it one, else it is collected. */
  Type.Object({
    kind: Type.Literal('create-orphan'),
    volume: VolumeName,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    /** What an upload has to know of itself; the extended attribute `UPLOAD_NOTE` until the file has a name. */
    note: Type.Optional(Base64),
    /** As in `keep-orphan`. */
    untilNs: Type.Optional(Nanoseconds),
  }),
  /** The orphan is still wanted: its time to collection starts anew, now or, however late, at `untilNs`. */
  Type.Object({
    kind: Type.Literal('keep-orphan'),
    inode: Inode,
    untilNs: Type.Optional(Nanoseconds),
  }),
  /**
   * Gives the orphan `inode` the name, in place of the file that has it, whose mode, owner and
   * extended attributes it takes over.
   */
  Type.Object({
    kind: Type.Literal('replace'),
    place: Place,
    inode: Inode,
    expect: Expectation,
    ...REMOVAL,
  }),
  /**
   * As `replace`, of a file that was created with contents by a reserved number: the command creates its inode, settled. Refused with
   * `bad-request` where that cannot be: the number is not reserved for these servers any more, or the volume's files are stored otherwise.
   */
  Type.Object({
    kind: Type.Literal('replace-with-contents'),
    place: Place,
    inode: Inode,
    /** Has the number. */
    owner: Inode,
    replicas: Type.Array(ServerName, { minItems: 1, maxItems: 15 }),
    objectBytes: Type.Integer({ minimum: 4096, maximum: 4 * 1024 * 1024 }),
    mode: Mode,
    uid: Owner,
    gid: Owner,
    sizeBytes: Bytes,
    modifiedNs: Nanoseconds,
    contents: ContentVersion,
    expect: Expectation,
    ...REMOVAL,
  }),
  Type.Object({
    kind: Type.Literal('make-directory'),
    place: Place,
    mode: Mode,
    uid: Owner,
    gid: Owner,
    umask: Umask,
  }),
  /** FIFOs, sockets and devices: names with attributes, no contents of ours. */
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
  Type.Object({ kind: Type.Literal('remove-directory'), place: Place }),
  Type.Object({
    kind: Type.Literal('unlink'),
    place: Place,
    expect: Type.Optional(Expectation),
    ...REMOVAL,
  }),
  /**
   * Takes names of files away, each from the inode that is meant: what else has the name by then keeps it. Each has an outcome of its own, and
   * is done or refused by itself.
   */
  Type.Object({
    kind: Type.Literal('unlink-files'),
    files: Type.Array(Type.Object({ parent: Inode, name: Name, inode: Inode }), {
      minItems: 1,
      maxItems: UNLINKS_MAX,
    }),
    ...REMOVAL,
  }),
  /** As `unlink-files`, under a fence. A kind of its own: a server whose release knows no fences refuses it. */
  Type.Object({
    kind: Type.Literal('unlink-fenced'),
    files: Type.Array(Type.Object({ parent: Inode, name: Name, inode: Inode }), {
      minItems: 1,
      maxItems: UNLINKS_MAX,
    }),
    /**
     * For each file, in their order, the contents that it has to have: one that was written since, or is live, is refused with
     * `fence-lost`. Null: whatever it has.
     */
    contents: Type.Array(Type.Union([ContentVersion, Type.Null()]), { minItems: 1, maxItems: UNLINKS_MAX }),
    ...REMOVAL,
  }),
  Type.Object({
    kind: Type.Literal('rename'),
    from: Place,
    to: Place,
    mode: Type.Union([Type.Literal('replace'), Type.Literal('no-replace'), Type.Literal('exchange')]),
    /** Of what is at `from`. */
    expect: Type.Optional(Expectation),
    ...REMOVAL,
  }),
  /** As `rename`; `from` becomes a whiteout, a character device 0/0 of mode 0, of this owner. @see RENAME_WHITEOUT of renameat2(2) */
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
  /** Absent fields stay. A modification time is in force until contents newer than `contents` arrive. */
  Type.Object({
    kind: Type.Literal('set-attributes'),
    inode: Inode,
    mode: Type.Optional(Mode),
    uid: Type.Optional(Owner),
    gid: Type.Optional(Owner),
    accessedNs: Type.Optional(Nanoseconds),
    modifiedNs: Type.Optional(Nanoseconds),
    contents: Type.Optional(ContentVersion),
    /** Its times are the moment of the command, whatever they say: also what is append-only takes that. */
    touches: Type.Optional(Type.Literal(true)),
  }),
  /**
   * Flags that protect a file or directory, as `chattr` sets them; those that are in neither list stay. The catalog's primary has a live file
   * settled before: from the answer on no change of its contents that the flags forbid is ordered.
   */
  Type.Object({ kind: Type.Literal('set-flags'), inode: Inode, set: InodeFlags, clear: InodeFlags }),
  /**
   * What was read, told a moment later. An access time only becomes later by it, and nothing else of the inode changes; inodes that are gone, or
   * of another volume, are passed over. Whoever may read may tell so.
   */
  Type.Object({
    kind: Type.Literal('note-accesses'),
    volume: VolumeName,
    /**
     * A read of before the last change of status counts only where that was a write. Absent, as from clients of earlier releases: also where
     * the access time is the same as before, which another client may have set.
     */
    unset: Type.Optional(Type.Literal(true)),
    accesses: Type.Array(
      Type.Object({
        inode: Inode,
        /** When it was read, as whoever has read it knows the time; not later than now. */
        accessedNs: Nanoseconds,
        /**
         * As they were known then. Counts where one of the two is the same still: else somebody may have set the access time since, and that
         * stays.
         */
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
    /** The size that the file is about to have: refused with `quota-exceeded` where its volume may not hold that. */
    growTo: Type.Optional(Bytes),
    /** Whoever asks preserves what snapshots show, if the answer says so, and asks again. */
    preserves: Type.Optional(Type.Literal(true)),
    /** The primary that asks only appends where the answer says that the file is `append-only`. */
    restricts: Type.Optional(Type.Literal(true)),
    /**
     * The contents that snapshots show are preserved now, survive loss of power, and are at these servers; `lost`: they are
     * not there any more; `again`: not as that inode, but perhaps as another.
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
    /** The contents that `preserved` is about. Absent from primaries of earlier releases: those that the file has when it is executed. */
    contents: Type.Optional(ContentVersion),
  }),
  /** What the files' primaries know, told to the catalog; the newest version of each wins, `live` ends with it. */
  Type.Object({
    kind: Type.Literal('settle'),
    files: Type.Array(
      Type.Object({
        inode: Inode,
        sizeBytes: Type.Integer({ minimum: 0 }),
        /** How many of these bytes are holes; absent: none, as far as is known. */
        holeBytes: Type.Optional(Type.Integer({ minimum: 0 })),
        modifiedNs: Nanoseconds,
        contents: ContentVersion,
        /** Under which mark this was true; void if the file was marked anew since. */
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
    /** With an access control list: the set-group-id bit goes, for who sets it is not of the group. */
    clearsSetgid: Type.Optional(Type.Boolean()),
  }),
  Type.Object({
    kind: Type.Literal('remove-xattr'),
    inode: Inode,
    name: Type.String({ minLength: 1, maxLength: 255 }),
  }),
  /** Forgets files without a name whose last change is before `beforeNs`. */
  Type.Object({
    kind: Type.Literal('collect'),
    beforeNs: Nanoseconds,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /**
   * A server says that it is there, with which store, and how much room it has. One that was removed stays
   * removed. Absent: the zone stays.
   */
  Type.Object({
    kind: Type.Literal('server-register'),
    id: ServerName,
    url: ServerUrl,
    zone: Type.Optional(Zone),
    storageId: Type.String({ minLength: 1, maxLength: 64 }),
    freeBytes: Bytes,
    totalBytes: Bytes,
  }),
  /** A server is to be let in, before it has ever registered or after it was removed. */
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
  /** The server is out for good. Refused with `precondition-failed` while it holds replicas, unless it is `dead`. */
  Type.Object({ kind: Type.Literal('server-remove'), id: ServerName, dead: Type.Boolean() }),
  /** A file's primary tells which servers hold the file now; the largest number wins. */
  Type.Object({
    kind: Type.Literal('follow-view'),
    inode: Inode,
    view: Type.Object({
      number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
      members: Members,
    }),
  }),
  /**
   * A file's primary tells which servers are to become members of the file, before it changes them: these are not removed until the
   * change is over. They take the place of those of an earlier plan, by its mark; none: no change is under way. Refused with
   * `precondition-failed` where a server is out.
   */
  Type.Object({
    kind: Type.Literal('plan-members'),
    inode: Inode,
    /** The file's view that is to be changed: void where the catalog has a newer one. */
    view: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
    mark: PlanMark,
    members: Type.Array(ServerName, { maxItems: 120 }),
  }),
  /** The next view of the servers that vote on named leases. Refused with `precondition-failed` unless it follows the present one. */
  Type.Object({ kind: Type.Literal('set-voters'), view: Voters }),
  /** Only where no file of the volume is live; the catalog's primary sees to that before. */
  Type.Object({ kind: Type.Literal('snapshot-create'), volume: VolumeName, name: SnapshotName }),
  Type.Object({ kind: Type.Literal('snapshot-remove'), volume: VolumeName, name: SnapshotName }),
  /** Forgets what only snapshots showed that are gone: so many rows of each kind at the most. */
  Type.Object({ kind: Type.Literal('sweep'), countMax: Type.Integer({ minimum: 1, maximum: 10_000 }) }),
  /** How many replicas this file wants, whatever its volume says; null: what its volume says. */
  Type.Object({
    kind: Type.Literal('set-replicas'),
    inode: Inode,
    count: Type.Union([Replicas, Type.Null()]),
  }),
  /**
   * Gives a file in the trash its name again, with directories that are missing on the way; refused with `exists` where
   * the name is taken. `to`: another path of the volume.
   */
  Type.Object({
    kind: Type.Literal('trash-restore'),
    volume: VolumeName,
    inode: Inode,
    to: Type.Optional(Path),
  }),
  /** Keeps files in the trash no longer: one, or at most `countMax` at and below a path, by default all of the volume. */
  Type.Object({
    kind: Type.Literal('trash-empty'),
    volume: VolumeName,
    inode: Type.Optional(Inode),
    path: Type.Optional(Path),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
]);
export type Command = Static<typeof Command>;
/** The command of one kind. */
export type CommandOf<Kind extends Command['kind']> = Extract<Command, { kind: Kind }>;

export const NodeKind = Type.Union(
  (['file', 'directory', 'symlink', 'fifo', 'socket', 'character', 'block'] as const).map((kind) =>
    Type.Literal(kind),
  ),
);
export type NodeKind = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'character' | 'block';

/** What the catalog knows of an inode. */
export interface Attributes {
  readonly inode: number;
  readonly volume: string;
  readonly kind: NodeKind;
  /** Permission bits, without the file type. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly sizeBytes: number;
  /** How many bytes of a file are holes; absent where there are none, or it is not known. */
  readonly holeBytes?: number;
  readonly accessedNs: string;
  readonly modifiedNs: string;
  readonly changedNs: string;
  /** Absent where it was created before all servers of the catalog kept it. */
  readonly createdNs?: string;
  /** Target of a symbolic link, else empty. */
  readonly target: string;
  /** Device number of a device, else 0. */
  readonly device: number;
  /** Servers that hold the file's replicas (its view number 1); empty for all but files. */
  readonly replicas: readonly string[];
  readonly view: number;
  /** Of the file's first view; absent for all but files. */
  readonly policy?: Policy;
  readonly objectBytes: number;
  /** Of a file: the size that it may grow to before its primary asks; absent where its volume has no quota. */
  readonly allowedBytes?: number;
  /** Newest contents that the catalog was told of, or that a modification time was set against. */
  readonly contents: ContentVersion;
  /** The primary may know a newer size and modification time than stand here. */
  readonly live: boolean;
  /** How many extended attributes it has; absent where a server does not tell. */
  readonly xattrs?: number;
  /** That protect it from changes; absent where it has none. */
  readonly flags?: readonly InodeFlag[];
  /** By which whoever asked may touch the contents; absent where nobody is asked who he is. */
  readonly capability?: string;
  /** Of what a snapshot shows: its number in the volume. Contents are the snapshot's if they are of the version `contents`. */
  readonly snapshot?: number;
  /** The file that has the contents which a snapshot shows, where it is another than the inode. */
  readonly source?: number;
}

/** A snapshot of a volume. */
export interface SnapshotInfo {
  readonly volume: string;
  readonly name: string;
  /** Its number in the volume: one more than the snapshot's before, and never given again. */
  readonly serial: number;
  readonly madeNs: string;
}

/** `in`: takes new replicas. `draining`: its replicas are moved away. `out`: removed, and not to come back by itself. */
export type ServerState = 'in' | 'draining' | 'out';

/** A server as the catalog knows it. */
export interface ServerInfo {
  readonly id: string;
  readonly url: string;
  readonly zone: string;
  readonly state: ServerState;
  /** Identity of its store; empty before it first registered. */
  readonly storageId: string;
  /**
   * Of files with smaller numbers, the server may have had a replica on a disk that it no longer has: what the
   * next inode's number was when this store took the place of another. 1 for a server's first store.
   */
  readonly bornAt: number;
  readonly freeBytes: number;
  readonly totalBytes: number;
  readonly registeredNs: string;
}

/** Where a file's replicas are, and how many there should be. */
export interface PlacedFile {
  readonly inode: number;
  readonly members: readonly string[];
  readonly view: number;
  readonly wanted: number;
  readonly sizeBytes: number;
  /** Where the query asks for them. Absent from servers of earlier releases. */
  readonly settings?: FileSettings;
  /** Absent where no members are planned, and from servers of earlier releases. */
  readonly planned?: PlannedMembers;
}

/** Servers that are to become members of a file by a change that may be under way. */
export interface PlannedMembers {
  readonly servers: readonly string[];
  /** The view that the change begins with. */
  readonly view: number;
  readonly mark: PlanMark;
}

/** How a file is stored, and in which volume, as the catalog has it now. */
export interface FileSettings {
  readonly volume: string;
  readonly policy: Policy;
  readonly objectBytes: number;
  /** The volume has a quota for bytes: the catalog is asked before the file grows. */
  readonly limited: boolean;
}

export interface VolumeInfo {
  readonly name: string;
  readonly root: number;
  readonly replicas: number;
  readonly policy: Policy;
  readonly objectBytes: number;
  /** Inodes of all kinds, the root included. */
  readonly inodes: number;
  /** Of all files, also of those that have lost their names and are still to be collected. */
  readonly usedBytes: number;
  /** 0 for none. */
  readonly quotaBytes: number;
  readonly quotaInodes: number;
  /** What counts against the quotas: what has a name or is in the trash, and what files that are written may grow to. */
  readonly namedBytes: number;
  readonly namedInodes: number;
  /** How long files are kept that lost their last name, in milliseconds; 0: they are not. */
  readonly trashMs: number;
  /** What of the above is in the trash. */
  readonly trashedBytes: number;
  readonly trashedInodes: number;
}

/** A file that lost its last name and is kept for a while. */
export interface TrashedFile {
  readonly inode: number;
  /** Of its last name, from the volume's root. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly removedNs: string;
  /** Absent where that is not known. */
  readonly removedBy?: string;
  /** It goes at some time after. */
  readonly keptUntilNs: string;
}

const Serial = Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }));

/** Commands of one session, by their numbers. */
export const AnsweredCommands = Type.Object({
  session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  numbers: Type.Array(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }), { maxItems: 128 }),
});
export type AnsweredCommands = Static<typeof AnsweredCommands>;

export const Query = Type.Union([
  /** The inode at a path. Symbolic links on the way are followed; one at the end only with `follow`. */
  Type.Object({ kind: Type.Literal('resolve'), volume: TreeName, path: Path, follow: Type.Boolean() }),
  /** `snapshot`, here and below: as that snapshot of the inode's volume shows it. */
  Type.Object({ kind: Type.Literal('lookup'), parent: Inode, name: Name, snapshot: Serial }),
  Type.Object({ kind: Type.Literal('attributes'), inode: Inode, snapshot: Serial }),
  /** Entries with names after `after` (bytewise order of UTF-8), each with its attributes. */
  Type.Object({
    kind: Type.Literal('list'),
    inode: Inode,
    after: Name,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
    snapshot: Serial,
  }),
  Type.Object({
    kind: Type.Literal('xattr'),
    inode: Inode,
    name: Type.String({ minLength: 1, maxLength: 255 }),
    snapshot: Serial,
  }),
  Type.Object({ kind: Type.Literal('xattrs'), inode: Inode, snapshot: Serial }),
  /** The volume of an inode that is there, or that a snapshot shows. */
  Type.Object({ kind: Type.Literal('volume-of'), inode: Inode }),
  /** In the order in which they were made. */
  Type.Object({ kind: Type.Literal('snapshots'), volume: VolumeName }),
  /** Whether something is left of snapshots that were removed. */
  Type.Object({ kind: Type.Literal('sweeps') }),
  /** Files of a volume that have a name and may be being written. */
  Type.Object({
    kind: Type.Literal('live-files'),
    volume: VolumeName,
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /**
   * Files, of all volumes, that count in their volume for more than their size, with their marks. `live`: instead all files that
   * have a name and are live, so that the catalog may know an old size.
   */
  Type.Object({
    kind: Type.Literal('reservations'),
    live: Type.Optional(Type.Literal(true)),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  Type.Object({ kind: Type.Literal('volume'), name: VolumeName }),
  Type.Object({ kind: Type.Literal('volumes') }),
  /** What became of the last command of a session that was done, and how many it had. */
  Type.Object({ kind: Type.Literal('outcome'), session: Inode }),
  /** Commands whose outcomes are not remembered: they were not executed, a loss of power took them, or they are too old. */
  Type.Object({
    kind: Type.Literal('missing-commands'),
    answered: Type.Array(AnsweredCommands, { maxItems: FLUSH_SESSIONS_MAX }),
  }),
  /** Those of `inodes` that still exist. */
  Type.Object({ kind: Type.Literal('existing'), inodes: Type.Array(Inode, { maxItems: 10_000 }) }),
  /** One path of each of the files that has a name. Reads all names: for people who look for something, not for programs. */
  Type.Object({ kind: Type.Literal('paths'), inodes: Type.Array(Inode, { maxItems: 1_000 }) }),
  /** All servers, also those that are out. `counts`: with the number of files that each holds. */
  Type.Object({ kind: Type.Literal('servers'), counts: Type.Boolean() }),
  /** By which view servers vote on named leases. */
  Type.Object({ kind: Type.Literal('voters') }),
  /** Files with a replica on a server, in ascending order, with numbers above `after`. */
  Type.Object({
    kind: Type.Literal('files-on'),
    server: ServerName,
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Files that have not as many replicas as they should; looks at `countMax` inodes with numbers above `after`. */
  Type.Object({
    kind: Type.Literal('files-miscounted'),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Files of which members are planned, in ascending order, with numbers above `after`. `begun`: plans were ever made. */
  Type.Object({
    kind: Type.Literal('plans'),
    after: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
  /** Where those of `inodes` are that are files and exist. `settings`: with those of each file. */
  Type.Object({
    kind: Type.Literal('placed'),
    inodes: Type.Array(Inode, { maxItems: 10_000 }),
    settings: Type.Optional(Type.Literal(true)),
  }),
  /** Files in the trash of a volume that were at a path, or below it; in the order of paths, then of numbers. */
  Type.Object({
    kind: Type.Literal('trash'),
    volume: VolumeName,
    path: Path,
    after: Type.Union([Type.Object({ path: Path, inode: Inode }), Type.Null()]),
    countMax: Type.Integer({ minimum: 1, maximum: 10_000 }),
  }),
]);
export type Query = Static<typeof Query>;

/** What came of a `bear`, as short as it can be told, for it is remembered for every session. */
export interface BearResult {
  /** Of those times that were not given. */
  readonly atNs: string;
  /** The volume has a quota for bytes. */
  readonly limited: boolean;
  /** By inode. */
  readonly files: Readonly<Record<string, BornFile>>;
}

/** Null: with just these attributes; else what is different, as the directory wants it, or why the file is not there. */
export type BornFile =
  | null
  | { readonly mode: number; readonly gid: number; readonly xattrs: number }
  | { readonly code: ErrorCode; readonly message: string };

/** How many names are left of the inode, or why it has kept this one. */
export type UnlinkedFile = number | { readonly code: ErrorCode; readonly message: string };

/** Contents of a file, and the inode that is to have them for snapshots. */
export interface Preservation {
  readonly inode: number;
  readonly contents: ContentVersion;
}

/** Answers of commands, by kind. */
export interface CommandResults {
  readonly 'volume-create': { readonly volume: VolumeInfo };
  readonly 'volume-set': { readonly volume: VolumeInfo };
  readonly 'volume-remove': Record<string, never>;
  /** `atNs`: as of `unlink`; the file's own times are others where they were said. */
  readonly 'create-file': {
    readonly attributes: Attributes;
    readonly created: boolean;
    readonly atNs?: string;
  };
  readonly 'reserve-inodes': { readonly first: number };
  /** Those that were reserved until now. */
  readonly 'void-inodes': { readonly voided: readonly number[] };
  readonly bear: BearResult;
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
  /** `delegated`, `generation`: to which session the new directory is delegated, @see RememberedAnswer; absent where it is not. */
  readonly 'make-directory': {
    readonly attributes: Attributes;
    readonly delegated?: number;
    readonly generation?: number;
    readonly atNs?: string;
  };
  readonly 'make-node': { readonly attributes: Attributes; readonly atNs?: string };
  /** `atNs`: as of `unlink`. */
  readonly 'remove-directory': { readonly atNs?: string };
  /** `atNs`: the times of the directory since; absent in the answer to a retry, and from servers of before. */
  readonly unlink: { readonly inode: number; readonly links: number; readonly atNs?: string };
  /** One for each name, in their order. `atNs`: as of `unlink`. */
  readonly 'unlink-files': { readonly files: readonly UnlinkedFile[]; readonly atNs?: string };
  readonly 'unlink-fenced': { readonly files: readonly UnlinkedFile[]; readonly atNs?: string };
  /** `replaced`: the inode that lost the target name, if any. `atNs`: as of `unlink`; absent also where nothing has changed. */
  readonly rename: { readonly replaced: number | null; readonly atNs?: string };
  readonly 'rename-whiteout': { readonly replaced: number | null; readonly atNs?: string };
  readonly symlink: { readonly attributes: Attributes; readonly atNs?: string };
  readonly link: { readonly attributes: Attributes; readonly atNs?: string };
  /**
   * `granted`: the session of the command's client to which the attributes are granted, as by a query; absent where they are
   * not, and from servers of the release before.
   */
  readonly 'set-attributes': { readonly attributes: Attributes; readonly granted?: number };
  readonly 'set-flags': { readonly attributes: Attributes };
  /** How many access times are later now. */
  readonly 'note-accesses': { readonly noted: number };
  /** `preserve`: the file is not marked yet. Its contents, if of this version, are to be preserved as the inode first. */
  readonly 'open-for-write': { readonly attributes: Attributes; readonly preserve?: Preservation };
  readonly settle: { readonly settled: number };
  readonly 'set-xattr': Record<string, never>;
  readonly 'remove-xattr': Record<string, never>;
  readonly collect: { readonly inodes: readonly number[] };
  /** The server as it stands now; `out` if it was removed. */
  readonly 'server-register': { readonly server: ServerInfo };
  readonly 'server-add': { readonly server: ServerInfo };
  readonly 'server-state': { readonly server: ServerInfo };
  readonly 'server-zone': { readonly server: ServerInfo };
  readonly 'server-remove': { readonly server: ServerInfo };
  /** `followed`: it was newer than what the catalog had. */
  readonly 'follow-view': { readonly followed: boolean };
  /** The servers that are planned now: others than those of the command where a later plan or view was there. */
  readonly 'plan-members': { readonly planned: readonly string[] };
  readonly 'set-voters': Record<string, never>;
  readonly 'set-replicas': Record<string, never>;
  readonly 'trash-restore': { readonly attributes: Attributes; readonly path: string };
  readonly 'trash-empty': { readonly removed: number };
  readonly 'snapshot-create': { readonly snapshot: SnapshotInfo };
  readonly 'snapshot-remove': Record<string, never>;
  readonly sweep: { readonly rows: number; readonly more: boolean };
}

/** Answers of queries, by kind. */
export interface QueryResults {
  readonly resolve: { readonly attributes: Attributes };
  readonly lookup: { readonly attributes: Attributes };
  readonly attributes: { readonly attributes: Attributes };
  readonly list: {
    readonly entries: readonly { readonly name: string; readonly attributes: Attributes }[];
    /** More entries follow the last one. */
    readonly more: boolean;
  };
  readonly xattr: { readonly value: string };
  readonly xattrs: { readonly names: readonly string[] };
  readonly 'volume-of': { readonly volume: string };
  readonly snapshots: { readonly snapshots: readonly SnapshotInfo[] };
  readonly sweeps: { readonly pending: boolean };
  readonly 'live-files': { readonly inodes: readonly number[] };
  /** `next`: where to go on, or null at the end. */
  readonly reservations: {
    readonly files: readonly { readonly inode: number; readonly mark: LiveMark }[];
    readonly next: number | null;
  };
  readonly volume: { readonly volume: VolumeInfo };
  readonly volumes: { readonly volumes: readonly VolumeInfo[] };
  /** `result` is null where the session is not known, or its last command was refused. */
  readonly outcome: { readonly result: CommandResults[Command['kind']] | null; readonly number: number };
  readonly 'missing-commands': FlushAnswer;
  readonly existing: { readonly inodes: readonly number[] };
  readonly paths: {
    readonly paths: readonly { readonly inode: number; readonly volume: string; readonly path: string }[];
  };
  readonly servers: { readonly servers: readonly (ServerInfo & { readonly replicas?: number })[] };
  /** Null before the first change: the servers with which the cluster began. */
  readonly voters: { readonly view: Voters | null };
  readonly 'files-on': { readonly files: readonly PlacedFile[]; readonly more: boolean };
  /** `next`: where to go on, or null at the end. */
  readonly 'files-miscounted': { readonly files: readonly PlacedFile[]; readonly next: number | null };
  /** `reserved`: those that may still come to be files. */
  readonly plans: {
    readonly files: readonly PlacedFile[];
    readonly next: number | null;
    readonly begun: boolean;
  };
  readonly placed: { readonly files: readonly PlacedFile[]; readonly reserved: readonly number[] };
  readonly trash: { readonly files: readonly TrashedFile[]; readonly more: boolean };
}

const CacheNumber = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** A delegation, by the number that the primary gave it. A directory that is delegated anew has another number. */
export const HeldDelegation = Type.Object({ inode: Inode, generation: CacheNumber });
export type HeldDelegation = Static<typeof HeldDelegation>;

/** Asks what was changed in a directory, or below it, behind an operation of the catalog; null: from now on. */
export const ChangesRequest = Type.Object({
  inode: Inode,
  recursive: Type.Boolean(),
  after: Type.Union([Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), Type.Null()]),
  /** How long to wait for a first one, in milliseconds. */
  waitMs: Type.Integer({ minimum: 0, maximum: 10_000 }),
});
export type ChangesRequest = Static<typeof ChangesRequest>;

/** What happened at a path below a watched directory. */
export interface TreeChange {
  /** `modified`: written in place. */
  readonly change: 'created' | 'replaced' | 'removed' | 'modified';
  readonly path: string;
  /** What the inode is, if it is still there. */
  readonly kind?: NodeKind;
}

export interface ChangesAnswer {
  readonly changes: readonly TreeChange[];
  /** The operation up to which this is all. */
  readonly through: number;
  /** Something before is not known any more: look anew. */
  readonly resync: boolean;
}

/** A client that remembers, and inodes that it has forgotten, and does not learn anew, until its command is answered. */
export const CacheOwner = Type.Object({
  client: CacheNumber,
  /** Inodes that the client has forgotten; the files of an `unlink-fenced`, too, which are not listed. */
  forgets: Type.Array(Inode, { maxItems: FORGETS_MAX }),
  /** The session of the client to which a directory that the command makes is delegated, where that can be. */
  session: Type.Optional(CacheNumber),
  /**
   * The session whose grants of these inodes are not recalled for this command. Its client ends the session before it uses a grant again
   * after it has stopped waiting for the command: a command that arrives late recalls every later grant. Absent: all grants are recalled.
   */
  under: Type.Optional(CacheNumber),
  /**
   * The fence: the command is executed only while session `under` holds these delegations, else refused with `fence-lost`. The primary
   * checks this in the tick of the event loop in which it executes the command.
   */
  fence: Type.Optional(Type.Array(HeldDelegation, { minItems: 1, maxItems: FORGETS_MAX })),
});
export type CacheOwner = Static<typeof CacheOwner>;

/** A command with the name of its request: a retry carries the same and is answered, not repeated. */
export const CommandRequest = Type.Object({
  session: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  number: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  /**
   * The catalog's `seq` when the session began, if the client knows it. With it a session that was
   * forgotten is told from one that is new; without it only request numbers tell.
   */
  since: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  cache: Type.Optional(CacheOwner),
  command: Command,
});
export type CommandRequest = Static<typeof CommandRequest>;

/** Body of `POST /v1/catalog/flush`, which may be absent: commands that were answered to the client, and are to be covered. */
export const FlushRequest = Type.Object({
  answered: Type.Array(AnsweredCommands, { maxItems: FLUSH_SESSIONS_MAX }),
});
export type FlushRequest = Static<typeof FlushRequest>;

/** `missing`: those that the catalog does not have any more, or has forgotten; sessions without such commands are left out. */
export interface FlushAnswer {
  readonly missing: readonly AnsweredCommands[];
}

/**
 * What a client sends. With `live` the server that is asked asks the primaries of live files in its place: a modification
 * time without `contents` is set against the newest, and the attributes of the answer have their size and times.
 */
export type CommandBody = CommandRequest & { readonly live?: boolean };

/**
 * `cache`: the session of a client that remembers what it is told; the answer is then a `RememberedAnswer`. With `delegate`, too, the
 * directory that is asked about is delegated to that session, and nothing else of the answer is granted. `exact`, without a session:
 * the answer tells of names that a client, to which the directory is delegated, has made and not told of yet.
 */
export const QueryRequest = Type.Object({
  query: Query,
  cache: Type.Optional(CacheNumber),
  delegate: Type.Optional(Type.Boolean()),
  exact: Type.Optional(Type.Boolean()),
});
export type QueryRequest = Static<typeof QueryRequest>;

/**
 * The long poll of a client that remembers: renews its session, acknowledges recalls, brings new ones.
 * `session` is absent at first.
 */
export const CacheRequest = Type.Object({
  client: CacheNumber,
  session: Type.Optional(CacheNumber),
  /** The session before, of which nothing is believed any more. */
  left: Type.Optional(CacheNumber),
  /** Everything that recalls up to this number took back is forgotten. */
  acked: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  /** The client names in each command the session under which it is sent. Clients of earlier releases do not, and get no session. */
  fenced: Type.Optional(Type.Boolean()),
});
export type CacheRequest = Static<typeof CacheRequest>;

/** A read of what a client has been granted. @property changedNs of the attributes that the access time belongs to */
export interface NotedRead {
  readonly inode: number;
  readonly accessedNs: string;
  readonly changedNs: string;
}

export interface CacheAnswer {
  /** Another than before: nothing of what was granted is to be believed. Null: there is none to be had now. */
  readonly session: number | null;
  /** How long what is granted may be believed, from before the poll was sent; 0: no longer than before. */
  readonly validMs: number;
  /** Inodes whose attributes, names and contents are to be forgotten. */
  readonly recalls: readonly number[];
  /** Access times that reads have made later; nothing waits for that. Absent from servers of earlier releases, and where there are none. */
  readonly reads?: readonly NotedRead[];
  /** By which both are acknowledged. */
  readonly through: number;
  /** The primary obeys `CacheOwner.under` and `CacheOwner.fence`. Absent from servers of earlier releases. */
  readonly fenced?: boolean;
}

/** An answer to a client that remembers. */
export interface RememberedAnswer<Result> {
  /** Null for a `lookup` of a name that is not there, in a directory that is. */
  readonly result: Result | null;
  /** What of the answer may be remembered: all but what concerns the inodes `refused`; nothing where null. */
  readonly granted: { readonly session: number; readonly refused: readonly number[] } | null;
  /** The session to which the directory is delegated; absent where it is not. */
  readonly delegated?: number;
  /** Of the delegation. @see HeldDelegation */
  readonly generation?: number;
}
