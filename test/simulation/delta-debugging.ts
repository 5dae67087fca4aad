/**
 * Zeller's delta debugging: removes ever smaller pieces of a list, until no single item can be removed. The caller
 * tries each yielded list, and passes back whether it still fails.
 *
 * @returns the shortest list that failed
 */
export function* shorterLists<Item>(
  whole: readonly Item[],
  order: 'first-first' | 'last-first',
): Generator<readonly Item[], readonly Item[], boolean> {
  let items = whole;
  let size = Math.ceil(items.length / 2);
  while (size >= 1) {
    let dropped = false;
    let at = order === 'first-first' ? 0 : items.length;
    while (order === 'first-first' ? at < items.length : at > 0) {
      const from = order === 'first-first' ? at : Math.max(0, at - size);
      const end = order === 'first-first' ? at + size : at;
      const shorter = [...items.slice(0, from), ...items.slice(end)];
      if (yield shorter) {
        items = shorter;
        dropped = true;
        if (order === 'last-first') at -= size;
      } else at += order === 'first-first' ? size : -size;
    }
    if (size > 1) size = Math.ceil(size / 2);
    else if (!dropped) break;
  }
  return items;
}
