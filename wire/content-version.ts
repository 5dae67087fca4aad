import type { ContentVersion } from './catalog-api.ts';

/** Order of versions of one file's contents: by epoch, then by number in the sequence. */
export function contentVersionCompare(a: ContentVersion, b: ContentVersion): number {
  return a.epoch - b.epoch || a.seq - b.seq;
}
