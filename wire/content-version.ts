import type { ContentVersion } from './catalog-api.ts';

export function contentVersionCompare(a: ContentVersion, b: ContentVersion): number {
  return a.epoch - b.epoch || a.seq - b.seq;
}
