import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { FIRST_COUNTER } from '../../replica/birth.ts';
import { MEMBERS_MAX } from '../../replica/codec.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochCompare } from '../../replica/epoch.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { Attributes, Command, ContentVersion } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX, WRITE_BYTES_MAX, type WritePart } from '../../wire/file-operation.ts';
import type { FileExtent, FileState, Whence, WriteGuard, WriteResult } from '../../wire/http-api.ts';
import type {
  LockBody,
  LockGrant,
  LockList,
  LockRenewal,
  LockRenewalBody,
  LocksHeld,
} from '../../wire/lock-api.ts';
import { unlessFirst, within } from '../bounded.ts';
import type { Traffic } from '../live/traffic.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../primary-waiter.ts';
import { recentlyUsed } from '../recently-used.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type {
  ChangeRequest,
  CopyPiece,
  FileLocated,
  FileRead,
  FileService,
  FileStanding,
  Hole,
} from '../services.ts';
import type { FileStore } from '../storage/store.ts';
import type { AgreedFiles } from './agreed-files.ts';
import { isBirthAlone } from './borne-file.ts';
import { Bursts } from './bursts.ts';
import { FileLocks } from './file-locks.ts';
import { type Change, type FileInCatalog, FilePrimary } from './file-primary.ts';
import { FileReads } from './file-reads.ts';
import { lastOrderer } from './last-orderer.ts';
import { LiveMarks } from './live-marks.ts';
import type { LockEnding } from './lock-endings.ts';
import type { LockBounds } from './lock-shares.ts';
import { MemberNews } from './member-news.ts';
import { Room } from './room.ts';
import { assertDoneBefore, finalAttributes } from './sealed-file.ts';
import { Settler } from './settler.ts';
import { decodeWriteOutcome } from './write-outcome.ts';

/** The catalog as the file service needs it: where this server is not its primary, it is asked over the network. */
export interface CatalogAccess {
  /** As the catalog has them, not merged with what primaries know. */
  attributes(file: FileId): Promise<Attributes>;
  /**
   * The attributes of a file made a moment ago, as a replica of the catalog on this server has them; null where there
   * is none, or it says nothing of that kind. Asks nobody.
   */
  justMade(file: FileId): Attributes | null;
  command(command: Command): Promise<unknown>;
  /** As `command`: what it changes survives a loss of power of all servers when it resolves. */
  durably(command: Command): Promise<unknown>;
  /** All commands answered so far survive power loss when it resolves. */
  flush(): Promise<void>;
}

export interface FileServiceParts extends PrimaryWaiterParts {
  readonly log: Logger;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly catalog: CatalogAccess;
  /** How long locks outlive the last word of whoever has them, in milliseconds. */
  readonly lockLeaseMs: number;
  /** Absent for the usual ones. */
  readonly lockBounds?: LockBounds;
  /** @see FileLocksParts */
  endedUnlocked(ending: LockEnding, servers: readonly ServerId[]): void;
  /** Who shall be primary instead of this server; null where it may be. */
  yieldTo?(view: View): ServerId | null;
  /** Whether another server's replica of a file stands at a position, or further. */
  holds(server: ServerId, file: FileId, position: Position): Promise<boolean>;
  /** Whether another server has said of late that it has no room. */
  isDiskFull?(server: ServerId): boolean;
  /** Reads and syncs without a primary; absent where each has one. */
  readonly agreed?: Pick<AgreedFiles, 'read' | 'look' | 'flush'>;
  /** Counts what is done for clients; absent where nobody wants to know. */
  readonly traffic?: Traffic;
  /** Whether the cluster has a server of this name. */
  isServer(server: ServerId): boolean;
}

const ALL_RETRY_MS = 1_000;
/** What is under way when a primary gives a file up has this long to end. */
const STOP_MS_MAX = 2_000;
/** Others have so long to take a file for which there is no room here. */
const GIVEN_AWAY_MS = 1_000;
/** Who was sent to the server that has ordered a file last, and comes back within this time, is served here. */
const SENT_BACK_MS = 1_000;
const SENT_MAX = 10_000;
/** Changes of a file that nobody leads, in one burst, before it is worth a primary. */
const CHANGES_MAX = 16;
/** Who waits for a primary for this long asks the catalog whether the file has moved, in milliseconds. */
const OUTDATED_AFTER_MS = 500;

/** A seal waits for slow replicas for so long at the most, looking so often: they tell their primary, and nobody else. */
const EVERYWHERE_MS_MAX = 5_000;
const EVERYWHERE_LOOK_MS = 10;

