import { CATALOG_CELL, type CellId } from '../../base/ids.ts';
import type { CatalogTarget } from './catalog-target.ts';
import type { CatalogService, Catalogs, ServedCatalog } from './service-interfaces.ts';

/** One catalog, the root catalog, has all volumes. */
export class SingleCatalog implements Catalogs {
  readonly root: CatalogService;

  constructor(root: CatalogService) {
    this.root = root;
  }

  at(cell: CellId): CatalogService | null {
    return cell === CATALOG_CELL ? this.root : null;
  }

  serving(_target: CatalogTarget): ServedCatalog {
    return { cell: CATALOG_CELL, service: this.root };
  }
}
