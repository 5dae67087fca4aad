import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { FileExtent, FileState, Whence } from '../../wire/http-api.ts';
import { LOCATIONS_HELD_MS } from '../../wire/locations.ts';
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { Traffic } from '../live/traffic.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { FileLocated, FileRead } from '../services.ts';
import { EPOCH_ZERO } from '../storage/contents.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';
import type { AgreedFiles } from './agreed-files.ts';
import { extentStep } from './extents.ts';
import { finalAttributes } from './sealed-file.ts';

export interface FileReadsParts {
  readonly self: ServerId;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly world: World;
  readonly clock: Clock;
  /** Reads without a primary; absent where each read has one. */
  readonly agreed?: Pick<AgreedFiles, 'read' | 'look'>;
  /** Counts what is done for clients; absent where nobody wants to know. */
  readonly traffic?: Traffic;
  /** @returns the driver of a replica that is primary now; becomes it where nobody is */
  activate(file: FileId): Promise<ReplicaDriver>;
  /** @returns the driver of the replica here, whatever its role */
  member(file: FileId): Promise<ReplicaDriver>;
  /** Waits for the work no longer than for a majority of the file's members. */
  bounded<Value>(file: FileId, begin: () => Promise<Value>): Promise<Value>;
}

/** What a file is, read at the replica here: nothing is told that was outdated when it was asked for, or is not committed. */
export class FileReads {
  readonly #parts: FileReadsParts;

  constructor(parts: FileReadsParts) {
    this.#parts = parts;
  }