/** A change is refused so because of what the file is. */
const BY_STATE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'precondition-failed',
  'quota-exceeded',
  'lease-lost',
]);

/** Stands for what a request that is known already copied: its result is in the session table. */
const NOTHING_COPIED: CopyPiece = { kind: 'hole', length: 0 };

/** Contents of files: finds out whether this server is a file's primary, becomes it if nobody is, and serves. */
export class LocalFileService implements FileService {
  readonly #parts: FileServiceParts;
  readonly #waiter: PrimaryWaiter;
  readonly #primaries = new WeakMap<ReplicaDriver, FilePrimary>();
  /** When files were last settled, by the clock of the process. */
  readonly #settledAtMs = new WeakMap<FilePrimary, number>();
  /** Replicas that were new here when the catalog called their file live, and what it may then grow to. */
  readonly #seenLive = new WeakMap<ReplicaDriver, number>();
  /** Replicas that are about to let go of their leases. */
  readonly #leaving = new Map<ReplicaDriver, Promise<void>>();
  /** Files that were left to others, and until when they are not taken back. */
  readonly #givenAway = new WeakMap<ReplicaDriver, { readonly untilMs: number; readonly error: unknown }>();
  readonly #reads: FileReads;
  readonly #liveMarks: LiveMarks;
  readonly #memberNews: MemberNews;
  /** When somebody was last sent to the server that has ordered a file last. */
  readonly #sentMs = recentlyUsed<FileId, number>(SENT_MAX);
  /** Of files that nobody leads. */
  readonly #changes = new Bursts();
  /** Marks that were asked of the catalog. */
  #turns = 0;
  readonly #settler: Settler;
  readonly #room: Room;
  readonly #locks: FileLocks;

