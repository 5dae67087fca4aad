import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { AcknowledgedRequest, FileState, FlushResult } from '../../wire/http-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileStore } from '../storage/store.ts';
import type { Authorities } from './authority.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { isInCatalog } from './entry-flush.ts';
import type { FilePrimaries } from './file-primaries.ts';
import type { FilePrimary } from './file-primary.ts';
import type { FileReads } from './file-reads.ts';
import type { FileReplicas } from './file-replicas.ts';
import { isAnyLost } from './lost-changes.ts';
import type { QuorumReads } from './quorum-reads.ts';
import { SettleBatches } from './settler.ts';

/** Longest wait of a seal for connected replicas, and the period in which it compares their positions. */
const SEAL_WAIT_MS_MAX = 5_000;
const SEAL_CHECK_MS = 10;

export interface FileSettlingParts {
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: FileStore;
  readonly catalog: CatalogAccess;
  readonly quorumReads?: Pick<QuorumReads, 'flush'>;
  readonly authorities: Authorities;
  readonly replicas: FileReplicas;
  readonly primaries: FilePrimaries;
  readonly reads: FileReads;
  readonly operationTimeoutMs: number;
  isConnected(server: ServerId): boolean;
}

/** Makes acknowledged changes durable, reports them to the catalog, and seals contents for good. */
export class FileSettling {
  readonly #parts: FileSettlingParts;
  readonly #settledAtMs = new WeakMap<FilePrimary, number>();
  readonly #settler: SettleBatches;

