import { createHash } from 'node:crypto';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { CommandOf, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import { EXPORT_END, EXPORT_START, EXPORTED_TABLES, type ExportedTable } from '../../wire/volume-moves.ts';

type ReadPage = (after: string) => Promise<QueryResults['volume-export']>;

export interface VolumeImportParts {
  readonly number: number;
  readonly world: Pick<World, 'nextTick'>;
  /** Rows of the frozen volume, from the root catalog. */
  readonly exported: ReadPage;
  imported(command: CommandOf<'catalog-import'>): Promise<CommandResults['catalog-import']>;
  /** Rows of the volume as its own catalog has stored them. */
  readonly stored: ReadPage;
  /** Whether this server is still the primary of the catalog that imports. */
  isPrimary(): boolean;
}

/** Of all volumes: requests for others change these at the root catalog during the move. */
const CHANGING: ReadonlySet<ExportedTable> = new Set(['timed_sessions', 'requests', 'retention_clock']);
export const COMPARED_TABLES = EXPORTED_TABLES.filter((table) => !CHANGING.has(table));

/**
 * Copies the rows of a volume from the root catalog to its own, from `start` on, and compares all of them. The catalog
 * says after each page how far it is: another primary may have imported pages, or a loss of power may have taken some.
 * @returns whether all are imported
 * @throws ServiceError `integrity` if the copy differs
 */
export async function importVolume(parts: VolumeImportParts, start: string): Promise<boolean> {
  const { number } = parts;
  let after = start;
  while (after !== EXPORT_END && parts.isPrimary()) {
    const { tables, next } = await parts.exported(after);
    const page = { after, next, tables: [...tables] };
    after = (await parts.imported({ kind: 'catalog-import', number, ...page })).position;
  }
  if (after !== EXPORT_END) return false;
  await assertEqualCopy(parts);
  return true;
}

async function assertEqualCopy(parts: VolumeImportParts): Promise<void> {
  const [copy, root] = await Promise.all([
    tableDigests(parts, parts.stored),
    tableDigests(parts, parts.exported),
  ]);
  const table = COMPARED_TABLES.find((one) => copy.get(one) !== root.get(one));
  if (table === undefined) return;
  throw new ServiceError(
    'integrity',
    `The copy of table "${table}" in catalog ${parts.number} has ${copy.get(table)}, and the root catalog ` +
      `${root.get(table)}: the move must be ended`,
  );
}

/** Reads all pages. @returns of each table the number of its rows, and a digest of them in the order of their keys */
async function tableDigests(
  { world, isPrimary }: VolumeImportParts,
  read: ReadPage,
): Promise<ReadonlyMap<ExportedTable, string>> {
  const sums = new Map(COMPARED_TABLES.map((table) => [table, { rows: 0, hash: createHash('sha256') }]));
  for (let after: string = EXPORT_START; after !== EXPORT_END; ) {
    await world.nextTick();
    if (!isPrimary())
      throw new ServiceError('not-primary', 'The primary of the catalog changed while a copy was compared');
    const { tables, next } = await read(after);
    for (const { table, rows } of tables) {
      const sum = sums.get(table);
      if (sum === undefined) continue;
      sum.rows += rows.length;
      for (const row of rows) sum.hash.update(`${JSON.stringify(row)}\n`);
    }
    after = next;
  }
  return new Map(
    [...sums].map(([table, { rows, hash }]) => [table, `${rows} rows ${hash.digest('base64')}`]),
  );
}
