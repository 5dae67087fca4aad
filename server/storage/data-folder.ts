import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { assert } from '../../base/assert.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { UUID_BYTES, uuidOf } from '../../base/uuid.ts';
import type { World } from '../../base/world.ts';
import { isVotersView, type VotersView } from '../../lease/voters.ts';
import { CONTAINER_DIRECTORIES, CONTAINERS_FOLDER, containerDirectory } from '../../wire/locations.ts';
import { DatabaseMark, type DatabaseState } from './database-mark.ts';
import { errorCode, isNoSpace } from './failures.ts';
import { flushDirectory } from './file-ops.ts';
import { FolderError } from './folder-error.ts';
import { FolderLock } from './folder-lock.ts';
import {
  type NamedClock,
  namedClockCarried,
  namedClockCovering,
  namedClockEnded,
  namedClockLastVoteMs,
  readNamedClock,
} from './named-clock.ts';
import { isAside, SERVERS_FILE } from './set-aside.ts';
import type { NewTrust } from './store.ts';

/** The folder's format that this program reads and writes; see FORMAT.md. */
export const FOLDER_FORMAT = 2;
/** A folder has this format until its server votes by a later view: earlier releases would ignore that view. */
const FOLDER_FORMAT_FIRST = 1;

const META = 'META';
const MEMORY = '/dev/shm';
const BOOT_ID = '/proc/sys/kernel/random/boot_id';
/** What an interrupted first start may leave behind before there is a META file. */
const OWN_BEFORE_META = new Set([
  'META.new',
  'lock.db',
  'lock.db-journal',
  'lock.pid',
  CONTAINERS_FOLDER,
  SERVERS_FILE,
]);

const DISK_ID_CHARS = 16;

/** `recordReplica` records this many file numbers at a time, with one sync of META. */
const RECORDED_AHEAD = 4_096;

/** Silence in the lease layer after a start, by cell, in milliseconds. */
export interface Silences {
  readonly filesMs: number;
  readonly namesMs: number;
}

export interface FolderOptions {
  readonly world: World;
  readonly cluster: string;
  readonly server: ServerId;
  readonly silences?: Silences;
  readonly bootId?: string | null;
  /** A folder in memory, which is lost with the kernel's page cache. */
  readonly memoryFolder?: string;
  readonly rebuild?: boolean;
}

interface Meta {
  readonly format: number;
  readonly cluster: string;
  readonly server: string;
  readonly storageId: string;
  readonly startCounter: number;
  readonly bootId: string | null;
  /** The last process closed the folder, with everything synced. */
  readonly clean: boolean;
  /** Start counter of the first start after the last loss of power; 0 if there was none. */
  readonly powerLossStart: number;
  /** The longest recovery waits of all starts whose leases may still be valid. */
  readonly silences: Silences;
  /** The smallest file id of which no earlier folder of this server can have had a replica; null until it is known. */
  readonly bornAt: number | null;
  /** The disk failed in the last start: what was not synced may be lost, as after a loss of power. */
  readonly failed: boolean;
  /** A start after such a loss has not yet checked the contents: if it is killed, the next one has to. */
  readonly recovering: boolean;
  /** Replicas of files below this may have been created here, unsynced. */
  readonly heldBelow: number;
  /** The same, as of the last loss of power: a replica that is not here may have been lost with it. */
  readonly missedBelow: number;
  readonly databases: Readonly<Record<string, DatabaseState>>;
  /** Null if this server has not voted on a name yet. */
  readonly namedClock: NamedClock | null;
  /** The view by which this server votes on names: `first` before any change, null if it does not know. */
  readonly voters: VotersView | 'first' | null;
}