  constructor(parts: FileSettlingParts) {
    this.#parts = parts;
    this.#settler = new SettleBatches(
      (file) => parts.catalog.catalogOf(file),
      (files) => parts.catalog.command({ kind: 'settle', files }),
    );
  }

  /** @param unsynced changes; the answer says whether all of them are in the flushed contents */
  async flush(file: FileId, unsynced: readonly AcknowledgedRequest[] = []): Promise<FlushResult> {
    const state = (await this.#flushByQuorum(file)) ?? (await this.#flushByPrimary(file));
    return isAnyLost(this.#parts.store, file, unsynced) ? { ...state, lost: true } : state;
  }

  async #flushByPrimary(file: FileId): Promise<FileState> {
    const { replicas, primaries, reads } = this.#parts;
    const driver = await replicas.primary(file);
    const primary = primaries.of(driver);
    // Contents without a directory entry would be lost, too: the first flush includes the catalog.
    await replicas.withinTimeout(file, () => Promise.all([driver.flush(), primary.flushEntry()]));
    return reads.stateAt(file, driver);
  }

  /** @returns null if the file has a primary, no majority has the position here, or a primary has to mark the file */
  async #flushByQuorum(file: FileId): Promise<FileState | null> {
    const { quorumReads, authorities, store, replicas, primaries, reads } = this.#parts;
    if (quorumReads === undefined || authorities.quorum(file) === null) return null;
    let hasDurableEntry = true;
    const flushEntry = async (): Promise<void> => {
      // The state of an epoch that orders here knows whether the directory entry is flushed.
      const primary = primaries.ordering(file);
      if (primary === null) hasDurableEntry = await this.#flushInCatalog(file);
      else await primary.flushEntry();
    };
    const state = await replicas.withinTimeout(file, () =>
      quorumReads.flush(file, flushEntry, () => reads.stateOfFinal(file, store.attributes(file))),
    );
    return hasDurableEntry ? state : null;
  }

  /** @returns whether the catalog durably knows the current contents; if not, a primary has to mark the file */
  async #flushInCatalog(file: FileId): Promise<boolean> {
    const { catalog, store } = this.#parts;
    const epoch = catalog.epoch(file);
    const { versionEpoch, versionSeq } = store.attributes(file);
    const isKnown = await isInCatalog(store, catalog, file, { epoch: versionEpoch, seq: versionSeq });
    if (isKnown) await catalog.flush(file);
    return isKnown && catalog.epoch(file) === epoch;
  }

  /** Seals a file of policy `read-only`. @see FileService.seal */
  async seal(file: FileId, expected?: ContentVersion): Promise<FileState> {
    const { authorities, replicas, primaries, reads, log } = this.#parts;
    const sealed = authorities.sealed(file);
    if (sealed !== null) return reads.stateOfFinal(file, sealed.attributes);
    const driver = await replicas.primary(file);
    const { policy = 'quorum' } = driver.view;
    if (policy !== 'read-only') {
      const why = `its policy is "${policy}", and only files of policy "read-only" are sealed`;
      throw new ServiceError('bad-request', `Cannot seal file ${file}: ${why}`);
    }
    const primary = primaries.of(driver);
    const [lastSeq] = await replicas.withinTimeout(file, () =>
      Promise.all([primary.seal(expected), primary.flushEntry()]),
    );
    await this.#waitForReplicas(driver, lastSeq);
    // After this, reads without a primary survive a loss of power, too; no request waits for it.
    driver.flush().catch((error: unknown) => {
      log.debug({ file, err: error }, 'a seal is not durable on all servers yet');
    });
    // The replica here is final by now, even if this server is no longer primary.
    return reads.state(file);
  }

  /** Waits until all reachable members have operation `seq`, at most for the wait of a seal. */
  async #waitForReplicas(driver: ReplicaDriver, seq: number): Promise<void> {
    const { clock, operationTimeoutMs, isConnected, world } = this.#parts;
    const untilMs = clock.nowMs() + Math.min(SEAL_WAIT_MS_MAX, operationTimeoutMs / 2);
    const isMissing = (): boolean =>
      driver
        .peers(isConnected)
        .some((peer) => peer.role !== 'learner' && peer.state !== 'unreachable' && peer.seq < seq);
    while (driver.isPrimary && isMissing() && clock.nowMs() < untilMs) await world.sleep(SEAL_CHECK_MS);
  }

  async settle(file: FileId): Promise<FileState> {
    const { replicas } = this.#parts;
    const orderer = await replicas.ordererIfAny(file);
    return this.#settleBy(orderer?.driver ?? (await replicas.primary(file)));
  }

  /** Settles the file before its replica is released, if the catalog may not know all changes ordered here. */
  async settleBeforeRelease(driver: ReplicaDriver): Promise<void> {
    const { primaries } = this.#parts;
    if (primaries.latestOf(driver)?.unsettled === false) return;
    if (driver.isPrimary || primaries.ordering(driver.file) !== null) await this.#settleBy(driver);
  }

  async #settleBy(driver: ReplicaDriver): Promise<FileState> {
    const { replicas, primaries, reads, store, clock } = this.#parts;
    const { file } = driver;
    const primary = primaries.of(driver);
    let state: FileState | null = null;
    // Before changes have to wait: counting the objects of a large file takes long.
    if (store.holeBytes(file) === null) await store.whenHolesCounted(file);
    await replicas.withinTimeout(file, () =>
      primary.settle(async (mark) => {
        // Without a lease there may be another primary: it has marked the file again before it answered a change.
        state = driver.isPrimary ? await reads.stateAt(file, driver) : reads.stateHere(file);
        // Writes of a later epoch are acknowledged without waiting for this settling: it would hide them.
        if (state.epoch !== primary.epoch.counter) {
          throw new ServiceError('not-primary', `The primary of file ${file} has changed: retry`);
        }
        await this.#settler.settle(state, mark);
      }),
    );
    this.#settledAtMs.set(primary, clock.nowMs());
    return state ?? reads.state(file);
  }

  /** Whether the file is settled, and no request came for it since. */
  isSettledAndUnused(driver: ReplicaDriver): boolean {
    const primary = this.#parts.primaries.latestOf(driver);
    if (primary === null || primary.unsettled) return false;
    return driver.usedAtMs <= (this.#settledAtMs.get(primary) ?? -Infinity);
  }
}
