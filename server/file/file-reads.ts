import { assert, unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { FileExtent, FileState, Whence } from '../../wire/http-api.ts';
import { LOCATIONS_VALID_MS } from '../../wire/locations.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileLocated, FileRead } from '../routing/service-interfaces.ts';
import { EPOCH_ZERO } from '../storage/contents.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import type { Authorities } from './authority.ts';
import { extentStep } from './extents.ts';
import type { FileReplicas } from './file-replicas.ts';
import type { QuorumReads } from './quorum-reads.ts';

export interface FileReadsParts {
  readonly self: ServerId;
  readonly store: FileStore;
  readonly world: World;
  readonly clock: Clock;
  readonly quorumReads?: Pick<QuorumReads, 'read' | 'readAlways'>;
  readonly traffic?: Traffic;
  readonly authorities: Authorities;
  readonly replicas: FileReplicas;
}

interface Answers<Answer> {
  sealed(attributes: FileAttributes): Answer | Promise<Answer>;
  quorum(quorumReads: Pick<QuorumReads, 'read' | 'readAlways'>): Promise<Answer | null>;
  replica(driver: ReplicaDriver): Promise<Answer>;
}

/** Reads the replica here: each answer is committed, and as new as the newest state at the time of the request. */
export class FileReads {
  readonly #parts: FileReadsParts;

  constructor(parts: FileReadsParts) {
    this.#parts = parts;
  }

  /** Reads by the first authority that this server has, of one state. @param asOf other contents are refused */
  read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead> {
    return this.#answer(file, {
      sealed: (attributes) => {
        assertAsOf(file, attributes, asOf);
        return this.#readFinal(file, attributes, offset, length);
      },
      quorum: (quorumReads) => this.#readByQuorum(quorumReads, file, offset, length, asOf),
      replica: async (driver) => {
        const { taken, ...shown } = await this.#pinned(driver, offset, length, asOf, (store) =>
          store.read(file, offset, length),
        );
        return { bytes: taken, ...shown, ageMs: 0 };
      },
    });
  }

  async locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated> {
    const { store, authorities, traffic } = this.#parts;
    const { by } = authorities.localDisk(file);
    if (by.kind === 'sealed-replica') {
      assertAsOf(file, by.attributes, asOf);
      const locations = store.locate(file, offset, length, LOCATIONS_VALID_MS);
      traffic?.countRead();
      return { locations, state: this.stateOfFinal(file, by.attributes), served: 'local' };
    }
    await this.#untilReadable(by.driver);
    const { taken, ...shown } = await this.#pinned(by.driver, offset, length, asOf, () =>
      store.locate(file, offset, length, LOCATIONS_VALID_MS),
    );
    return { locations: taken, ...shown };
  }

  /** Answers by the first authority that this server has; without one, becomes primary first. */
  async #answer<Answer>(file: FileId, by: Answers<Answer>): Promise<Answer> {
    const { authorities, quorumReads } = this.#parts;
    const authority = authorities.reader(file);
    switch (authority?.kind) {
      case 'sealed-replica':
        return by.sealed(authority.attributes);
      case 'quorum-read': {
        assert(quorumReads !== undefined, 'A quorum read has what it is asked by');
        const answer = await by.quorum(quorumReads);
        return answer ?? by.replica(await this.#reader(file));
      }
      case 'active-primary':
      case 'read-lease-backup':
        await this.#untilReadable(authority.driver);
        return by.replica(authority.driver);
      case undefined:
        return by.replica(await this.#primary(file));
      default:
        return unreachable(authority);
    }
  }

  /** Takes contents from the replica in this tick; returns them once all operations that they show are committed. */
  async #pinned<Taken>(
    driver: ReplicaDriver,
    offset: number,
    length: number,
    asOf: ContentVersion | undefined,
    take: (store: FileStore) => Taken | Promise<Taken>,
  ): Promise<{ readonly taken: Taken; readonly state: FileState; readonly served: 'primary' | 'local' }> {
    const { file } = driver;
    const { store, authorities } = this.#parts;
    const { epoch, committedSeq } = driver.status();
    // One tick decides what is read; it may be answered once all of it is committed.
    const dependsOnSeq = store.readDependsOn(file, offset, length);
    const { kind } = authorities.assertMayAnswer(driver, dependsOnSeq);
    const served = kind === 'active-primary' ? 'primary' : 'local';
    const attributes = store.attributes(file);
    assertAsOf(file, attributes, asOf);
    const [, taken] = await Promise.all([
      this.#parts.replicas.withinTimeout(file, () => driver.untilReadable(epoch, dependsOnSeq)),
      take(store),
    ]);
    await driver.untilReadable(epoch, dependsOnSeq);
    this.#parts.traffic?.countRead();
    return { taken, state: this.#stateOf(file, attributes, committedSeq, epoch), served };
  }

  /** @returns null if no majority agrees that the position here is the newest, or the bytes show a later operation */
  #readByQuorum(
    quorumReads: Pick<QuorumReads, 'read'>,
    file: FileId,
    offset: number,
    length: number,
    asOf?: ContentVersion,
  ): Promise<FileRead | null> {
    const { store, traffic } = this.#parts;
    return quorumReads.read(file, async ({ seq }) => {
      // An operation that is being stored now is not part of the agreed position.
      if (store.readDependsOn(file, offset, length) > seq) return null;
      const attributes = store.attributes(file);
      assertAsOf(file, attributes, asOf);
      const state = this.stateOfFinal(file, attributes);
      const bytes = await store.read(file, offset, length);
      traffic?.countRead();
      return { bytes, state, served: 'local', ageMs: 0 };
    });
  }

  async readStale(file: FileId, offset: number, length: number): Promise<FileRead> {
    const { store, clock, authorities, replicas } = this.#parts;
    const authority = authorities.stale(file);
    if (authority.kind === 'sealed-replica')
      return this.#readFinal(file, authority.attributes, offset, length);
    const driver = await replicas.member(file);
    const { epoch, committedSeq, currentAtMs } = driver.status();
    const attributes = store.attributes(file);
    const bytes = await store.read(file, offset, length);
    this.#parts.traffic?.countRead();
    const ageMs = currentAtMs === -Infinity ? Infinity : Math.max(0, clock.nowMs() - currentAtMs);
    return { bytes, state: this.#stateOf(file, attributes, committedSeq, epoch), served: 'local', ageMs };
  }

  /** A search over several ticks may see changes: each part of its answer held at some time within the call. */
  async extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent> {
    const { store, authorities } = this.#parts;
    const driver = authorities.sealed(file) === null ? await this.#reader(file) : null;
    for (let from = offset; ; ) {
      const attributes = store.attributes(file);
      assertAsOf(file, attributes, asOf);
      const step = extentStep(store, file, from, whence);
      const state =
        driver === null
          ? this.stateOfFinal(file, attributes)
          : await this.#stateOnceCommitted(driver, from, step.kind === 'on' ? step.next : step.at);
      if (step.kind === 'found') return { ...state, found: step.at };
      from = step.next;
      await this.#parts.world.nextTick();
    }
  }

  /** Returns the file's state once what a search saw is committed. To be called in the tick of the search. */
  async #stateOnceCommitted(driver: ReplicaDriver, from: number, to: number | null): Promise<FileState> {
    const { store } = this.#parts;
    const { file } = driver;
    const { epoch, committedSeq } = driver.status();
    const attributes = store.attributes(file);
    const dependsOnSeq = store.readDependsOn(
      file,
      from,
      Math.max(1, (to ?? attributes.sizeBytes) + 1 - from),
    );
    this.#parts.authorities.assertMayAnswer(driver, dependsOnSeq);
    await this.#parts.replicas.withinTimeout(file, () => driver.untilReadable(epoch, dependsOnSeq));
    return this.#stateOf(file, attributes, committedSeq, epoch);
  }

  state(file: FileId): Promise<FileState> {
    return this.#answer(file, {
      sealed: () => this.stateHere(file),
      quorum: (quorumReads) => quorumReads.readAlways(file, async () => this.stateHere(file)),
      replica: (driver) => this.stateAt(file, driver),
    });
  }

  async stateAt(file: FileId, driver: ReplicaDriver): Promise<FileState> {
    const { epoch, committedSeq } = driver.status();
    const { store } = this.#parts;
    const attributes = store.attributes(file);
    const holes = holesOf(store, file);
    const changedSeq = attributes.versionEpoch === epoch.counter ? attributes.versionSeq : 0;
    // An uncommitted seal may vanish like a change. Its position is at most the last operation here.
    const dependsOnSeq = attributes.seal === 'open' ? changedSeq : driver.subject.record().seq;
    this.#parts.authorities.assertMayAnswer(driver, dependsOnSeq);
    await this.#parts.replicas.withinTimeout(file, () => driver.untilReadable(epoch, dependsOnSeq));
    return { ...this.#stateOf(file, attributes, committedSeq, epoch), ...holes };
  }

  async #readFinal(
    file: FileId,
    attributes: FileAttributes,
    offset: number,
    length: number,
  ): Promise<FileRead> {
    const state = this.stateOfFinal(file, attributes);
    const bytes = await this.#parts.store.read(file, offset, length);
    this.#parts.traffic?.countRead();
    return { bytes, state, served: 'local', ageMs: 0 };
  }

  /** The state on the disk here, for callers that know it to be the newest committed one. */
  stateHere(file: FileId): FileState {
    const { store } = this.#parts;
    return { ...this.stateOfFinal(file, store.attributes(file)), ...holesOf(store, file) };
  }

  stateOfFinal(file: FileId, attributes: FileAttributes): FileState {
    const { seq, installed } = this.#parts.store.record(file) ?? { seq: 0, installed: EPOCH_ZERO };
    return this.#stateOf(file, attributes, seq, installed);
  }

  async #reader(file: FileId): Promise<ReplicaDriver> {
    const reader = this.#parts.authorities.replica(file);
    if (reader === null) return this.#primary(file);
    await this.#untilReadable(reader.driver);
    return reader.driver;
  }

  async #primary(file: FileId): Promise<ReplicaDriver> {
    const driver = await this.#parts.replicas.primary(file);
    await this.#untilReadable(driver);
    return driver;
  }

  /**
   * Waits until this replica may answer reads: as primary with answered heartbeats of a majority (the guard), or as
   * backup with a read lease. Called before contents are pinned: without the guard a majority may have answered quorum
   * reads with newer operations, which these contents must include. The right may end, so pinning checks it once more.
   * @throws ServiceError `not-primary`, or when the time limit passes
   */
  async #untilReadable(driver: ReplicaDriver): Promise<void> {
    if (driver.readGate(0) === 'serve') return;
    await this.#parts.replicas.withinTimeout(driver.file, () =>
      driver.untilReadable(driver.status().epoch, 0),
    );
  }

  /** @param seq a committed operation: the number of an uncommitted one may be reused after a replica reset */
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

function holesOf(store: FileStore, file: FileId): Pick<FileState, 'holeBytes'> {
  const holeBytes = store.holeBytes(file) ?? 0;
  return holeBytes === 0 ? {} : { holeBytes };
}

/** To be called in the tick in which contents are pinned. @throws ServiceError `precondition-failed` */
function assertAsOf(file: FileId, attributes: FileAttributes, asOf: ContentVersion | undefined): void {
  if (asOf === undefined) return;
  if (attributes.versionEpoch === asOf.epoch && attributes.versionSeq === asOf.seq) return;
  throw new ServiceError(
    'precondition-failed',
    `The contents of file ${file} are not of version ${asOf.epoch}.${asOf.seq}`,
  );
}