/** A server's data folder: its identity, and the lock that keeps a second process out. */
export class DataFolder {
  readonly path: string;
  readonly world: World;
  /** Drawn when the folder was created: a replica is a server and a storage id, so that an emptied disk is noticed. */
  readonly storageId: string;
  /** Incremented durably before it is sent. A smaller one than the peers remember means a restored copy. */
  readonly startCounter: number;
  /** Machine or disk failed before the last process closed this folder, or the check after that was not completed. */
  readonly lostPower: boolean;
  /** This start reads whole databases to find damage, after a loss of power or with `--rebuild`. */
  readonly readsWhole: boolean;
  /** A replica whose base was installed in an earlier start than this is suspect; see `FileStore.trust`. */
  readonly powerLossStart: number;
  /** The longest recovery waits of this start and of earlier ones, which may have had a longer lease or clock skew. */
  readonly silences: Silences;
  /**
   * The latest reading of the lease clock, in milliseconds, at which an earlier start may have voted on a name;
   * −Infinity if none has. Larger than now if the clock was set back.
   */
  readonly earlierNamedClockMs: number;
  /** An id of the file system, the same for all its folders and in all containers of this machine; null if unknown. */
  readonly disk: string | null;
  readonly #memoryFolder: string;
  readonly #lock: FolderLock;
  readonly #marks = new Map<string, DatabaseMark>();
  #meta: Meta;
  #clean = false;

  private constructor(
    folder: string,
    world: World,
    lock: FolderLock,
    meta: Meta,
    { lostPower, readsWhole }: Pick<DataFolder, 'lostPower' | 'readsWhole'>,
    earlierNamedClockMs: number,
    memoryFolder: string,
  ) {
    this.#memoryFolder = memoryFolder;
    this.path = folder;
    this.world = world;
    this.storageId = meta.storageId;
    this.startCounter = meta.startCounter;
    this.powerLossStart = meta.powerLossStart;
    this.lostPower = lostPower;
    this.readsWhole = readsWhole;
    this.silences = meta.silences;
    this.earlierNamedClockMs = earlierNamedClockMs;
    this.disk = meta.bootId === null ? null : diskId(folder, meta.bootId);
    this.#lock = lock;
    this.#meta = meta;
  }

  /**
   * Opens or creates the folder, and locks it until `close` or the end of the process.
   * @throws FolderError if the folder must not be used; nothing in it was changed then
   */
  static open(folder: string, options: FolderOptions): DataFolder {
    return withFolderErrors(folder, () => {
      const { memoryFolder = MEMORY } = options;
      createDirectory(folder);
      refuseForeign(folder);
      fs.accessSync(folder, fs.constants.W_OK | fs.constants.X_OK);
      const lock = FolderLock.acquire(folder);
      try {
        const known = readMeta(folder);
        if (known !== null) refuseOther(folder, known, options);
        const bootId = options.bootId === undefined ? readBootId() : options.bootId;
        const startCounter = (known?.startCounter ?? 0) + 1;
        // Without a boot id a loss of power cannot be ruled out.
        const sameBoot = known !== null && bootId !== null && known.bootId === bootId;
        const failed =
          known !== null && (known.failed || fs.existsSync(failureMarkPath(memoryFolder, known.storageId)));
        const lostPower = known !== null && ((!known.clean && (!sameBoot || failed)) || known.recovering);
        const heldBelow = known?.heldBelow ?? 0;
        const meta: Meta = {
          format: known?.format ?? FOLDER_FORMAT_FIRST,
          cluster: options.cluster,
          server: options.server,
          storageId: known?.storageId ?? uuidOf(options.world.randomBytes(UUID_BYTES)),
          startCounter,
          bootId,
          clean: false,
          powerLossStart: lostPower ? startCounter : (known?.powerLossStart ?? 0),
          silences: longestSilences(options.silences, known?.silences),
          bornAt: known?.bornAt ?? null,
          failed: false,
          recovering: lostPower,
          heldBelow,
          missedBelow: lostPower ? heldBelow : (known?.missedBelow ?? 0),
          databases: known?.databases ?? {},
          namedClock: known?.namedClock ?? null,
          // An earlier release's folder has voted by the first view only; a new folder may replace one with other
          // votes.
          voters: known === null ? null : known.voters,
        };
        const earlierNamedClockMs = namedClockLastVoteMs(meta.namedClock, sameBoot);
        if (known === null) createContainerDirectories(folder);
        writeMeta(folder, meta);
        if (failed) fs.rmSync(failureMarkPath(memoryFolder, meta.storageId), { force: true });
        const found = { lostPower, readsWhole: lostPower || options.rebuild === true };
        return new DataFolder(folder, options.world, lock, meta, found, earlierNamedClockMs, memoryFolder);
      } catch (error) {
        lock.release();
        throw error;
      }
    });
  }

  file(name: string): string {
    return path.join(this.path, name);
  }

