import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Epoch, RequestId, View } from '../../replica/actions.ts';
import { MEMBERS_MAX } from '../../replica/codec.ts';
import { epochCompare } from '../../replica/epoch.ts';
import { viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX, WRITE_BYTES_MAX } from '../../wire/file-operation.ts';
import type { FileState, WriteResult } from '../../wire/http-api.ts';
import { unlessFirst, within } from '../bounded.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../primary-waiter.ts';
import type { Committed, ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { FileRead, FileService, FileStanding } from '../services.ts';
import { EPOCH_ZERO } from '../storage/contents.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';
import { FilePrimary } from './file-primary.ts';
import { Room } from './room.ts';
import { assertDoneBefore, finalAttributes } from './sealed-file.ts';
import { Settler } from './settler.ts';
import { decodeWriteOutcome } from './write-outcome.ts';

/** The catalog as the file service needs it: where this server is not its primary, it is asked over the network. */
export interface CatalogAccess {
  /** As the catalog has them, not merged with what primaries know. */
  attributes(file: FileId): Promise<Attributes>;
  command(command: Command): Promise<unknown>;
  /** All commands answered so far survive power loss when it resolves. */
  flush(): Promise<void>;
}

export interface FileServiceParts extends PrimaryWaiterParts {
  readonly log: Logger;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly catalog: CatalogAccess;
  /** Who shall be primary instead of this server; null where it may be. */
  yieldTo?(view: View): ServerId | null;
  /** Whether the cluster has a server of this name. */
  isServer(server: ServerId): boolean;
}

const ALL_RETRY_MS = 1_000;
/** What is under way when a primary gives a file up has this long to end. */
const STOP_MS_MAX = 2_000;
/** Who waits for a primary for this long asks the catalog whether the file has moved, in milliseconds. */
const OUTDATED_AFTER_MS = 500;
/** The catalog that could not be told of new members is told again, in milliseconds. */
const TELL_AGAIN_MS = 5_000;

/** A seal waits for slow replicas for so long at the most, looking so often: they tell their primary, and nobody else. */
const EVERYWHERE_MS_MAX = 5_000;
const EVERYWHERE_LOOK_MS = 10;

/** Contents of files: finds out whether this server is a file's primary, becomes it if nobody is, and serves. */
export class LocalFileService implements FileService {
  readonly #parts: FileServiceParts;
  readonly #waiter: PrimaryWaiter;
  readonly #primaries = new WeakMap<ReplicaDriver, FilePrimary>();
  /** Replicas that were new here when the catalog called their file live. */
  readonly #seenLive = new WeakSet<ReplicaDriver>();
  /** Numbers of views that the catalog was told of. */
  readonly #toldViews = new WeakMap<ReplicaDriver, number>();
  readonly #settler: Settler;
  readonly #room: Room;

  constructor(parts: FileServiceParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
    this.#room = new Room(parts.store, () => parts.clock.nowMs());
    this.#settler = new Settler((files) => parts.catalog.command({ kind: 'settle', files }));
  }

  async read(file: FileId, offset: number, length: number): Promise<FileRead> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#readFinal(file, final, offset, length);
    const driver = await this.#reader(file);
    const { store } = this.#parts;
    const { epoch, committedSeq } = driver.status();
    const served = driver.leads ? 'primary' : 'local';
    // One uninterrupted step decides what is read; it may be answered once all of it is committed.
    const dependsOnSeq = store.readDependsOn(file, offset, length);
    this.#assertReadable(driver, dependsOnSeq);
    const attributes = store.attributes(file);
    const reading = store.read(file, offset, length);
    const [bytes] = await Promise.all([reading, this.#bounded(file, driver.committed(epoch, dependsOnSeq))]);
    await driver.committed(epoch, dependsOnSeq);
    return { bytes, state: this.#stateOf(file, attributes, committedSeq, epoch), served, ageMs: 0 };
  }

  /** What is here now, whether it is the newest or not. */
  async readStale(file: FileId, offset: number, length: number): Promise<FileRead> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#readFinal(file, final, offset, length);
    const driver = await this.#member(file);
    const { epoch, seq, currentAtMs } = driver.status();
    const { store, clock } = this.#parts;
    const attributes = store.attributes(file);
    const bytes = await store.read(file, offset, length);
    const ageMs = currentAtMs === -Infinity ? Infinity : Math.max(0, clock.nowMs() - currentAtMs);
    return { bytes, state: this.#stateOf(file, attributes, seq, epoch), served: 'local', ageMs };
  }

  async write(
    file: FileId,
    request: RequestId,
    offset: number | 'append',
    bytes: Uint8Array,
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
    const driver = await this.#activate(file);
    if (bytes.length === 0) {
      const state = await this.state(file);
      return { ...state, offset: offset === 'append' ? state.sizeBytes : offset };
    }
    this.#assertAllThere(driver);
    await this.#assertRoom(driver, bytes.length);
    const primary = this.#primaryOf(driver);
    return this.#changed(file, primary, await this.#bounded(file, primary.write(request, offset, bytes)));
  }

  async truncate(file: FileId, request: RequestId, sizeBytes: number): Promise<WriteResult> {
    if (sizeBytes > FILE_BYTES_MAX)
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    const answered = this.#answeredFinally(file, request);
    if (answered !== null) return answered;
    const driver = await this.#activate(file);
    this.#assertAllThere(driver);
    const primary = this.#primaryOf(driver);
    return this.#changed(file, primary, await this.#bounded(file, primary.truncate(request, sizeBytes)));
  }

  /** A primary without room leaves the file to others, who may have some: a majority of them can take every write. */
  async #assertRoom(driver: ReplicaDriver, bytes: number): Promise<void> {
    try {
      await this.#room.assertFor(bytes);
    } catch (error) {
      const { lease, isConnected, self } = this.#parts;
      const isThere = (member: ServerId): boolean => member !== self && isConnected(member);
      if (viewHasMajority(driver.status().view, isThere) && (await within(driver.stop(), STOP_MS_MAX))) {
        lease.release(driver.file);
        lease.close(driver.file);
      }
      throw error;
    }
  }

  /**
   * Where every member has to have a write, one that cannot be there is refused before it has a place in the order:
   * it certainly did not happen, and reads need not wait for it.
   */
  #assertAllThere(driver: ReplicaDriver): void {
    const { view } = driver.status();
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
    const driver = await this.#activate(file);
    const primary = this.#primaryOf(driver);
    // Contents without a name would be lost all the same: the first time, the catalog is flushed too.
    await this.#bounded(file, Promise.all([driver.flush(), primary.nameFlushed()]));
    return this.#stateAt(file, driver);
  }

  async seal(file: FileId): Promise<FileState> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#stateOfFinal(file, final);
    const driver = await this.#activate(file);
    const { policy = 'quorum' } = driver.status().view;
    if (policy !== 'read-only') {
      const why = `its policy is "${policy}", and only files of policy "read-only" are sealed`;
      throw new ServiceError('bad-request', `Cannot seal file ${file}: ${why}`);
    }
    const primary = this.#primaryOf(driver);
    const sealed = Promise.all([primary.seal(), primary.nameFlushed()]);
    const [lastSeq] = await this.#bounded(file, sealed);
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
    while (driver.leads && isMissing() && clock.nowMs() < untilMs) await delay(EVERYWHERE_LOOK_MS);
  }

  async state(file: FileId): Promise<FileState> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#stateOfFinal(file, final);
    return this.#stateAt(file, await this.#reader(file));
  }

  async lead(file: FileId): Promise<FileState> {
    return this.#stateAt(file, await this.#activate(file));
  }

  async #readFinal(
    file: FileId,
    attributes: FileAttributes,
    offset: number,
    length: number,
  ): Promise<FileRead> {
    const state = this.#stateOfFinal(file, attributes);
    return { bytes: await this.#parts.store.read(file, offset, length), state, served: 'local', ageMs: 0 };
  }

  #stateOfFinal(file: FileId, attributes: FileAttributes): FileState {
    const { seq, installed } = this.#parts.store.record(file) ?? { seq: 0, installed: EPOCH_ZERO };
    return this.#stateOf(file, attributes, seq, installed);
  }

  /**
   * A change of a file that is final here is answered from here: it is refused, unless it was done before.
   *
   * @returns null where the file may still change
   * @throws ServiceError `sealed`, or `session-expired` where nobody can tell any more
   */
  #answeredFinally(file: FileId, request: RequestId): WriteResult | null {
    const { store, self } = this.#parts;
    if (finalAttributes(store, file) === null) return null;
    const answer = assertDoneBefore(store, file, request);
    if (answer.kind === 'expired') {
      throw new ServiceError('session-expired', `Whether file ${file} was changed so is not known any more`);
    }
    const epoch = store.record(file)?.installed.counter ?? 0;
    return resultOf(file, answer, epoch, self);
  }

  async #stateAt(file: FileId, driver: ReplicaDriver): Promise<FileState> {
    const { epoch, committedSeq } = driver.status();
    const attributes = this.#parts.store.attributes(file);
    const dependsOnSeq = attributes.versionEpoch === epoch.counter ? attributes.versionSeq : 0;
    this.#assertReadable(driver, dependsOnSeq);
    await this.#bounded(file, driver.committed(epoch, dependsOnSeq));
    return this.#stateOf(file, attributes, committedSeq, epoch);
  }

  async settle(file: FileId): Promise<FileState> {
    const driver = await this.#activate(file);
    const primary = this.#primaryOf(driver);
    let state: FileState | null = null;
    await this.#bounded(
      file,
      primary.settle(async (mark) => {
        state = await this.#stateAt(file, driver);
        // Writes of a later epoch are acknowledged without waiting for this settling: it would hide them.
        if (state.epoch !== primary.epoch.counter) {
          throw new ServiceError('not-primary', `The primary of file ${file} changed meanwhile`);
        }
        await this.#settler.settle(state, mark);
      }),
    );
    return state ?? this.state(file);
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
    await this.#follow(file, view);
    return view;
  }

  /** Before the lease is given back: tells the catalog what only this primary knows. */
  async settleBeforeRelease(driver: ReplicaDriver): Promise<void> {
    if (this.#primaries.get(driver)?.unsettled === false) return;
    if (driver.leads) await this.settle(driver.file);
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

  /** @returns the driver of a replica that is primary now; becomes it where nobody is */
  async #activate(file: FileId): Promise<ReplicaDriver> {
    const { host, lease } = this.#parts;
    const ready = host.loaded(file);
    if (ready?.leads === true) {
      ready.usedAtMs = this.#parts.clock.nowMs();
      return ready;
    }
    lease.assertUsable();
    const driver = await this.#member(file);
    this.#yield(driver);
    const { view } = driver.status();
    const waiting = this.#waiter.primary(driver, `file ${file}`, true);
    await unlessFirst(waiting, OUTDATED_AFTER_MS, () => this.#newerPlace(file, view));
    return driver;
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
    const primary = this.#parts.yieldTo?.(driver.status().view) ?? null;
    if (primary === null) return;
    throw new ServiceError(
      'not-primary',
      `This server is being drained, and leaves file ${driver.file} to others`,
      {
        primary,
      },
    );
  }

  /** @returns the driver of a replica that may answer reads now; becomes the primary where nobody is */
  async #reader(file: FileId): Promise<ReplicaDriver> {
    const ready = this.#parts.host.loaded(file);
    if (ready !== null && ready.readGate(0) !== 'not-primary') {
      ready.usedAtMs = this.#parts.clock.nowMs();
      return ready;
    }
    return this.#activate(file);
  }

  /**
   * To be called in the turn in which contents are pinned: a backup whose right to answer had ended then, and
   * comes again later, would show what was outdated in between.
   */
  #assertReadable(driver: ReplicaDriver, dependsOnSeq: number): void {
    if (driver.readGate(dependsOnSeq) !== 'not-primary') return;
    throw new ServiceError('not-primary', `This server may not answer reads of file ${driver.file} now`);
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
    this.#tellNewMembers(driver);
    if (!driver.leads || this.#parts.store.attributes(file).seal !== 'sealed') return;
    this.seal(file).catch((error: unknown) => {
      this.#parts.log.info({ file, err: error }, 'a file is sealed, but not finally yet');
    });
  }

  /** The catalog follows what the file's own sequence says. A primary tells it whenever it may not know. */
  #tellNewMembers(driver: ReplicaDriver): void {
    const { view, epoch } = driver.status();
    if (!driver.leads || view.number === 1 || view.joint !== undefined) return;
    if (this.#toldViews.get(driver) === view.number) return;
    this.#toldViews.set(driver, view.number);
    // A view that is not committed is not told: by then it is, or this server leads no more.
    const told = driver.committed(epoch, driver.orderedSeq).then(() => this.#follow(driver.file, view));
    told.catch((error: unknown) => {
      this.#toldViews.delete(driver);
      this.#parts.log.info(
        { file: driver.file, err: error },
        'the catalog does not know the new members of a file yet',
      );
      setTimeout(() => this.#tellNewMembers(driver), TELL_AGAIN_MS).unref();
    });
  }

  async #follow(file: FileId, { number, members }: View): Promise<void> {
    const view = { number, members: [...members] };
    await this.#parts.catalog.command({ kind: 'follow-view', inode: file, view });
  }

  async #open(file: FileId): Promise<ReplicaDriver> {
    const { host, store, catalog, self } = this.#parts;
    if (store.record(file) !== null) return host.load(file);
    const attributes = await catalog.attributes(file);
    if (attributes.kind !== 'file')
      throw new ServiceError('bad-request', `Inode ${file} is a ${attributes.kind}`);
    const { policy } = attributes;
    const view: View = {
      number: attributes.view,
      members: attributes.replicas as ServerId[],
      ...(policy === undefined || policy === 'quorum' ? {} : { policy }),
    };
    if (!view.members.includes(self)) throw this.#isElsewhere(file, view.members);
    const driver = host.create(file, view, attributes.objectBytes);
    if (attributes.live) this.#seenLive.add(driver);
    return driver;
  }

  #primaryOf(driver: ReplicaDriver): FilePrimary {
    const known = this.#primaries.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    const primary = new FilePrimary(driver, this.#parts.store, this.#parts.clock, {
      markLive: async (mark) => {
        await this.#parts.catalog.command({ kind: 'open-for-write', inode: driver.file, mark });
      },
      flush: () => this.#parts.catalog.flush(),
      // Only a primary ends the mark, and before the first epoch there was none.
      isLive: driver.epoch.counter === 1 && this.#seenLive.has(driver),
    });
    this.#primaries.set(driver, primary);
    return primary;
  }

  #changed(file: FileId, primary: FilePrimary, committed: Committed): WriteResult {
    return resultOf(file, committed, primary.epoch.counter, this.#parts.self);
  }

  /** @param seq a committed operation: a number that is not may be given out again after a reset */
  #stateOf(file: FileId, attributes: FileAttributes, seq: number, epoch: Epoch): FileState {
    return {
      file,
      sizeBytes: attributes.sizeBytes,
      modifiedNs: attributes.modifiedNs.toString(),
      contents: { epoch: attributes.versionEpoch, seq: attributes.versionSeq },
      seq,
      primary: epoch.counter === 0 ? this.#parts.self : epoch.server,
      epoch: epoch.counter,
      ...(attributes.seal === 'open' ? {} : { sealed: true }),
    };
  }

  #bounded<Value>(file: FileId, work: Promise<Value>): Promise<Value> {
    const view = this.#parts.store.record(file)?.view ?? { number: 0, members: [] };
    return this.#waiter.bounded(work, view, `file ${file}`);
  }
}

function resultOf(file: FileId, done: Committed, epoch: number, primary: ServerId): WriteResult {
  const { offset, sizeBytes, modifiedNs } = decodeWriteOutcome(done.result);
  return {
    file,
    sizeBytes,
    modifiedNs: modifiedNs.toString(),
    contents: { epoch, seq: done.seq },
    seq: done.seq,
    primary,
    epoch,
    offset,
  };
}
