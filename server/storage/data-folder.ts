import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { assert } from '../../base/assert.ts';
import { type CatalogNumber, catalogOfInode, type FileId, type ServerId } from '../../base/ids.ts';
import { UUID_BYTES, uuidOf } from '../../base/uuid.ts';
import type { World } from '../../base/world.ts';
import type { VotersView } from '../../lease/voters.ts';
import { CONTAINER_DIRECTORIES, CONTAINERS_FOLDER, containerDirectory } from '../../wire/locations.ts';
import { DatabaseMark, DatabasesInUse } from './database-mark.ts';
import { errorCode, isNoSpace } from './failures.ts';
import { flushDirectory } from './file-ops.ts';
import { FolderError } from './folder-error.ts';
import { FolderLock } from './folder-lock.ts';
import {
  boundsOf,
  FOLDER_FORMAT_FIRST,
  hasHadCatalogs,
  META,
  type Meta,
  metaWithBounds,
  metaWithVoters,
  readMeta,
  type Silences,
  writeMeta,
} from './folder-meta.ts';
import {
  namedClockCarried,
  namedClockCovering,
  namedClockEnded,
  namedClockLastVoteMs,
} from './named-clock.ts';
import {
  boundsAfterPowerLoss,
  boundsCovering,
  NO_REPLICAS,
  type ReplicaBounds,
  trustWithin,
} from './replica-bounds.ts';
import { isAside, SERVERS_FILE } from './set-aside.ts';
import type { NewTrust } from './store.ts';

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

/** Ending of the name of a folder that is being removed. */
const REMOVED = '.removed';

const DISK_ID_CHARS = 16;

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
  readonly #inUse = new DatabasesInUse();
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
          ...boundsAtStart(known, lostPower),
          failed: false,
          recovering: lostPower,
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

  /**
   * Removes a folder below this one, and the record of databases in it. After an interruption it is there as a whole,
   * or `finishRemovals` finds what is left of it.
   */
  async removeFolder(...names: readonly string[]): Promise<void> {
    const folder = path.join(this.path, ...names);
    if (fs.existsSync(folder)) {
      fs.renameSync(folder, `${folder}${REMOVED}`);
      flushDirectory(path.dirname(folder));
    }
    await this.#finishRemoval(names);
  }

  /** Continues removals of folders in `parent` that an earlier start began. */
  async finishRemovals(parent: string): Promise<void> {
    const folder = path.join(this.path, parent);
    const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
    for (const name of names)
      if (name.endsWith(REMOVED)) await this.#finishRemoval([parent, name.slice(0, -REMOVED.length)]);
  }

  async #finishRemoval(names: readonly string[]): Promise<void> {
    // Not the other way round: without files, a record of their databases would mean that they were lost.
    this.#forgetDatabases(names);
    await fs.promises.rm(`${path.join(this.path, ...names)}${REMOVED}`, { recursive: true, force: true });
  }

  /**
   * Renames a folder below this one whose contents are damaged or missing, so that it can be created anew;
   * `wasSetAside` is true from then on.
   */
  setFolderAside(...names: readonly string[]): void {
    const folder = path.join(this.path, ...names);
    let number = 1;
    while (fs.existsSync(asidePath(folder, number))) number++;
    if (fs.existsSync(folder)) fs.renameSync(folder, asidePath(folder, number));
    else fs.mkdirSync(asidePath(folder, number), { recursive: true, mode: 0o700 });
    flushDirectory(path.dirname(folder));
    this.#forgetDatabases(names);
  }

  wasSetAside(...names: readonly string[]): boolean {
    return fs.existsSync(asidePath(path.join(this.path, ...names), 1));
  }

  #forgetDatabases(names: readonly string[]): void {
    const inside = `${path.join(...names)}${path.sep}`;
    for (const name of this.#marks.keys()) if (name.startsWith(inside)) this.#marks.delete(name);
    const kept = Object.entries(this.#meta.databases).filter(([name]) => !name.startsWith(inside));
    if (kept.length < Object.keys(this.#meta.databases).length) {
      const meta = { ...this.#meta, databases: Object.fromEntries(kept) };
      writeMeta(this.path, meta);
      this.#meta = meta;
    }
  }

  /** Files of the catalog from this id on are newer than the folder: a replica created here replaces none. */
  firstFileId(catalog: CatalogNumber): number | null {
    return boundsOf(this.#meta, catalog).bornAt;
  }

  /** Records durably, once, the smallest id that the catalog had not assigned when this folder was new. */
  setFirstFileId(catalog: CatalogNumber, file: FileId): void {
    const bounds = boundsOf(this.#meta, catalog);
    assert(bounds.bornAt === null, 'The first file id is set once');
    this.#writeBounds(catalog, { ...bounds, bornAt: file });
  }

  /** Whether files of a volume with a catalog of its own may have been here. */
  get hasHadCatalogs(): boolean {
    return hasHadCatalogs(this.#meta);
  }

  /** Forgets a catalog that is removed, and of whose files nothing is here. */
  forgetCatalog(catalog: CatalogNumber): void {
    const { [catalog]: known, ...catalogs } = this.#meta.catalogs;
    if (known === undefined) return;
    this.#meta = { ...this.#meta, catalogs };
    writeMeta(this.path, this.#meta);
  }

  /** The trust of a replica created here now, which may replace a lost one; null before `setFirstFileId`. */
  trustOfNew(file: FileId): NewTrust | null {
    return trustWithin(boundsOf(this.#meta, catalogOfInode(file)), file);
  }

  /**
   * Records durably, before a replica is created with contents, unsynced, that one of the file may be here. If it is
   * lost with the power, the replica created next is `suspect` (`trustOfNew`).
   */
  recordReplica(file: FileId): void {
    const catalog = catalogOfInode(file);
    const bounds = boundsOf(this.#meta, catalog);
    const covering = boundsCovering(bounds, file);
    if (covering !== bounds) this.#writeBounds(catalog, covering);
  }

  #writeBounds(catalog: CatalogNumber, bounds: ReplicaBounds): void {
    const meta = metaWithBounds(this.#meta, catalog, bounds);
    writeMeta(this.path, meta);
    // Not before: what a failed write did not record has to be recorded again.
    this.#meta = meta;
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
        : metaWithVoters(
            this.#meta,
            voters,
            namedClockCarried(Math.max(voters.clockMs, leaseClockMs), known),
          );
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
      this.#inUse,
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

function asidePath(folder: string, number: number): string {
  return `${folder}.damaged-${number}`;
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

/** The bounds of all catalogs' files: a loss of power may have taken what was created since the last one. */
function boundsAtStart(known: Meta | null, lostPower: boolean): ReplicaBounds & Pick<Meta, 'catalogs'> {
  const now = (bounds: ReplicaBounds) => (lostPower ? boundsAfterPowerLoss(bounds) : bounds);
  const { bornAt, heldBelow, missedBelow } = now(known ?? NO_REPLICAS);
  const catalogs = Object.entries(known?.catalogs ?? {}).map(([catalog, bounds]) => [catalog, now(bounds)]);
  return { bornAt, heldBelow, missedBelow, catalogs: Object.fromEntries(catalogs) };
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