  constructor(parts: FileServiceParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
    this.#reads = new FileReads({
      ...parts,
      activate: (file) => this.#activate(file),
      member: (file) => this.#member(file),
      bounded: (file, begin) => this.#bounded(file, begin),
    });
    this.#liveMarks = new LiveMarks({ ...parts, leads: (file) => this.#activate(file) });
    this.#memberNews = new MemberNews(parts);
    this.#locks = new FileLocks(parts);
    this.#room = new Room(parts.store, () => parts.clock.nowMs());
    this.#settler = new Settler((files) => parts.catalog.command({ kind: 'settle', files }));
  }

  read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead> {
    return this.#reads.read(file, offset, length, asOf);
  }

  locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated> {
    return this.#reads.locate(file, offset, length, asOf);
  }

  readStale(file: FileId, offset: number, length: number): Promise<FileRead> {
    return this.#reads.readStale(file, offset, length);
  }

  extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent> {
    return this.#reads.extent(file, offset, whence, asOf);
  }

  state(file: FileId): Promise<FileState> {
    return this.#reads.state(file);
  }

  async write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    guard: WriteGuard = {},
    tells: 'begin' | 'end' = 'begin',
  ): Promise<WriteResult> {
    if (bytes.length > WRITE_BYTES_MAX) {
      throw new ServiceError(
        'too-large',
        `A write carries at most ${WRITE_BYTES_MAX} bytes, not ${bytes.length}`,
      );
    }
    if (offset !== 'append' && offset + bytes.length > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    }
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    this.#assertNotGivenAway(file);
    const driver = bytes.length === 0 ? await this.#activate(file) : await this.#orderer(file);
    if (bytes.length === 0) {
      const state = await this.state(file);
      return { ...state, offset: offset === 'append' ? state.sizeBytes : offset };
    }
    this.#assertAllThere(driver);
    await this.#assertRoom(driver, request, bytes.length);
    return this.#decided(driver, async (orderer, primary) => {
      const write = (held: WriteGuard): Promise<Change> =>
        primary.write(request, offset, bytes, { guard: held, tells });
      try {
        return await write(guard);
      } catch (error) {
        const isRefused = error instanceof ServiceError && error.code === 'precondition-failed';
        // It is itself that has changed the file: then there is nothing to guard, only an answer to repeat.
        if (isRefused && orderer.leads && (await this.#isKnown(orderer, request))) return write({});
        throw error;
      }
    });
  }

  /**
   * What is refused by the state of the file is decided by who leads it: who only orders may have been overtaken, and would never hear of it.
   *
   * @throws ServiceError
   */
  async #decided(
    driver: ReplicaDriver,
    change: (orderer: ReplicaDriver, primary: FilePrimary) => Promise<Change>,
  ): Promise<WriteResult> {
    const { file } = driver;
    const by = async (orderer: ReplicaDriver): Promise<WriteResult> => {
      const primary = this.#primaryOf(orderer);
      return this.#changed(file, primary, await this.#bounded(file, () => change(orderer, primary)));
    };
    try {
      return await by(driver);
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'quota-exceeded') this.#giveBackGrowth(file);
      const isRefused = error instanceof ServiceError && BY_STATE.has(error.code);
      if (!isRefused || driver.leads) throw error;
      return by(await this.#activate(file));
    }
  }

  /** What the file may grow to counts, and may be what others are refused: its writer closes the file later, or never. */
  #giveBackGrowth(file: FileId): void {
    this.settle(file).catch((error: unknown) => {
      // It is settled when its next primary, or this one, has no use for it any more.
      this.#parts.log.debug({ file, err: error }, 'what a file may grow to is not given back yet');
    });
  }

  async writeParts(file: FileId, request: ChangeRequest, parts: readonly WritePart[]): Promise<WriteResult> {
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    this.#assertNotGivenAway(file);
    const driver = await this.#orderer(file);
    this.#assertAllThere(driver);
    await this.#assertRoom(
      driver,
      request,
      parts.reduce((sum, { bytes }) => sum + bytes.length, 0),
    );
    return this.#decided(driver, (_, primary) => primary.writeParts(request, parts));
  }

  async truncate(file: FileId, request: ChangeRequest, sizeBytes: number): Promise<WriteResult> {
    if (sizeBytes > FILE_BYTES_MAX)
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    const driver = await this.#orderer(file);
    this.#assertAllThere(driver);
    return this.#decided(driver, (_, primary) => primary.truncate(request, sizeBytes));
  }

  async punch(file: FileId, request: ChangeRequest, hole: Hole): Promise<WriteResult> {
    if (hole.from > hole.to || hole.to > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `There is no hole from ${hole.from} to ${hole.to}`);
    }
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    const driver = await this.#orderer(file);
    this.#assertAllThere(driver);
    return this.#decided(driver, (_, primary) => primary.punch(request, hole));
  }

  async copy(
    file: FileId,
    request: ChangeRequest,
    toOffset: number,
    read: () => Promise<CopyPiece>,
  ): Promise<WriteResult> {
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    const driver = await this.#activate(file);
    // What was done is told once more, whatever the source holds by now: the operation itself is not needed for that.
    const isKnown = await this.#isKnown(driver, request);
    const piece = isKnown ? NOTHING_COPIED : await read();
    switch (piece.kind) {
      case 'data':
        return this.write(file, request, toOffset, piece.bytes, {}, 'end');
      case 'hole':
        return this.punch(file, request, { from: toOffset, to: toOffset + piece.length, grows: true });
      case 'end':
        return { ...(await this.state(file)), offset: toOffset };
      default:
        return unreachable(piece);
    }
  }

  /**
   * A primary without room leaves the file to others, who may have some: a majority of them can take every write. What
   * was done before needs none.
   */
  async #assertRoom(driver: ReplicaDriver, request: ChangeRequest, bytes: number): Promise<void> {
    try {
      await this.#room.assertFor(bytes);
    } catch (error) {
      if (await this.#isKnown(driver, request)) return;
      const { isConnected, self, clock } = this.#parts;
      const isThere = (member: ServerId): boolean => member !== self && isConnected(member);
      if (viewHasMajority(driver.view, isThere)) {
        this.#givenAway.set(driver, { untilMs: clock.nowMs() + GIVEN_AWAY_MS, error });
        await this.#giveAway(driver);
        throw error;
      }
      if (!(error instanceof ServiceError)) throw error;
      throw new ServiceError(error.code, error.message, { primary: self }, { cause: error });
    }
    await this.#assertRoomAtBackups(driver, request);
  }

  /**
   * What backups cannot store no majority will have: that is told before it has a place in the order. Who is away stores nothing either; and what
   * has a place then is in the way of all that is there, for whoever leads next has to have it stored first.
   */
  async #assertRoomAtBackups(driver: ReplicaDriver, request: ChangeRequest): Promise<void> {
    const { isDiskFull = () => false, isConnected, self } = this.#parts;
    const { view } = driver;
    const others = viewVoters(view).filter((member) => member !== self);
    const full = others.filter((member) => isDiskFull(member));
    if (full.length === 0) return;
    const away = others.filter((member) => !full.includes(member) && !isConnected(member));
    const hasRoom = (member: ServerId): boolean => !full.includes(member) && !away.includes(member);
    const isEnough = view.policy !== 'all' && viewHasMajority(view, hasRoom);
    if (isEnough || (await this.#isKnown(driver, request))) return;
    const unreachable = away.length === 0 ? '' : `, and ${away.join(', ')} is not reachable`;
    throw new ServiceError(
      'no-space',
      `The disks of ${full.join(', ')} are full${unreachable}: delete files, or give them more room`,
      { primary: self },
    );
  }

  /** Whoever writes at the same time waits for the same: only then may others have the lease. */
  async #giveAway(driver: ReplicaDriver): Promise<void> {
    let leaving = this.#leaving.get(driver);
    if (leaving === undefined) {
      leaving = within(this.#parts.world, driver.stop(), STOP_MS_MAX).then((stopped) => {
        this.#leaving.delete(driver);
        if (!stopped) return;
        this.#parts.lease.release(driver.file);
        this.#parts.lease.close(driver.file);
      });
      this.#leaving.set(driver, leaving);
    }
    await leaving;
  }

  /** A file that was left to others for want of room is not taken back before they had time to take it. */
  #assertNotGivenAway(file: FileId): void {
    const driver = this.#parts.host.loaded(file);
    if (driver === null || driver.leads) return;
    const given = this.#givenAway.get(driver);
    if (given !== undefined && this.#parts.clock.nowMs() < given.untilMs) throw given.error;
  }

  /** Whether the request has a place in the order, or nobody can tell any more. */
  async #isKnown(driver: ReplicaDriver, request: ChangeRequest): Promise<boolean> {
    const { file, epoch, orderedSeq, subject } = driver;
    if (subject.record().seq < orderedSeq) {
      await this.#bounded(file, () =>
        driver.leads ? driver.committed(epoch, orderedSeq) : driver.committedAll(),
      );
    }
    return SessionTable.decode(subject.record().sessions).find(request).kind !== 'fresh';
  }

  /**
   * Where every member has to have a write, one that cannot be there is refused before it has a place in the order:
   * it certainly did not happen, and reads need not wait for it.
   */
  #assertAllThere(driver: ReplicaDriver): void {
    const { view } = driver;
    if (view.policy !== 'all' || view.joint !== undefined) return;
    const { self, isConnected } = this.#parts;
    const unreachable = view.members.filter((member) => member !== self && !isConnected(member));
    if (unreachable.length === 0) return;
    throw new ServiceError(
      'no-majority',
      `Every replica of file ${driver.file} has to have a write, and there is no way to ${unreachable.join(', ')}`,
      { unreachable, retryAfterMs: ALL_RETRY_MS },
    );
  }

  async flush(file: FileId): Promise<FileState> {
    const agreed = await this.#flushAgreed(file);
    if (agreed !== null) return agreed;
    const driver = await this.#activate(file);
    const primary = this.#primaryOf(driver);
    // Contents without a name would be lost all the same: the first time, the catalog is flushed too.
    await this.#bounded(file, () => Promise.all([driver.flush(), primary.nameFlushed()]));
    return this.#reads.stateAt(file, driver);
  }

  /** @returns null where somebody leads the file, as far as is known here, or no majority agrees about it */
  async #flushAgreed(file: FileId): Promise<FileState | null> {
    const { agreed, catalog, store } = this.#parts;
    if (agreed === undefined || !this.#reads.isUnled(file)) return null;
    return this.#bounded(file, () =>
      agreed.flush(
        file,
        // Contents without a name would be lost all the same. Who orders changes here knows whether it is flushed.
        () => this.#orderedBy(file)?.nameFlushed() ?? catalog.flush(),
        () => this.#reads.stateOfFinal(file, store.attributes(file)),
      ),
    );
  }

  async seal(file: FileId, expected?: ContentVersion): Promise<FileState> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#reads.stateOfFinal(file, final);
    const driver = await this.#activate(file);
    const { policy = 'quorum' } = driver.view;
    if (policy !== 'read-only') {
      const why = `its policy is "${policy}", and only files of policy "read-only" are sealed`;
      throw new ServiceError('bad-request', `Cannot seal file ${file}: ${why}`);
    }
    const primary = this.#primaryOf(driver);
    const [lastSeq] = await this.#bounded(file, () =>
      Promise.all([primary.seal(expected), primary.nameFlushed()]),
    );
    await this.#everywhere(driver, lastSeq);
    // Reads without a primary outlast a loss of power, too, once this is over; nobody has to wait for it.
    driver.flush().catch((error: unknown) => {
      this.#parts.log.debug({ file, err: error }, 'a seal is not synced everywhere yet');
    });
    // Final here by now: also if this server leads no more.
    return this.state(file);
  }

  /** Waits until every replica in reach has applied the operation; one that does not get on is left to catch up. */
  async #everywhere(driver: ReplicaDriver, seq: number): Promise<void> {
    const { clock, operationTimeoutMs, isConnected } = this.#parts;
    const untilMs = clock.nowMs() + Math.min(EVERYWHERE_MS_MAX, operationTimeoutMs / 2);
    const isMissing = (): boolean =>
      driver
        .peers(isConnected)
        .some((peer) => peer.role !== 'learner' && peer.state !== 'unreachable' && peer.seq < seq);
    while (driver.leads && isMissing() && clock.nowMs() < untilMs)
      await this.#parts.world.sleep(EVERYWHERE_LOOK_MS);
  }

  /** The catalog orders commands although the disk of files has failed: then none is created here. */
  #mayCreate(file: FileId, view: View): boolean {
    const { self, store } = this.#parts;
    return viewVoters(view).includes(self) && store.failure === null && store.record(file) === null;
  }

  /** The lease grants nothing without an epoch: it may be gained before it is known that the file is there. */
  making(attributes: Attributes): void {
    const { lease, yieldTo } = this.#parts;
    const file = attributes.inode as FileId;
    const view = viewOf(attributes);
    if (!this.#mayCreate(file, view)) return;
    if (lease.isUsable() && (yieldTo?.(view) ?? null) === null) lease.open(file, view);
  }

  /** Somebody else may make another file of that number. */
  unmade(attributes: Attributes): void {
    const { lease, host } = this.#parts;
    const file = attributes.inode as FileId;
    if (host.loaded(file) !== null) return;
    lease.release(file);
    lease.close(file);
  }

  made(attributes: Attributes): void {
    const { host, lease, log } = this.#parts;
    const file = attributes.inode as FileId;
    const view = viewOf(attributes);
    if (!this.#mayCreate(file, view)) return;
    try {
      lease.assertUsable();
      const driver = host.create(file, view, attributes.objectBytes);
      this.#yield(driver);
      this.#seenLive.set(driver, attributes.allowedBytes ?? Infinity);
      driver.step({ kind: 'made' });
      // Where it was gained meanwhile, the replica that is here now has to be told.
      if (lease.view(file).own) lease.close(file);
      lease.open(file, view);
    } catch (error) {
      // Then it is led by whoever is asked to write.
      if (!(error instanceof ServiceError)) throw error;
      this.unmade(attributes);
      log.debug({ file, err: error }, 'a file that was made here is left to others');
    }
  }

  async lead(file: FileId): Promise<FileState> {
    return this.#reads.stateAt(file, await this.#activate(file));
  }

  /**
   * A change of a file that is final here is answered from here: it is refused, unless it was done before.
   *
   * @returns null where the file may still change
   * @throws ServiceError `sealed`, or `session-expired` where nobody can tell any more
   */
  #answeredFinally(file: FileId, request: ChangeRequest): WriteResult | null {
    const { store, self } = this.#parts;
    const final = finalAttributes(store, file);
    if (final === null) return null;
    const answer = assertDoneBefore(store, file, request);
    if (answer.kind === 'expired') {
      throw new ServiceError('session-expired', `Whether file ${file} was changed so is not known any more`);
    }
    const epoch = store.record(file)?.installed.counter ?? 0;
    const version = { epoch: final.versionEpoch, seq: answer.seq };
    return resultOf(file, answer, version, epoch, self);
  }

  async settle(file: FileId): Promise<FileState> {
    return this.#settleBy((await this.#ordering(file)) ?? (await this.#activate(file)));
  }

  async #settleBy(driver: ReplicaDriver): Promise<FileState> {
    const { file } = driver;
    const primary = this.#primaryOf(driver);
    let state: FileState | null = null;
    await this.#bounded(file, () =>
      primary.settle(async (mark) => {
        // Without a lease others may lead by now: then they have marked the file anew before they answered a change.
        state = driver.leads
          ? await this.#reads.stateAt(file, driver)
          : this.#reads.stateOfFinal(file, this.#parts.store.attributes(file));
        // Writes of a later epoch are acknowledged without waiting for this settling: it would hide them.
        if (state.epoch !== primary.epoch.counter) {
          throw new ServiceError('not-primary', `The primary of file ${file} changed meanwhile`);
        }
        await this.#settler.settle(state, mark);
      }),
    );
    this.#settledAtMs.set(primary, this.#parts.clock.nowMs());
    return state ?? this.state(file);
  }

  /** The catalog knows all that this primary knows, and nobody asked for the file since it was told. */
  isDone(driver: ReplicaDriver): boolean {
    const primary = this.#primaries.get(driver);
    if (primary === undefined || primary.unsettled) return false;
    return driver.usedAtMs <= (this.#settledAtMs.get(primary) ?? -Infinity);
  }

  async changeMembers(file: FileId, members: readonly ServerId[]): Promise<View> {
    if (members.length === 0 || members.length > MEMBERS_MAX || new Set(members).size !== members.length) {
      throw new ServiceError('bad-request', `A file has 1 to ${MEMBERS_MAX} replicas at different servers`);
    }
    const stranger = members.find((member) => !this.#parts.isServer(member));
    if (stranger !== undefined) throw new ServiceError('bad-request', `There is no server "${stranger}"`);
    const driver = await this.#activate(file);
    const view = await driver.changeMembers(members);
    // Not by whoever leads from now on alone: that may be nobody for a while.
    await this.#memberNews.follow(file, view);
    return view;
  }

  async lock(file: FileId, body: LockBody, holder: string | null = null): Promise<LockGrant> {
    return this.#locks.lock(await this.#activate(file), body, holder);
  }

  /** Another primary of the file has ended in good order, and left no locks. */
  leftUnlocked(ending: LockEnding): void {
    this.#locks.leftUnlocked(ending, this.#parts.host.loaded(ending.file));
  }

  async renewLocks(file: FileId, body: LockRenewalBody, holder: string | null = null): Promise<LockRenewal> {
    return this.#locks.renew(await this.#activate(file), body, holder);
  }

  async locks(file: FileId): Promise<LockList> {
    return this.#locks.list(await this.#activate(file));
  }

  /** Before the lease is given back: tells the catalog what only this primary knows. */
  async settleBeforeRelease(driver: ReplicaDriver): Promise<void> {
    if (this.#primaries.get(driver)?.unsettled === false) return;
    if (driver.leads || this.#orderedBy(driver.file) !== null) await this.#settleBy(driver);
  }

  standing(file: FileId): FileStanding | null {
    const { host, lease, store, self } = this.#parts;
    const driver = host.loaded(file);
    const view = driver?.subject.record().view ?? store.record(file)?.view ?? null;
    if (view === null) return null;
    const held = lease.view(file);
    const primary = held.own ? self : held.holder;
    const serving = driver?.leads === true;
    return {
      view,
      primary,
      epoch: driver?.epoch.counter ?? store.record(file)?.promised.counter ?? 0,
      role: serving ? 'primary' : viewVoters(view).includes(self) ? 'backup' : 'none',
      lease: { holder: primary, remainingMs: Math.max(0, held.remainingMs) },
      replicas: serving ? driver.peers(this.#parts.isConnected) : [],
    };
  }

  /**
   * The primary `from` is about to let go of the file: this server wants it then, and whoever asks for it here
   * meanwhile waits. Resolves when it leads.
   *
   * @throws ServiceError where this server cannot lead the file
   */
  async succeed(file: FileId, from: ServerId): Promise<void> {
    const { lease } = this.#parts;
    lease.assertUsable();
    const driver = await this.#member(file);
    this.#yield(driver);
    this.#assertNotGivenAway(file);
    this.#waiter.expectEnd(driver, from);
    await this.#waiter.primary(driver, `file ${file}`, true);
  }

  /** @returns the driver of a replica that is primary now; becomes it where nobody is */
  #activate(file: FileId): Promise<ReplicaDriver> {
    return this.#activated(file, (driver) => driver.leads);
  }

  /** As `#activate`, for what needs no more than a place in the order. */
  async #orderer(file: FileId): Promise<ReplicaDriver> {
    const driver = await this.#ordering(file);
    if (driver === null) return this.#activated(file, (one) => this.#mayOrder(one));
    if (!driver.leads) this.#leadIfChangedOften(driver);
    return driver;
  }

  /** Who changes a file on and on leads it in the end: others may then read without asking a majority. Nobody waits for that. */
  #leadIfChangedOften({ file, view }: ReplicaDriver): void {
    const { lease, clock } = this.#parts;
    if (this.#changes.note(file, clock.nowMs()) > CHANGES_MAX && lease.isUsable()) lease.open(file, view);
  }

  /**
   * Who has ordered a file last, and ended that in good order, goes on where nobody leads (docs/design/mount.md, "A small change of a file at rest"): here, or whoever asks is sent there, once. Not
   * who reads it: files that were written in one place are read from where they are asked for. A replica that is being made here is waited for: it
   * tells who that is.
   *
   * @returns the driver of a replica that gives changes their places now; null where somebody has to lead first
   * @throws ServiceError `not-primary`
   */
  async #ordering(file: FileId): Promise<ReplicaDriver | null> {
    const { host, lease, clock } = this.#parts;
    await host.bearingEnded(file);
    const driver = host.loaded(file) ?? (host.isResumable(file) ? host.load(file) : null);
    if (driver !== null && this.#mayOrder(driver)) {
      driver.usedAtMs = clock.nowMs();
      return driver;
    }
    const { own, holder } = lease.view(file);
    if (!own && holder === null) this.#leaveToLastOrderer(file);
    return null;
  }

  /** Whether the replica gives changes their places, and this server has the lease, or goes on without one where it could have it. */
  #mayOrder({ file, orders, view }: ReplicaDriver): boolean {
    const { lease, yieldTo } = this.#parts;
    const { own, holder } = lease.view(file);
    if (!orders || own) return orders;
    return holder === null && lease.isUsable() && (yieldTo?.(view) ?? null) === null;
  }

  /** @throws ServiceError `not-primary` */
  #leaveToLastOrderer(file: FileId): void {
    const { store, self, clock, isConnected, isDiskFull = () => false } = this.#parts;
    const record = store.record(file);
    const last = record === null ? null : lastOrderer(record, self);
    if (last === null || !isConnected(last) || isDiskFull(last)) return;
    const nowMs = clock.nowMs();
    if (nowMs - (this.#sentMs.get(file) ?? -Infinity) < SENT_BACK_MS) return;
    this.#sentMs.set(file, nowMs);
    throw new ServiceError('not-primary', `Server ${last} has ordered file ${file} last, and may go on`, {
      primary: last,
    });
  }

  async #activated(file: FileId, isEnough: (driver: ReplicaDriver) => boolean): Promise<ReplicaDriver> {
    const { host, lease } = this.#parts;
    const ready = host.loaded(file);
    if (ready !== null && isEnough(ready)) {
      ready.usedAtMs = this.#parts.clock.nowMs();
      return ready;
    }
    lease.assertUsable();
    const driver = await this.#member(file);
    this.#yield(driver);
    const { view } = driver;
    const waiting = this.#ready(driver, isEnough);
    await unlessFirst(this.#parts.world, waiting, OUTDATED_AFTER_MS, () => this.#newerPlace(file, view));
    return driver;
  }

  async #ready(driver: ReplicaDriver, isEnough: (driver: ReplicaDriver) => boolean): Promise<void> {
    const subject = `file ${driver.file}`;
    await this.#waiter.primary(driver, subject, true, () => driver.orders);
    if (isEnough(driver)) return;
    // What was made or borne here begins elsewhere with the first write, or where something else is wanted.
    driver.step({ kind: 'read-wanted' });
    await this.#waiter.primary(driver, subject, true, () => isEnough(driver));
  }

  /**
   * A server that was away may go by members that are long gone: nobody among them will ever be the primary.
   *
   * @returns the error that says where the file is now; null where the catalog knows nothing newer, or cannot be
   *   asked, which is no reason not to wait for the file's own members
   */
  async #newerPlace(file: FileId, { number }: View): Promise<ServiceError | null> {
    try {
      const { view, replicas } = await this.#parts.catalog.attributes(file);
      return view > number ? this.#isElsewhere(file, replicas as ServerId[]) : null;
    } catch (error) {
      if (error instanceof ServiceError) return error.code === 'not-found' ? error : null;
      throw error;
    }
  }

  /** @param members those who hold the file, as far as is known; one in reach is named, to be asked next */
  #isElsewhere(file: FileId, members: readonly ServerId[]): ServiceError {
    const { self, isConnected } = this.#parts;
    const next = members.find((member) => member !== self && isConnected(member));
    const details = next === undefined ? {} : { primary: next };
    return new ServiceError(
      'not-primary',
      `The replicas of file ${file} are at ${members.join(', ')}`,
      details,
    );
  }

  /** A server that is to be emptied becomes primary only where nobody else can. */
  #yield(driver: ReplicaDriver): void {
    const primary = this.#parts.yieldTo?.(driver.view) ?? null;
    if (primary === null) return;
    throw new ServiceError(
      'not-primary',
      `This server is being drained, and leaves file ${driver.file} to others`,
      {
        primary,
      },
    );
  }

  /** @returns the driver of the replica here, whatever its role */
  async #member(file: FileId): Promise<ReplicaDriver> {
    const driver = this.#parts.host.loaded(file) ?? (await this.#open(file));
    driver.usedAtMs = this.#parts.clock.nowMs();
    const { view, outside } = driver.status();
    if (outside !== null) throw this.#isElsewhere(file, outside.members);
    if (!viewVoters(view).includes(this.#parts.self)) throw this.#isElsewhere(file, view.members);
    return driver;
  }

  /** This server leads the file now, or its members changed: the catalog may have to be told who they are. */
  led(file: FileId): void {
    const driver = this.#parts.host.loaded(file);
    if (driver === null) return;
    this.#locks.led(driver);
    this.#memberNews.tell(driver);
    if (!driver.leads || this.#parts.store.attributes(file).seal !== 'sealed') return;
    this.seal(file).catch((error: unknown) => {
      this.#parts.log.info({ file, err: error }, 'a file is sealed, but not finally yet');
    });
  }

  async #open(file: FileId): Promise<ReplicaDriver> {
    const { host, store, catalog, self } = this.#parts;
    await host.bearingEnded(file);
    if (store.record(file) !== null) return host.load(file);
    const here = catalog.justMade(file);
    const attributes = here?.replicas.includes(self) === true ? here : await catalog.attributes(file);
    if (attributes.kind !== 'file')
      throw new ServiceError('bad-request', `Inode ${file} is a ${attributes.kind}`);
    const view = viewOf(attributes);
    if (!view.members.includes(self)) throw this.#isElsewhere(file, view.members);
    const driver = host.create(file, view, attributes.objectBytes);
    if (attributes.live) this.#seenLive.set(driver, attributes.allowedBytes ?? Infinity);
    return driver;
  }

  #primaryOf(driver: ReplicaDriver): FilePrimary {
    const known = this.#primaries.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    // No lock was ever given in the epoch of a birth, for nobody leads by it.
    const { store } = this.#parts;
    const isOfBirth = driver.epoch.counter === FIRST_COUNTER && !driver.leads && driver.orders;
    if (isOfBirth && isBirthAlone(driver.subject.record(), store.attributes(driver.file)))
      this.#locks.endedUnlocked(driver, driver.epoch.counter);
    const assertLocked = (under: LocksHeld): void => this.#locks.assertHeld(driver, under);
    const catalog: FileInCatalog = {
      markLive: (mark, growTo) => this.#liveMarks.set(primary, driver.file, mark, growTo),
      allowedBytes: this.#seenLive.get(driver) ?? Infinity,
      nextTurn: () => ++this.#turns,
      flush: () => this.#parts.catalog.flush(),
      // Only a primary ends the mark, and it orders something first.
      isLive: driver.isFirstLed && this.#seenLive.has(driver),
    };
    const primary: FilePrimary = new FilePrimary(driver, store, this.#parts.clock, catalog, assertLocked);
    this.#primaries.set(driver, primary);
    return primary;
  }

  /** @returns who has ordered changes of the file here, in the epoch that it stands in; null where nobody has */
  #orderedBy(file: FileId): FilePrimary | null {
    const driver = this.#parts.host.loaded(file);
    const primary = driver?.orders === true ? this.#primaries.get(driver) : undefined;
    return primary !== undefined && driver !== null && epochCompare(primary.epoch, driver.epoch) === 0
      ? primary
      : null;
  }

  #changed(file: FileId, primary: FilePrimary, committed: Change): WriteResult {
    this.#parts.traffic?.wrote();
    return resultOf(
      file,
      committed,
      primary.versionOf(committed.seq),
      primary.epoch.counter,
      this.#parts.self,
    );
  }

  /** @param begin not called where the store has failed: nobody would hear how that ended */
  #bounded<Value>(file: FileId, begin: () => Promise<Value>): Promise<Value> {
    const view = this.#parts.store.record(file)?.view ?? { number: 0, members: [] };
    return this.#waiter.bounded(begin(), view, `file ${file}`);
  }
}

function viewOf({ view, replicas, policy }: Attributes): View {
  return {
    number: view,
    members: replicas as ServerId[],
    ...(policy === undefined || policy === 'quorum' ? {} : { policy }),
  };
}

/** @param contents their version after the change */
function resultOf(
  file: FileId,
  done: Change,
  contents: ContentVersion,
  epoch: number,
  primary: ServerId,
): WriteResult {
  const { offset, sizeBytes, modifiedNs } = decodeWriteOutcome(done.result);
  return {
    file,
    sizeBytes,
    modifiedNs: modifiedNs.toString(),
    contents,
    ...(done.before === undefined ? {} : { before: done.before }),
    seq: done.seq,
    primary,
    epoch,
    offset,
  };
}
