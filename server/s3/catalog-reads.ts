import { ServiceError } from '../../base/errors.ts';
import type { Attributes, QueryResults } from '../../wire/catalog-api.ts';
import type { Gateway } from '../routing/gateway.ts';

/** Entries of one query. */
const PAGE_MAX = 1_000;

export type Entry = QueryResults['list']['entries'][number];

export interface EntriesWanted {
  /** Files that are being written have what their primaries know. */
  readonly live?: true;
  /** Each entry comes with its extended attribute of this name. */
  readonly xattr?: string;
  readonly after?: string;
  /** How many entries the caller will take, about. */
  readonly countMax?: number;
}

/** The entries of a directory in the order of their names, read page by page. */
export async function* entriesOf(
  gateway: Pick<Gateway, 'query' | 'queryCatalog'>,
  { inode }: Pick<Attributes, 'inode'>,
  { live, xattr, after = '', countMax = PAGE_MAX }: EntriesWanted = {},
): AsyncGenerator<Entry> {
  const wanted = { countMax: Math.min(PAGE_MAX, countMax), ...(xattr === undefined ? {} : { xattr }) };
  for (let last = after; ; ) {
    const query = { kind: 'list', inode, after: last, ...wanted } as const;
    const page = await (live ? gateway.query(query) : gateway.queryCatalog(query));
    yield* page.entries;
    const end = page.entries.at(-1)?.name;
    if (!page.more || end === undefined) return;
    last = end;
  }
}

/** An extended attribute, in base64; undefined if there is none, or no such inode any more. */
export async function xattrOf(
  gateway: Pick<Gateway, 'queryCatalog'>,
  { inode, xattrs }: Pick<Attributes, 'inode' | 'xattrs'>,
  name: string,
): Promise<string | undefined> {
  if (xattrs === 0) return undefined;
  try {
    return (await gateway.queryCatalog({ kind: 'xattr', inode, name })).value;
  } catch (error) {
    if (error instanceof ServiceError && (error.code === 'no-attribute' || error.code === 'not-found'))
      return undefined;
    throw error;
  }
}
