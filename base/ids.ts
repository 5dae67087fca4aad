declare const brand: unique symbol;
type Branded<Base, Name extends string> = Base & { readonly [brand]: Name };

/** Name of a server, unique in its cluster; compared as a plain string on every server alike. */
export type ServerId = Branded<string, 'ServerId'>;

/** Number of a file (its inode number); given out by the catalog once and never again. */
export type FileId = Branded<number, 'FileId'>;

/** Number of a lease cell: the file it belongs to, or `CATALOG_CELL`. */
export type CellId = FileId;

/** The cell of the catalog itself. No file has this number. */
export const CATALOG_CELL = 0 as CellId;

/** A random number below 2^53, drawn at every process start; tells one life of a server from the next. */
export type Incarnation = Branded<number, 'Incarnation'>;

const SERVER_ID = /^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/;

/** @returns whether `text` can name a server: 1 to 32 of a-z, 0-9 and inner hyphens */
export function isServerId(text: string): text is ServerId {
  return SERVER_ID.test(text);
}

/** @returns whether `value` can number a file or the catalog cell */
export function isFileId(value: number): value is FileId {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Order of server ids: by UTF-16 code unit, the same on every machine and in every locale. */
export function serverIdCompare(a: ServerId, b: ServerId): -1 | 0 | 1 {
  return a < b ? -1 : a > b ? 1 : 0;
}
