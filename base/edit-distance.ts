/** Edit distance of two words, with swapped neighbours as one edit [Damerau 1964, "optimal string alignment"]. */
export function editDistance(a: string, b: string): number {
  let previousRow: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwapped ? (previousRow[j - 2] ?? Infinity) + 1 : Infinity;
      next.push(Math.min(replaced, swapped, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    [previousRow, row] = [row, next];
  }
  return row.at(-1) as number;
}
