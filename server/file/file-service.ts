import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { RequestId, View } from '../../replica/actions.ts';
import { epochCompare } from '../../replica/epoch.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX, WRITE_BYTES_MAX } from '../../wire/file-operation.ts';
import type { FileState, WriteResult } from '../../wire/http-api.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../primary-waiter.ts';
import type { Committed, ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { FileService, FileStanding } from '../services.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';
import { FilePrimary } from './file-primary.ts';
import { Room } from './room.ts';
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
}

/** Contents of files: finds out whether this server is a file's primary, becomes it if nobody is, and serves. */
export class LocalFileService implements FileService {
  readonly #parts: FileServiceParts;
  readonly #waiter: PrimaryWaiter;
  readonly #primaries = new WeakMap<ReplicaDriver, FilePrimary>();
  /** Replicas that were new here when the catalog called their file live. */
  readonly #seenLive = new WeakSet<ReplicaDriver>();
  readonly #settler: Settler;
  readonly #room: Room;

  constructor(parts: FileServiceParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
    this.#room = new Room(parts.store, () => parts.clock.nowMs());
    this.#settler = new Settler((files) => parts.catalog.command({ kind: 'settle', files }));
  }

  async read(file: FileId, offset: number, length: number): Promise<{ bytes: Uint8Array; state: FileState }> {
    const driver = await this.#activate(file);
    const { store } = this.#parts;
    const { epoch, committedSeq } = driver.status();
    // One uninterrupted step decides what is read; it may be answered once all of it is committed.
    const dependsOnSeq = store.readDependsOn(file, offset, length);
    const attributes = store.attributes(file);
    const reading = store.read(file, offset, length);
    const [bytes] = await Promise.all([reading, this.#bounded(file, driver.committed(epoch, dependsOnSeq))]);
    await driver.committed(epoch, dependsOnSeq);
    return { bytes, state: this.#stateOf(file, attributes, committedSeq, epoch.counter) };
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
    const driver = await this.#activate(file);
    if (bytes.length === 0) {
      const state = await this.state(file);
      return { ...state, offset: offset === 'append' ? state.sizeBytes : offset };
    }
    await this.#room.assertFor(bytes.length);
    const primary = this.#primaryOf(driver);
    return this.#changed(file, primary, await this.#bounded(file, primary.write(request, offset, bytes)));
  }

  async truncate(file: FileId, request: RequestId, sizeBytes: number): Promise<WriteResult> {
    if (sizeBytes > FILE_BYTES_MAX)
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    const primary = this.#primaryOf(await this.#activate(file));
    return this.#changed(file, primary, await this.#bounded(file, primary.truncate(request, sizeBytes)));
  }

  async flush(file: FileId): Promise<FileState> {
    const driver = await this.#activate(file);
    const primary = this.#primaryOf(driver);
    // Contents without a name would be lost all the same: the first time, the catalog is flushed too.
    await this.#bounded(file, Promise.all([driver.flush(), primary.nameFlushed()]));
    return this.state(file);
  }

  async state(file: FileId): Promise<FileState> {
    const driver = await this.#activate(file);
    const { epoch, committedSeq } = driver.status();
    const attributes = this.#parts.store.attributes(file);
    const dependsOnSeq = attributes.versionEpoch === epoch.counter ? attributes.versionSeq : 0;
    await this.#bounded(file, driver.committed(epoch, dependsOnSeq));
    return this.#stateOf(file, attributes, committedSeq, epoch.counter);
  }

  async settle(file: FileId): Promise<FileState> {
    const primary = this.#primaryOf(await this.#activate(file));
    let state: FileState | null = null;
    await this.#bounded(
      file,
      primary.settle(async (mark) => {
        state = await this.state(file);
        // Writes of a later epoch are acknowledged without waiting for this settling: it would hide them.
        if (state.epoch !== primary.epoch.counter) {
          throw new ServiceError('not-primary', `The primary of file ${file} changed meanwhile`);
        }
        await this.#settler.settle(state, mark);
      }),
    );
    return state ?? this.state(file);
  }

  async changeMembers(file: FileId, _members: readonly ServerId[]): Promise<View> {
    await this.#activate(file);
    throw new ServiceError('busy', `The members of file ${file} cannot be changed by this version`);
  }

  /** Before the lease is given back: tells the catalog what only this primary knows. */
  async settleBeforeRelease(driver: ReplicaDriver): Promise<void> {
    if (this.#primaries.get(driver)?.unsettled === false) return;
    if (driver.readGate(0) === 'serve') await this.settle(driver.file);
  }

  standing(file: FileId): FileStanding | null {
    const { host, lease, store, self } = this.#parts;
    const driver = host.loaded(file);
    const view = driver?.subject.record().view ?? store.record(file)?.view ?? null;
    if (view === null) return null;
    const held = lease.view(file);
    const primary = held.own ? self : held.holder;
    const serving = driver !== null && driver.readGate(0) === 'serve';
    return {
      view,
      primary,
      epoch: driver?.epoch.counter ?? store.record(file)?.promised.counter ?? 0,
      role: serving ? 'primary' : view.members.includes(self) ? 'backup' : 'none',
      lease: { holder: primary, remainingMs: Math.max(0, held.remainingMs) },
      replicas: serving ? driver.peers(this.#parts.isConnected) : [],
    };
  }

  /** @returns the driver of a replica that is primary now; becomes it where nobody is */
  async #activate(file: FileId): Promise<ReplicaDriver> {
    const { host, lease, self } = this.#parts;
    const ready = host.loaded(file);
    if (ready !== null && ready.readGate(0) === 'serve') {
      ready.usedAtMs = this.#parts.clock.nowMs();
      return ready;
    }
    lease.assertUsable();
    const driver = ready ?? (await this.#open(file));
    driver.usedAtMs = this.#parts.clock.nowMs();
    const { view } = driver.subject.record();
    if (!view.members.includes(self)) {
      throw new ServiceError('not-primary', `This server holds no replica of file ${file}`);
    }
    await this.#waiter.primary(driver, view, `file ${file}`, true);
    return driver;
  }

  async #open(file: FileId): Promise<ReplicaDriver> {
    const { host, store, catalog, self } = this.#parts;
    if (store.record(file) !== null) return host.load(file);
    const attributes = await catalog.attributes(file);
    if (attributes.kind !== 'file')
      throw new ServiceError('bad-request', `Inode ${file} is a ${attributes.kind}`);
    const view = { number: attributes.view, members: attributes.replicas as ServerId[] };
    if (!view.members.includes(self)) {
      throw new ServiceError('not-primary', `This server holds no replica of file ${file}`);
    }
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
    const { offset, sizeBytes, modifiedNs } = decodeWriteOutcome(committed.result);
    return {
      file,
      sizeBytes,
      modifiedNs: modifiedNs.toString(),
      contents: { epoch: primary.epoch.counter, seq: committed.seq },
      seq: committed.seq,
      primary: this.#parts.self,
      epoch: primary.epoch.counter,
      offset,
    };
  }

  /** @param seq a committed operation: a number that is not may be given out again after a reset */
  #stateOf(file: FileId, attributes: FileAttributes, seq: number, epoch: number): FileState {
    return {
      file,
      sizeBytes: attributes.sizeBytes,
      modifiedNs: attributes.modifiedNs.toString(),
      contents: { epoch: attributes.versionEpoch, seq: attributes.versionSeq },
      seq,
      primary: this.#parts.self,
      epoch,
    };
  }

  #bounded<Value>(file: FileId, work: Promise<Value>): Promise<Value> {
    const view = this.#parts.store.record(file)?.view ?? { number: 0, members: [] };
    return this.#waiter.bounded(work, view, `file ${file}`);
  }
}
