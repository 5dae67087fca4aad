import type { Tables } from './tables.ts';

/**
 * Rows of a list by number, without those of volumes that have moved to other catalogs, whose rows are not deleted yet.
 * @param page reads rows after a number, ascending; fewer than requested if there are no more
 */
export function presentRows<Row extends { readonly id: number }>(
  { moves }: Tables,
  after: number,
  countMax: number,
  page: (after: number, countMax: number) => readonly Row[],
): readonly Row[] {
  if (moves.moved().length === 0) return page(after, countMax);
  const found: Row[] = [];
  for (let from = after; found.length < countMax; ) {
    const requested = countMax - found.length;
    const rows = page(from, requested);
    for (const row of rows) {
      if (row.id <= from) continue;
      const movedThrough = moves.lastMovedAround(row.id);
      if (movedThrough === null) found.push(row);
      from = movedThrough ?? row.id;
    }
    if (rows.length < requested) break;
  }
  return found;
}
