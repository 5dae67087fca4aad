import { CATALOG_CELL, type CatalogNumber } from '../../base/ids.ts';
import { type CatalogDisk, openCatalogAtStart } from '../catalog/catalog-disk.ts';
import { diskOfVolume, openVolumeCatalogsAtStart } from '../catalog/volume-catalogs.ts';
import { DepartedFiles } from '../file/departed-files.ts';
import { CATALOGS_FILE, KnownCatalogs } from '../membership/known-catalogs.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import { damageIn } from '../storage/database-check.ts';
import { DiskStore, type ObjectRepair } from '../storage/disk-store.ts';
import { diskFileOps, withTimedSyncs } from '../storage/file-ops.ts';
import { LocalProof } from '../storage/local-proof.ts';
import type { Base } from './base.ts';

export interface StorageParts {
  readonly store: DiskStore;
  readonly departed: DepartedFiles;
  readonly catalogDisk: CatalogDisk;
  /** As opened at the start; null if there is none. */
  readonly catalogStore: CatalogStore | null;
  readonly knownCatalogs: KnownCatalogs;
  diskOfVolume(number: CatalogNumber): CatalogDisk;
  /** Replicas of volumes' catalogs, as opened at the start. */
  readonly volumeStores: ReadonlyMap<CatalogNumber, CatalogStore>;
  /** Null if it cannot be written to this disk: then no client on this machine reads the disk directly. */
  readonly localProof: LocalProof | null;
  /** Why the disk is no longer used; null while it is. */
  failure(): string | null;
  whenFailed(failed: (reason: string) => void): void;
}

/** Opens the stores. @param mend called after the start, for damaged objects @throws FolderError if damaged or full */
export async function openStorage(base: Base, mend: ObjectRepair): Promise<StorageParts> {
  const { self, bootstrap, known, world, folder, log, metrics, config, machine } = base;
  let failure: string | null = null;
  let report = (_reason: string): void => undefined;
  const failed = (reason: string): void => {
    if (failure !== null) return;
    failure = reason;
    report(reason);
  };
  const syncs = metrics.durations('leasehold_sync_duration_seconds', 'Duration of fsync, by database', [
    'of',
  ]);
  const departed = await DepartedFiles.open(folder.file('departed'));
  const store = await DiskStore.open(folder, {
    failed,
    objectRepair: mend,
    fileOps: withTimedSyncs(diskFileOps, () => syncs.begin({ of: 'files' })),
    directWrites: {
      mode: config.directWrites,
      refused: (reason) =>
        log.info(
          { reason },
          'large files are written through the page cache: the file system supports no direct I/O',
        ),
    },
  });
  metrics.observe(
    'counter',
    'leasehold_direct_bytes_total',
    'Bytes of contents written with direct I/O',
    () => store.directBytes,
  );
  const catalogDisk: CatalogDisk = {
    ...{ cell: CATALOG_CELL, self, world, folder },
    knownView: () => known.catalogView,
    viewOfNew: () =>
      known.catalogView.members.includes(self)
        ? known.catalogView
        : { number: 1, members: bootstrap.catalogMembers },
    // An earlier disk of this server may have had one.
    trustOfNew: () => 'lost',
    fileOps: withTimedSyncs(diskFileOps, () => syncs.begin({ of: 'catalog' })),
    diskFailed: failed,
    logBytesMax: config.catalogLogBytesMax,
    checkDatabase: machine.checkDatabase ?? (async (file) => damageIn(file)),
  };
  const catalogStore = await openCatalogAtStart(catalogDisk);
  const file = folder.file(CATALOGS_FILE);
  const knownCatalogs = new KnownCatalogs({ file, storageId: folder.storageId, world, log });
  const volumeDisk = (number: CatalogNumber) => diskOfVolume(catalogDisk, knownCatalogs, number);
  const volumeStores = await openVolumeCatalogsAtStart(
    { folder, rows: knownCatalogs, log, rebuild: config.rebuild },
    volumeDisk,
  );
  // Not earlier: if a catalog is damaged, the next start must find that, too.
  folder.markRecovered();
  return {
    store,
    departed,
    catalogDisk,
    catalogStore,
    knownCatalogs,
    diskOfVolume: volumeDisk,
    volumeStores,
    localProof: localProofOf(base),
    failure: () => failure,
    whenFailed: (failed) => {
      report = failed;
      if (failure !== null) report(failure);
    },
  };
}

function localProofOf({ folder, log }: Base): LocalProof | null {
  try {
    return LocalProof.create(folder.world, folder.path);
  } catch (error) {
    log.warn(
      { err: error },
      'short-circuit reads are disabled: mounts on this machine read over the network',
    );
    return null;
  }
}
