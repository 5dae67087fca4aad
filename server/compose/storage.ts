import { type CatalogDisk, openCatalogAtStart } from '../catalog/catalog-seat.ts';
import { DepartedFiles } from '../file/departed-files.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import { DiskStore, type Mender } from '../storage/disk-store.ts';
import { diskFileOps, syncsTimed } from '../storage/file-ops.ts';
import { LocalProof } from '../storage/local-proof.ts';
import type { Base } from './base.ts';

/** What this server has on its disk. */
export interface StorageParts {
  readonly store: DiskStore;
  readonly departed: DepartedFiles;
  readonly catalogDisk: CatalogDisk;
  /** As the start has opened it; null where there is none. */
  readonly catalogStore: CatalogStore | null;
  /** Null where the disk does not take it: then no process on this machine reads it. */
  readonly localProof: LocalProof | null;
  /** Why the disk is not used any more; null while it is. */
  failure(): string | null;
  /** Calls back once where the disk fails, or has failed: with the reason why it is not used any more. */
  whenFailed(failed: (reason: string) => void): void;
}

/**
 * Opens what is on the disk.
 *
 * @param mend called once all parts of the server are there
 * @throws FolderError where the data folder is damaged, or the disk is full
 */
export async function openStorage(base: Base, mend: Mender): Promise<StorageParts> {
  const { self, bootstrap, known, world, folder, log, metrics, config } = base;
  let failure: string | null = null;
  let report = (_reason: string): void => undefined;
  const failed = (reason: string): void => {
    if (failure !== null) return;
    failure = reason;
    report(reason);
  };
  const syncs = metrics.durations(
    'leasehold_sync_duration_seconds',
    'Until the disk had what was written, by database',
    ['of'],
  );
  const departed = await DepartedFiles.open(folder.file('departed'));
  const store = await DiskStore.open(folder, {
    failed,
    mender: mend,
    fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'files' })),
    directWrites: {
      mode: config.directWrites,
      refused: (reason) =>
        log.info(
          { reason },
          'large files are written through the page cache: the file system refuses to be written past it',
        ),
    },
  });
  metrics.observe(
    'counter',
    'leasehold_direct_bytes_total',
    'Bytes of contents that were written past the page cache',
    () => store.directBytes,
  );
  const catalogDisk: CatalogDisk = {
    ...{ self, members: bootstrap.catalogMembers, world, folder },
    heardOf: () => known.catalogView,
    fileOps: syncsTimed(diskFileOps, () => syncs.begin({ of: 'catalog' })),
    diskFailed: failed,
  };
  const catalogStore = await openCatalogAtStart(catalogDisk);
  // Not before: where the catalog is damaged, the next start has to find that, too.
  folder.recovered();
  return {
    store,
    departed,
    catalogDisk,
    catalogStore,
    localProof: localProofOf(base),
    failure: () => failure,
    whenFailed: (to) => {
      report = to;
      if (failure !== null) report(failure);
    },
  };
}

function localProofOf({ folder, log }: Base): LocalProof | null {
  try {
    return LocalProof.make(folder.world, folder.path);
  } catch (error) {
    log.warn({ err: error }, 'mounts on this machine have all contents sent to them');
    return null;
  }
}