  async read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) {
      assertAsOf(file, final, asOf);
      return this.#readFinal(file, final, offset, length);
    }
    const agreed = await this.#readAgreed(file, offset, length, asOf);
    if (agreed !== null) return agreed;
    const driver = await this.#reader(file);
    const { taken, ...told } = await this.#take(driver, offset, length, asOf, (store) =>
      store.read(file, offset, length),
    );
    return { bytes: taken, ...told, ageMs: 0 };
  }

  async locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated> {
    const { store } = this.#parts;
    const final = finalAttributes(store, file);
    if (final !== null) {
      assertAsOf(file, final, asOf);
      const locations = store.locate(file, offset, length, LOCATIONS_HELD_MS);
      this.#parts.traffic?.read();
      return { locations, state: this.stateOfFinal(file, final), served: 'local' };
    }
    // An election is not waited for: whoever asks reads in the ordinary way meanwhile.
    const driver = this.#readerNow(file);
    if (driver === null) throw this.#mayNotAnswer(file);
    await this.#answers(driver);
    const { taken, ...told } = await this.#take(driver, offset, length, asOf, () =>
      store.locate(file, offset, length, LOCATIONS_HELD_MS),
    );
    return { locations: taken, ...told };
  }

  /**
   * What a read at the replica here shows.
   *
   * @param take pins it, before it returns
   */
  async #take<Taken>(
    driver: ReplicaDriver,
    offset: number,
    length: number,
    asOf: ContentVersion | undefined,
    take: (store: FileStore) => Taken | Promise<Taken>,
  ): Promise<{ readonly taken: Taken; readonly state: FileState; readonly served: 'primary' | 'local' }> {
    const { file } = driver;
    const { store } = this.#parts;
    const { epoch, committedSeq } = driver.status();
    const served = driver.leads ? 'primary' : 'local';
    // One uninterrupted step decides what is read; it may be answered once all of it is committed.
    const dependsOnSeq = store.readDependsOn(file, offset, length);
    this.#assertReadable(driver, dependsOnSeq);
    const attributes = store.attributes(file);
    assertAsOf(file, attributes, asOf);
    const [, taken] = await Promise.all([
      this.#parts.bounded(file, () => driver.committed(epoch, dependsOnSeq)),
      take(store),
    ]);
    await driver.committed(epoch, dependsOnSeq);
    this.#parts.traffic?.read();
    return { taken, state: this.#stateOf(file, attributes, committedSeq, epoch), served };
  }

  /** @returns null where somebody leads the file, as far as is known here, or no majority agrees about it */
  async #readAgreed(
    file: FileId,
    offset: number,
    length: number,
    asOf?: ContentVersion,
  ): Promise<FileRead | null> {
    const { agreed, store, traffic } = this.#parts;
    if (agreed === undefined || !this.isUnled(file)) return null;
    return agreed.read(file, async ({ seq }) => {
      // What is being stored this very moment is not what they agree about.
      if (store.readDependsOn(file, offset, length) > seq) return null;
      const attributes = store.attributes(file);
      assertAsOf(file, attributes, asOf);
      const state = this.stateOfFinal(file, attributes);
      const bytes = await store.read(file, offset, length);
      traffic?.read();
      return { bytes, state, served: 'local', ageMs: 0 };
    });
  }

  /** Nobody leads it, as far as is known here, and nobody here may answer reads of it. */
  isUnled(file: FileId): boolean {
    const { host, lease } = this.#parts;
    const { own, holder } = lease.view(file);
    return !own && holder === null && host.loaded(file)?.readGate(0) !== 'serve';
  }

  /** What is here now, whether it is the newest or not. */
  async readStale(file: FileId, offset: number, length: number): Promise<FileRead> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.#readFinal(file, final, offset, length);
    const driver = await this.#parts.member(file);
    const { epoch, committedSeq, currentAtMs } = driver.status();
    const { store, clock } = this.#parts;
    const attributes = store.attributes(file);
    const bytes = await store.read(file, offset, length);
    this.#parts.traffic?.read();
    const ageMs = currentAtMs === -Infinity ? Infinity : Math.max(0, clock.nowMs() - currentAtMs);
    return { bytes, state: this.#stateOf(file, attributes, committedSeq, epoch), served: 'local', ageMs };
  }

  /** What is looked through in more than one turn may change meanwhile: each part of it was so within the call. */
  async extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent> {
    const { store } = this.#parts;
    const final = finalAttributes(store, file);
    const driver = final === null ? await this.#reader(file) : null;
    for (let from = offset; ; ) {
      const attributes = store.attributes(file);
      assertAsOf(file, attributes, asOf);
      const step = extentStep(store, file, from, whence);
      const state =
        driver === null
          ? this.stateOfFinal(file, attributes)
          : await this.#lookedAt(driver, from, step.kind === 'on' ? step.next : step.at);
      if (step.kind === 'found') return { ...state, found: step.at };
      from = step.next;
      await this.#parts.world.nextTurn();
    }
  }

  /** To be called in the turn in which the objects up to `to` were looked at. @returns once what was seen is committed */
  async #lookedAt(driver: ReplicaDriver, from: number, to: number | null): Promise<FileState> {
    const { store } = this.#parts;
    const { file } = driver;
    const { epoch, committedSeq } = driver.status();
    const attributes = store.attributes(file);
    const dependsOnSeq = store.readDependsOn(
      file,
      from,
      Math.max(1, (to ?? attributes.sizeBytes) + 1 - from),
    );
    this.#assertReadable(driver, dependsOnSeq);
    await this.#parts.bounded(file, () => driver.committed(epoch, dependsOnSeq));
    return this.#stateOf(file, attributes, committedSeq, epoch);
  }

  async state(file: FileId): Promise<FileState> {
    const final = finalAttributes(this.#parts.store, file);
    if (final !== null) return this.stateOfFinal(file, final);
    const agreed = await this.#stateAgreed(file);
    return agreed ?? this.stateAt(file, await this.#reader(file));
  }

  /** @returns null where somebody leads the file, as far as is known here, or no majority agrees about it */
  async #stateAgreed(file: FileId): Promise<FileState | null> {
    const { agreed, store } = this.#parts;
    if (agreed === undefined || !this.isUnled(file)) return null;
    return agreed.look(file, async () => this.stateOfFinal(file, store.attributes(file)));
  }

  async stateAt(file: FileId, driver: ReplicaDriver): Promise<FileState> {
    const { epoch, committedSeq } = driver.status();
    const attributes = this.#parts.store.attributes(file);
    const changedSeq = attributes.versionEpoch === epoch.counter ? attributes.versionSeq : 0;
    // A seal may vanish like a change while it is not committed. It has a place up to the last operation here.
    const dependsOnSeq = attributes.seal === 'open' ? changedSeq : driver.subject.record().seq;
    this.#assertReadable(driver, dependsOnSeq);
    await this.#parts.bounded(file, () => driver.committed(epoch, dependsOnSeq));
    return this.#stateOf(file, attributes, committedSeq, epoch);
  }

  async #readFinal(
    file: FileId,
    attributes: FileAttributes,
    offset: number,
    length: number,
  ): Promise<FileRead> {
    const state = this.stateOfFinal(file, attributes);
    const bytes = await this.#parts.store.read(file, offset, length);
    this.#parts.traffic?.read();
    return { bytes, state, served: 'local', ageMs: 0 };
  }

  stateOfFinal(file: FileId, attributes: FileAttributes): FileState {
    const { seq, installed } = this.#parts.store.record(file) ?? { seq: 0, installed: EPOCH_ZERO };
    return this.#stateOf(file, attributes, seq, installed);
  }

  /** @returns the driver of a replica that may answer reads now; becomes the primary where nobody is */
  async #reader(file: FileId): Promise<ReplicaDriver> {
    const driver = this.#readerNow(file) ?? (await this.#parts.activate(file));
    await this.#answers(driver);
    return driver;
  }

  /**
   * Resolves once the replica may answer reads, or could since the call. What is pinned from then on shows what others may have shown before,
   * while this server led but nobody kept its guard.
   */
  async #answers(driver: ReplicaDriver): Promise<void> {
    if (driver.readGate(0) === 'serve') return;
    await this.#parts.bounded(driver.file, () => driver.committed(driver.status().epoch, 0));
  }

  /** @returns the driver of a replica that may answer reads in this turn; null where there is none, or it has to ask for the right first */
  #readerNow(file: FileId): ReplicaDriver | null {
    const ready = this.#parts.host.loaded(file);
    if (ready === null || ready.readGate(0) === 'not-primary') return null;
    ready.usedAtMs = this.#parts.clock.nowMs();
    return ready;
  }

  /**
   * To be called in the turn in which contents are pinned: a backup whose right to answer had ended then, and
   * comes again later, would show what was outdated in between.
   */
  #assertReadable(driver: ReplicaDriver, dependsOnSeq: number): void {
    if (driver.readGate(dependsOnSeq) !== 'not-primary') return;
    throw this.#mayNotAnswer(driver.file);
  }

  #mayNotAnswer(file: FileId): ServiceError {
    return new ServiceError('not-primary', `This server may not answer reads of file ${file} now`);
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
}

/** To be called in the turn in which contents are pinned. @throws ServiceError `precondition-failed` where they are of another version */
function assertAsOf(file: FileId, attributes: FileAttributes, asOf: ContentVersion | undefined): void {
  if (asOf === undefined) return;
  if (attributes.versionEpoch === asOf.epoch && attributes.versionSeq === asOf.seq) return;
  throw new ServiceError(
    'precondition-failed',
    `The contents of file ${file} are not of version ${asOf.epoch}.${asOf.seq}`,
  );
}
