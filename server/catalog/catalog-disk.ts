import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import {
  CATALOG_CELL,
  type CatalogNumber,
  type CellId,
  catalogOfCell,
  FILE_NUMBERS_END,
  isCatalogCell,
  type ServerId,
} from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import { CatalogStore } from '../storage/catalog-store.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import type { FileOps } from '../storage/file-ops.ts';
import type { NewTrust } from '../storage/store.ts';

const DATABASE = 'catalog.db';
/** Catalogs of volumes have a folder each, named by their cells; the root catalog is at the top of the data folder. */
export const CATALOGS = 'catalogs';

export interface CatalogDisk {
  readonly cell: CellId;
  readonly self: ServerId;
  readonly world: World;
  readonly folder: DataFolder;
  readonly fileOps: FileOps;
  /** The newest view that this server knows without its replica. */
  knownView(): { readonly number: number; readonly members: readonly ServerId[] };
  /** The view of a replica that is created here. */
  viewOfNew(): View;
  /** The trust of a replica that is created here. */
  trustOfNew(): NewTrust;
  diskFailed(reason: string): void;
  /** Bound of the log of recent operations. */
  readonly logBytesMax: number;
  /** Reads a whole copy of the catalog. @returns the first damage, or null */
  checkDatabase(file: string): Promise<string | null>;
}

/**
 * Opens the replica on the disk here, or creates an empty one if this server is a member: it does not count until it is
 * caught up if the member has lost its disk. @returns null if there is none
 */
export async function openCatalogAtStart(disk: CatalogDisk): Promise<CatalogStore | null> {
  const { self, folder } = disk;
  const isMember = disk.viewOfNew().members.includes(self);
  return isMember || existsSync(folder.file(databaseOf(disk))) ? openCatalog(disk) : null;
}

/** The names of the folder of a volume's catalog, below the data folder. */
export function folderOfCatalog(cell: CellId): readonly [string, string] {
  return [CATALOGS, String(cell)];
}

/** The catalogs of volumes that have a folder here. */
export function catalogsIn(folder: DataFolder): CatalogNumber[] {
  const parent = folder.file(CATALOGS);
  if (!existsSync(parent)) return [];
  const cells = readdirSync(parent)
    .filter((name) => /^\d+$/.test(name))
    .map(Number) as CellId[];
  return cells.filter((cell) => cell > FILE_NUMBERS_END && isCatalogCell(cell)).map(catalogOfCell);
}

/** Whether replicas of volumes' catalogs may have been on this disk, although it has no list of them. */
export function mayHaveHadCatalogs(
  folder: DataFolder,
  { isRecordLost }: { readonly isRecordLost: boolean },
): boolean {
  return isRecordLost || folder.hasHadCatalogs || catalogsIn(folder).length > 0;
}

/** The folders that lead from the data folder to the catalog's. */
function foldersOf({ cell }: CatalogDisk): readonly string[] {
  return cell === CATALOG_CELL ? [] : folderOfCatalog(cell);
}

/** The path of the database in the data folder. */
function databaseOf(disk: CatalogDisk): string {
  return path.join(...foldersOf(disk), DATABASE);
}

export function openCatalog(disk: CatalogDisk): Promise<CatalogStore> {
  const { world, folder, fileOps } = disk;
  return CatalogStore.open({
    world,
    folder: folder.createFolder(...foldersOf(disk)),
    catalog: catalogOfCell(disk.cell),
    view: disk.viewOfNew(),
    trustOfNew: disk.trustOfNew(),
    startCounter: folder.startCounter,
    powerLossStart: folder.powerLossStart,
    mark: folder.mark(databaseOf(disk)),
    thorough: folder.readsWhole,
    failed: (reason) => disk.diskFailed(reason),
    fileOps,
    logBounds: { bytesMax: disk.logBytesMax },
    checkDatabase: (file) => disk.checkDatabase(file),
  });
}
