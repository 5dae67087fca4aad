/**
 * Finds files that import themselves through other files: the strongly connected components of more than one file.
 * [Tarjan] "Depth-first search and linear graph algorithms", SIAM J. Comput. 1(2), 1972.
 *
 * @param imports the files that each file imports; an import that is not a key is ignored
 * @returns each circle's files sorted by name, the circles sorted by their first files
 */
export function circlesOf(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const circles: string[][] = [];
  const found = new Map<string, number>();
  /** The smallest number that can be reached from a file. */
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const visit = (file: string): number => {
    const number = found.size;
    found.set(file, number);
    lowest.set(file, number);
    open.push(file);
    for (const target of imports.get(file) ?? []) {
      if (!imports.has(target)) continue;
      const back = found.has(target)
        ? open.includes(target)
          ? (found.get(target) as number)
          : number
        : visit(target);
      lowest.set(file, Math.min(lowest.get(file) as number, back));
    }
    if (lowest.get(file) === number) {
      const circle = open.splice(open.indexOf(file));
      if (circle.length > 1) circles.push(circle.sort());
    }
    return lowest.get(file) as number;
  };
  for (const file of imports.keys()) if (!found.has(file)) visit(file);
  return circles.sort(([a = ''], [b = '']) => (a < b ? -1 : 1));
}
