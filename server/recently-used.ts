import { LRUCache } from 'lru-cache';

/**
 * The entries that were used last. Told their number as `max`, the library takes the memory for all of them at once: for those of a server
 * 8 MB, and a twentieth of what its start costs the processor. Told a size, it takes what there is to keep.
 *
 * @param countMax the one that was not used for the longest time goes when there are more
 */
export function recentlyUsed<Key extends string | number, Value extends NonNullable<unknown>>(
  countMax: number,
): LRUCache<Key, Value> {
  return new LRUCache({ maxSize: countMax, sizeCalculation: () => 1 });
}