  /** Creates, durably, a folder below this one, unless it exists. @returns its path */
  createFolder(...names: readonly string[]): string {
    let parent = this.path;
    for (const name of names) {
      const child = path.join(parent, name);
      fs.mkdirSync(child, { recursive: true, mode: 0o700 });
      // An earlier start may have ended in between.
      flushDirectory(parent);
      parent = child;
    }
    return parent;
  }

  /** Files from this id on are newer than the folder: a replica created here replaces none. Null if not known yet. */
  get firstFileId(): number | null {
    return this.#meta.bornAt;
  }

  /** Records durably, once, the smallest id that the catalog had not assigned when this folder was new. */
  setFirstFileId(file: FileId): void {
    assert(this.#meta.bornAt === null, 'The first file id is set once');
    this.#meta = { ...this.#meta, bornAt: file };
    writeMeta(this.path, this.#meta);
  }

  /** The trust of a replica created here now, which may replace a lost one; null before `setFirstFileId`. */
  trustOfNew(file: FileId): NewTrust | null {
    const { bornAt, missedBelow } = this.#meta;
    if (bornAt === null) return null;
    if (file < bornAt) return 'lost';
    return file < missedBelow ? 'suspect' : 'intact';
  }

  /**
   * Records durably, before a replica is created with contents, unsynced, that one of the file may be here. If it is
   * lost with the power, the replica created next is `suspect` (`trustOfNew`).
   */
  recordReplica(file: FileId): void {
    if (file < this.#meta.heldBelow) return;
    this.#meta = { ...this.#meta, heldBelow: file + RECORDED_AHEAD };
    writeMeta(this.path, this.#meta);
  }

  /**
   * Records durably a reading of the lease clock up to which this server may vote on names. A later start votes only
   * after that reading, so that fencing tokens increase even if the clock was set back.
   */
  coverNamedClock(leaseClockMs: number): number {
    const namedClock = namedClockCovering(leaseClockMs, this.#meta.namedClock);
    if (namedClock !== this.#meta.namedClock) {
      writeMeta(this.path, { ...this.#meta, namedClock });
      this.#meta = { ...this.#meta, namedClock };
    }
    return namedClock.untilMs;
  }

  /** The view by which this server votes on names: `first` before any change, null if it has to ask the catalog. */
  get voters(): VotersView | 'first' | null {
    return this.#meta.voters;
  }

  /**
   * Records durably the view by which this server votes on names from now on. Voters may have voted until the view's
   * `clockMs` and until the current reading of the lease clock.
   */
  setVoters(voters: VotersView | 'first', leaseClockMs: number): void {
    const known = this.#meta.namedClock;
    const meta =
      voters === 'first'
        ? { ...this.#meta, voters }
        : {
            ...this.#meta,
            format: FOLDER_FORMAT,
            voters,
            namedClock: namedClockCarried(Math.max(voters.clockMs, leaseClockMs), known),
          };
    writeMeta(this.path, meta);
    this.#meta = meta;
  }

  /** Called once the check after a loss of power is done and durable: a later start need not repeat it. */
  markRecovered(): void {
    if (!this.#meta.recovering) return;
    this.#meta = { ...this.#meta, recovering: false };
    writeMeta(this.path, this.#meta);
  }

  /** Returns the record, in META, of whether the database `name` in this folder is open or closed. */
  mark(name: string): DatabaseMark {
    const known = this.#marks.get(name);
    if (known !== undefined) return known;
    const mark = new DatabaseMark(
      this.file(name),
      () => this.#meta.databases[name] ?? null,
      (state) => {
        if (this.#meta.databases[name] === state) return;
        this.#meta = { ...this.#meta, databases: { ...this.#meta.databases, [name]: state } };
        writeMeta(this.path, this.#meta);
      },
    );
    this.#marks.set(name, mark);
    return mark;
  }

  /** Called once all leases of earlier starts have ended: records the recovery waits of this start alone. */
  replaceSilences(silences: Silences): void {
    const { filesMs, namesMs } = this.#meta.silences;
    if (filesMs === silences.filesMs && namesMs === silences.namesMs) return;
    this.#meta = { ...this.#meta, silences };
    writeMeta(this.path, this.#meta);
  }

  /** Called once everything in the folder is synced; `close` records it. */
  markClean(): void {
    this.#clean = true;
  }

  /**
   * Called when the disk failed: the kernel may have dropped unsynced writes, but still serves their pages. The next
   * start treats that as a loss of power. A disk that accepts no writes cannot record this; a file in memory does,
   * which lasts as long as the kernel's pages.
   */
  markFailed(): void {
    if (this.#meta.failed) return;
    this.#meta = { ...this.#meta, failed: true };
    try {
      writeMeta(this.path, this.#meta);
    } catch (error) {
      if (errorCode(error) === '') throw error;
      if (fs.existsSync(this.#memoryFolder))
        fs.writeFileSync(failureMarkPath(this.#memoryFolder, this.storageId), '');
    }
  }

  /** Releases the folder. Databases that a failed start has left open are closed; all others were closed before. */
  close(): void {
    try {
      for (const mark of this.#marks.values()) mark.abandon();
      const namedClock = namedClockEnded(this.#meta.namedClock);
      if (this.#clean) writeMeta(this.path, { ...this.#meta, clean: true, namedClock });
    } finally {
      this.#lock.release();
    }
  }
}

export function fullFolder(folder: string, cause: unknown): FolderError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new FolderError(
    'no-space',
    `Cannot use ${folder} as data folder: its disk is full (${reason}). Free some space and start again`,
    { cause },
  );
}

function withFolderErrors<Result>(folder: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    const code = errorCode(error);
    const reason = error instanceof Error ? error.message : String(error);
    if (['EACCES', 'EPERM', 'EROFS', 'SQLITE_CANTOPEN', 'SQLITE_READONLY'].includes(code)) {
      throw new FolderError(
        'not-writable',
        `Cannot use ${folder} as data folder: no write permission (${reason}). Change the folder's owner, ` +
          'or name another one with --data',
        { cause: error },
      );
    }
    if (code === 'ENOTDIR' || code === 'EEXIST') {
      throw new FolderError(
        'foreign',
        `Cannot use ${folder} as data folder: it is not a folder (${reason}). Name another one with --data`,
        { cause: error },
      );
    }
    if (isNoSpace(error)) throw fullFolder(folder, error);
    throw error;
  }
}

function createDirectory(folder: string): void {
  const created = fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (created !== undefined) flushDirectory(path.dirname(created));
}

function refuseForeign(folder: string): void {
  const names = fs.readdirSync(folder);
  if (names.includes(META)) return;
  const foreign = names.find((name) => !OWN_BEFORE_META.has(name) && !isAside(name) && name !== 'lost+found');
  if (foreign === undefined) return;
  throw new FolderError(
    'foreign',
    `Cannot use ${folder} as data folder: it contains "${foreign}" and was not created by Leasehold. ` +
      'Name an empty folder, or one that does not exist yet',
  );
}

function refuseOther(folder: string, known: Meta, options: FolderOptions): void {
  if (known.cluster !== options.cluster) {
    throw new FolderError(
      'wrong-cluster',
      `Cannot use ${folder} as data folder: it belongs to cluster "${known.cluster}", not "${options.cluster}". ` +
        'Name another folder, or correct --cluster',
    );
  }
  if (known.server !== options.server) {
    throw new FolderError(
      'wrong-server',
      `Cannot use ${folder} as data folder: it belongs to server "${known.server}", not "${options.server}". ` +
        'Name another folder, or correct --id',
    );
  }
}

function readMeta(folder: string): Meta | null {
  let text: string;
  try {
    text = fs.readFileSync(path.join(folder, META), 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
  const damaged = (why: string): FolderError =>
    new FolderError(
      'damaged',
      `Cannot use ${folder} as data folder: its META file ${why}. Start with --rebuild, which moves its ` +
        'contents aside and re-creates all replicas from the other servers',
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw damaged(`is not JSON (${cause instanceof Error ? cause.message : String(cause)})`);
  }
  if (typeof value !== 'object' || value === null) throw damaged('contains no JSON object');
  const {
    format,
    cluster,
    server,
    storageId,
    startCounter,
    bootId,
    clean,
    powerLossStart,
    silences,
    bornAt,
    failed,
    recovering,
    heldBelow,
    missedBelow,
    databases,
    namedClock,
    voters,
  } = value as Record<string, unknown>;
  if (!isCount(format) || format === 0) throw damaged('lacks the format');
  if (format > FOLDER_FORMAT) {
    throw new FolderError(
      'unknown-format',
      `Cannot use ${folder} as data folder: its format is ${format}, and this release supports up to ` +
        `${FOLDER_FORMAT}. Run the release that wrote it, or a newer one`,
    );
  }
  if (typeof cluster !== 'string' || typeof server !== 'string' || typeof storageId !== 'string') {
    throw damaged('lacks cluster, server or storageId');
  }
  if (!isCount(startCounter) || !isCount(powerLossStart)) throw damaged('lacks a counter');
  if (bootId !== null && typeof bootId !== 'string') throw damaged('lacks the boot id');
  return {
    format,
    cluster,
    server,
    storageId,
    startCounter,
    bootId,
    clean: clean === true,
    powerLossStart,
    silences: readSilences(silences) ?? { filesMs: 0, namesMs: 0 },
    bornAt: isCount(bornAt) ? bornAt : null,
    failed: failed === true,
    recovering: recovering === true,
    // Earlier releases synced whatever they created.
    heldBelow: isCount(heldBelow) ? heldBelow : 0,
    missedBelow: isCount(missedBelow) ? missedBelow : 0,
    // An earlier release's folder records none, but has its index from its first start on.
    databases: readDatabases(databases) ?? (startCounter > 0 ? { 'index.db': 'closed' } : {}),
    namedClock: readNamedClock(namedClock),
    voters: readVoters(voters, damaged),
  };
}

/** @throws FolderError if it is invalid: a server that guessed would vote by another view */
function readVoters(value: unknown, damaged: (why: string) => FolderError): Meta['voters'] {
  if (value === undefined) return 'first';
  if (value === null || value === 'first') return value;
  if (isVotersView(value)) return value;
  throw damaged('contains invalid voters');
}

/** Returns null for the META of an earlier release, which records none. */
function readSilences(value: unknown): Silences | null {
  if (typeof value !== 'object' || value === null) return null;
  const { filesMs, namesMs } = value as Record<string, unknown>;
  return typeof filesMs === 'number' && typeof namesMs === 'number' ? { filesMs, namesMs } : null;
}

function readDatabases(value: unknown): Record<string, DatabaseState> | null {
  if (typeof value !== 'object' || value === null) return null;
  const states = Object.entries(value).filter(([, state]) => state === 'open' || state === 'closed');
  return Object.fromEntries(states) as Record<string, DatabaseState>;
}

function longestSilences(one: Silences | undefined, other: Silences | undefined): Silences {
  return {
    filesMs: Math.max(one?.filesMs ?? 0, other?.filesMs ?? 0),
    namesMs: Math.max(one?.namesMs ?? 0, other?.namesMs ?? 0),
  };
}

function failureMarkPath(memoryFolder: string, storageId: string): string {
  return path.join(memoryFolder, `leasehold-${storageId}.failed`);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Replaces META atomically. */
function writeMeta(folder: string, meta: Meta): void {
  const fresh = path.join(folder, 'META.new');
  const fd = fs.openSync(fresh, 'w', 0o600);
  try {
    fs.writeFileSync(fd, `${JSON.stringify(meta, null, 2)}\n`);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  fs.renameSync(fresh, path.join(folder, META));
  flushDirectory(folder);
}

/** Creates all directories for containers at once, so that only files are created later. */
function createContainerDirectories(folder: string): void {
  const objects = path.join(folder, CONTAINERS_FOLDER);
  for (let index = 0; index < CONTAINER_DIRECTORIES; index++) {
    fs.mkdirSync(path.join(objects, containerDirectory(index)), { recursive: true, mode: 0o700 });
  }
  flushDirectory(objects);
  flushDirectory(folder);
}

function readBootId(): string | null {
  try {
    return fs.readFileSync(BOOT_ID, 'utf8').trim();
  } catch (error) {
    // A system without /proc: every unclean stop then counts as a loss of power.
    if (errorCode(error) === 'ENOENT' || errorCode(error) === 'EACCES') return null;
    throw error;
  }
}

/** Derived from boot id and device number: the latter is constant within a boot, and containers share both. */
function diskId(folder: string, bootId: string): string {
  const { dev } = fs.statSync(folder);
  return createHash('sha256').update(`${bootId} ${dev}`).digest('hex').slice(0, DISK_ID_CHARS);
}
