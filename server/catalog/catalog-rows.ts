import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';

/** The catalog of a volume, as the root catalog lists it. */
export interface CatalogRow extends Omit<ListedCatalog, 'number' | 'members'> {
  readonly number: CatalogNumber;
  readonly members: readonly ServerId[];
}

export interface MembersView {
  readonly number: number;
  readonly members: readonly ServerId[];
}

/**
 * What this server knows of volumes' catalogs; versions of the list ascend, also over restarts. A row that has not
 * changed is the same object as before.
 */
export interface CatalogRows {
  readonly list: { readonly catalogs: readonly CatalogRow[] };
  /** Earlier disks of this server may have had replicas of catalogs that were made up to this version. */
  readonly bornVersion: number | null;
  byNumber(number: CatalogNumber): CatalogRow | null;
  /** The newest known view. */
  viewOf(number: CatalogNumber): MembersView | null;
  onChange(listener: () => void): () => void;
}
