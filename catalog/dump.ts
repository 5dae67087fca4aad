import { type CatalogDatabase, TABLE_KEYS } from './schema.ts';

/** The catalog as text, one line per row. Equal catalogs give equal lines, even if their database files differ. */
export function* dumpCatalog(db: CatalogDatabase): Generator<string> {
  for (const [table, key] of Object.entries(TABLE_KEYS)) {
    // BigInt, because rounding a time would hide a difference.
    const rows = db.prepare(`SELECT * FROM ${table} ORDER BY ${key}`).safeIntegers(true).raw(true).iterate();
    for (const row of rows) yield `${table} ${(row as unknown[]).map(field).join(' ')}`;
  }
}

function field(value: unknown): string {
  if (value instanceof Uint8Array) return `x${Buffer.from(value).toString('hex')}`;
  if (typeof value === 'string') return JSON.stringify(value);
  return String(value);
}
