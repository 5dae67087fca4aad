import type { CatalogNumber, FileId } from '../../base/ids.ts';
import type { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { FileStore } from '../storage/store.ts';

/** Replicas that are listed in one tick. */
export const FILES_LISTED = 250;

export interface CatalogFiles {
  /** Ascending; may be empty although there are more behind `next`. */
  readonly files: readonly FileId[];
  /** Position of the next page; null if there are no more. */
  readonly next: FileId | null;
}

/** A page of the replicas here of the catalog's files, from behind `after` on: what one list of the store has. */
export function filesOfCatalog(
  store: Pick<FileStore, 'list'>,
  inodes: InodeCatalogs,
  catalog: CatalogNumber,
  after: FileId,
): CatalogFiles {
  const from = inodes.nextOf(catalog, after + 1);
  const listed = from === null ? [] : store.list((from - 1) as FileId, FILES_LISTED);
  return {
    files: listed.filter((file) => inodes.catalogOf(file) === catalog),
    next: listed.at(-1) ?? null,
  };
}
