declare const brand: unique symbol;
type Branded<Base, Name extends string> = Base & { readonly [brand]: Name };

/** Name of a server, unique in its cluster; compared as plain text, the same everywhere. */
export type ServerId = Branded<string, 'ServerId'>;

/** A file's inode number; never reused. */
export type FileId = Branded<number, 'FileId'>;

/** A lease cell's number: its file's, or a catalog's. */
export type CellId = FileId;

/** A catalog's number: 0 is the root catalog, later ones are those of volumes. Never reused. */
export type CatalogNumber = Branded<number, 'CatalogNumber'>;

export const ROOT_CATALOG = 0 as CatalogNumber;

/** The cell of the root catalog; no file has this number. */
export const CATALOG_CELL = 0 as CellId;

/** Numbers of files end below this; later ones are of catalogs' cells. */
export const FILE_NUMBERS_END = 2 ** 52;

/** The root catalog's numbers of files end below this; each later catalog has a range of its own. */
export const ROOT_NUMBERS_END = 2 ** 51;

const NUMBERS_PER_CATALOG = 2 ** 36;

/** Numbers of catalogs end below this. */
export const CATALOGS_END = (FILE_NUMBERS_END - ROOT_NUMBERS_END) / NUMBERS_PER_CATALOG;

export function isCatalogNumber(value: unknown): value is CatalogNumber {
  return Number.isSafeInteger(value) && (value as number) >= ROOT_CATALOG && (value as number) < CATALOGS_END;
}

export function isCatalogCell(cell: number): boolean {
  return cell === CATALOG_CELL || isVolumeCatalogCell(cell);
}

export function isVolumeCatalogCell(cell: number): boolean {
  return cell >= FILE_NUMBERS_END;
}

export function catalogCell(catalog: CatalogNumber): CellId {
  return (catalog === ROOT_CATALOG ? CATALOG_CELL : FILE_NUMBERS_END + catalog) as CellId;
}

/** @param cell of a catalog */
export function catalogOfCell(cell: CellId): CatalogNumber {
  return (cell === CATALOG_CELL ? ROOT_CATALOG : cell - FILE_NUMBERS_END) as CatalogNumber;
}

/** The catalog that gave out an inode's number. It has the inode, unless its volume moved (`InodeCatalogs`). */
export function catalogOfInode(inode: number): CatalogNumber {
  if (inode < ROOT_NUMBERS_END) return ROOT_CATALOG;
  return Math.floor((inode - ROOT_NUMBERS_END) / NUMBERS_PER_CATALOG) as CatalogNumber;
}

/** The numbers that a catalog gives to its inodes: from `first` to before `end`. */
export function inodesOf(catalog: CatalogNumber): { readonly first: FileId; readonly end: FileId } {
  if (catalog === ROOT_CATALOG) return { first: 1 as FileId, end: ROOT_NUMBERS_END as FileId };
  const first = ROOT_NUMBERS_END + catalog * NUMBERS_PER_CATALOG;
  return { first: first as FileId, end: (first + NUMBERS_PER_CATALOG) as FileId };
}

/** A random number below 2^53, drawn at each process start; distinguishes the processes of a server. */
export type Incarnation = Branded<number, 'Incarnation'>;

const SERVER_ID = /^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/;

/** @returns whether `text` can be a server's name: 1 to 32 of a-z, 0-9 and inner hyphens */
export function isServerId(text: string): text is ServerId {
  return SERVER_ID.test(text);
}

export function isFileId(value: number): value is FileId {
  return Number.isSafeInteger(value) && value >= 0;
}

/** By UTF-16 code unit, the same on every machine and in every locale. */
export function serverIdCompare(a: ServerId, b: ServerId): -1 | 0 | 1 {
  return a < b ? -1 : a > b ? 1 : 0;
}
