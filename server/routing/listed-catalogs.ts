import {
  type CatalogNumber,
  type CellId,
  catalogOfCell,
  isCatalogCell,
  ROOT_CATALOG,
} from '../../base/ids.ts';
import type { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { doesServe, type ListedCatalog } from '../../wire/volume-catalogs.ts';
import type { CatalogService, Catalogs } from './service-interfaces.ts';

interface Listed {
  readonly number: CatalogNumber;
}

export interface ListedCatalogsParts {
  readonly root: CatalogService;
  /** What this server knows of volumes' catalogs. */
  readonly rows: {
    readonly list: { readonly catalogs: readonly (ListedCatalog & Listed)[] };
    readonly inodeCatalogs: InodeCatalogs;
    byNumber(number: CatalogNumber): ListedCatalog | null;
    /** Null for a name that is unknown here. */
    byName(name: string): Listed | null;
    onChange(listener: () => void): () => void;
  };
  /** This server's part of a volume's catalog; null for one that is unknown here, or removed. */
  at(number: CatalogNumber): CatalogService | null;
  refresh(): Promise<void>;
}

/** The root catalog, and those of volumes that this server knows. What it does not know goes to the root catalog. */
export class ListedCatalogs implements Catalogs {
  readonly root: CatalogService;
  readonly #parts: ListedCatalogsParts;

  constructor(parts: ListedCatalogsParts) {
    this.root = parts.root;
    this.#parts = parts;
  }

  at(cell: CellId): CatalogService | null {
    if (!isCatalogCell(cell)) return null;
    const number = catalogOfCell(cell);
    return number === ROOT_CATALOG ? this.root : this.#parts.at(number);
  }

  numbers(): readonly CatalogNumber[] {
    const serving = this.#parts.rows.list.catalogs.filter(doesServe);
    return [ROOT_CATALOG, ...serving.map(({ number }) => number)];
  }

  ofVolume(name: string): CatalogNumber {
    return this.#parts.rows.byName(name)?.number ?? ROOT_CATALOG;
  }

  get inodeCatalogs(): InodeCatalogs {
    return this.#parts.rows.inodeCatalogs;
  }

  ofInode(inode: number): CatalogNumber {
    return this.inodeCatalogs.catalogOf(inode);
  }

  refresh(): Promise<void> {
    return this.#parts.refresh();
  }

  listed(): readonly ListedCatalog[] {
    return this.#parts.rows.list.catalogs;
  }

  row(number: CatalogNumber): ListedCatalog | null {
    return this.#parts.rows.byNumber(number);
  }

  onListChange(listener: () => void): () => void {
    return this.#parts.rows.onChange(listener);
  }
}
