import type { ContentVersion } from './catalog-api.ts';

/** Order of a file's content versions: epoch, then sequence number. */
export function contentVersionCompare(a: ContentVersion, b: ContentVersion): number {
  return a.epoch - b.epoch || a.seq - b.seq;
}
