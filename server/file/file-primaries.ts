import type { FileId, ServerId } from '../../base/ids.ts';
import { FIRST_COUNTER } from '../../replica/create-with-contents.ts';
import { epochCompare, type Position } from '../../replica/epoch.ts';
import type { LocksHeld } from '../../wire/lock-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileStore } from '../storage/store.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { isUnchangedSinceCreation } from './creation-operations.ts';
import { isInCatalog } from './entry-flush.ts';
import type { FileLocks } from './file-locks.ts';
import { type CatalogEntry, FilePrimary } from './file-primary.ts';
import type { FileReplicas } from './file-replicas.ts';
import { LiveMarks } from './live-marks.ts';
import type { ReplicaHost } from './replica-host.ts';

export interface FilePrimariesParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly catalog: CatalogAccess;
  readonly locks: FileLocks;
  readonly replicas: FileReplicas;
  isAt(server: ServerId, file: FileId, position: Position): Promise<boolean>;
}

/** State of each replica that orders changes here, for as long as its epoch lasts. */
export class FilePrimaries {
  readonly #parts: FilePrimariesParts;
  readonly #primaries = new WeakMap<ReplicaDriver, FilePrimary>();
  readonly #liveMarks: LiveMarks;
  #lastMarkNumber = 0;

  constructor(parts: FilePrimariesParts) {
    this.#parts = parts;
    this.#liveMarks = new LiveMarks({ ...parts, becomePrimary: (file) => parts.replicas.primary(file) });
  }

  of(driver: ReplicaDriver): FilePrimary {
    const known = this.#primaries.get(driver);
    if (known !== undefined && epochCompare(known.epoch, driver.epoch) === 0) return known;
    // In the epoch of a creation with contents no lock was granted, because it has no primary.
    const { store, clock, catalog, locks, replicas } = this.#parts;
    const isOfCreation = driver.epoch.counter === FIRST_COUNTER && !driver.isPrimary && driver.orders;
    if (isOfCreation && isUnchangedSinceCreation(driver.subject.record(), store.attributes(driver.file)))
      locks.reportUnlockedEnd(driver, driver.epoch.counter);
    const assertLocked = (under: LocksHeld): void => locks.assertHeld(driver, under);
    // Still true: only a primary ends a mark, and it orders an operation before that.
    const seen = driver.isFirstPrimary ? replicas.seenMark(driver) : undefined;
    const inCatalog: CatalogEntry = {
      markLive: (mark, growTo) => this.#liveMarks.set(primary, driver.file, mark, growTo),
      allowedBytes: seen?.allowedBytes ?? Infinity,
      changedNs: seen?.changedNs ?? null,
      appendOnly: seen?.appendOnly ?? false,
      nextMarkNumber: () => ++this.#lastMarkNumber,
      isLive: seen !== undefined,
      markedInEpoch: seen?.markedInEpoch ?? null,
      flush: () => catalog.flush(driver.file),
      epoch: () => catalog.epoch(driver.file),
      knows: (contents) => isInCatalog(store, catalog, driver.file, contents),
    };
    const primary: FilePrimary = new FilePrimary(driver, store, clock, inCatalog, assertLocked);
    this.#primaries.set(driver, primary);
    return primary;
  }

  latestOf(driver: ReplicaDriver): FilePrimary | null {
    return this.#primaries.get(driver) ?? null;
  }

  /** @returns the state of the current epoch, if changes of the file were ordered here in it; else null */
  ordering(file: FileId): FilePrimary | null {
    const driver = this.#parts.host.loaded(file);
    const primary = driver?.orders === true ? this.#primaries.get(driver) : undefined;
    return primary !== undefined && driver !== null && epochCompare(primary.epoch, driver.epoch) === 0
      ? primary
      : null;
  }
}
