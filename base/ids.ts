declare const brand: unique symbol;
type Branded<Base, Name extends string> = Base & { readonly [brand]: Name };

/** Name of a server, unique in its cluster; compared as plain text, the same everywhere. */
export type ServerId = Branded<string, 'ServerId'>;

/** A file's inode number; never reused. */
export type FileId = Branded<number, 'FileId'>;

/** A lease cell's number: its file's, or a catalog's. */
export type CellId = FileId;

/** The cell of the root catalog; no file has this number. */
export const CATALOG_CELL = 0 as CellId;

/** Numbers of files end below this; later ones are of catalogs' cells. */
export const FILE_NUMBERS_END = 2 ** 52;

export function isCatalogCell(cell: number): boolean {
  return cell === CATALOG_CELL || cell >= FILE_NUMBERS_END;
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
