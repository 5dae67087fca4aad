import type { Answered, KernelCache } from '../answered.ts';
import type { MetadataCache } from './cache.ts';

/** The cache modes of a mount, as policies over the validity of answers: how long the kernel may cache each. */

type TtlPolicy = KernelCache & { readonly nameValidMs: NonNullable<KernelCache['nameValidMs']> };

/** Nothing is cached. */
export const STRICT: KernelCache = { attributesMs: 0, validMs: () => 0, nameValidMs: null };

/** Answers are valid for a time after their request; what is cached here for a while, the kernel caches for the rest of it. */
export function ttlPolicy(cache: MetadataCache, ttlMs: number): TtlPolicy {
  return {
    attributesMs: ttlMs,
    validMs: (attributes) => cache.attributes.leftMs(attributes),
    nameValidMs: (parent, name, inode) => cache.entryLeftMs(parent, name, inode),
  };
}

/**
 * Answers are valid until a recall, as long as the session lasts. The kernel caches no names.
 *
 * @param grantedMs how long attributes are valid without a recall
 * @param isChanging whether this mount is about to change the directory: no recall comes for that
 */
export function leasesPolicy(
  grantedMs: (attributes: Answered) => number,
  isChanging: (directory: number) => boolean,
): KernelCache {
  return {
    attributesMs: 0,
    validMs: (attributes) => (isChanging(attributes.inode) ? 0 : grantedMs(attributes)),
    nameValidMs: null,
  };
}
