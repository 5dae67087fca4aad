import type { Answered, KernelCache } from '../answered.ts';
import type { FileSystemBackend } from '../backend.ts';
import type { MetadataCache } from './cache.ts';

/** The cache modes of a mount, as policies over the validity of answers: how long the kernel may cache each. */

type TtlPolicy = KernelCache & { readonly nameValidMs: NonNullable<KernelCache['nameValidMs']> };

/** Nothing is cached. */
export const STRICT: KernelCache = { attributesMs: 0, validMs: () => 0, nameValidMs: null, isGranted: null };

/** Answers are valid for a time after their request; what is cached here for a while, the kernel caches for the rest of it. */
export function ttlPolicy(cache: MetadataCache, ttlMs: number): TtlPolicy {
  return {
    attributesMs: ttlMs,
    validMs: (attributes) => cache.attributes.leftMs(attributes),
    nameValidMs: (parent, name, inode) => cache.entryLeftMs(parent, name, inode),
    isGranted: null,
  };
}

/**
 * Answers are valid until a recall, as long as the session lasts.
 *
 * @param grantedMs how long attributes are valid without a recall
 * @param backend knows how long names are valid without a recall, and which directories this mount is about to change: no recall comes for that.
 *   Those that only this mount changes the kernel caches for the few requests of one system call, and drops at each change
 */
export function leasesPolicy(
  grantedMs: (attributes: Answered) => number,
  backend: Pick<FileSystemBackend, 'isChanging' | 'nameGrantedMs' | 'isGranted' | 'delegatedAttributesMs'>,
): KernelCache {
  return {
    attributesMs: 0,
    validMs(attributes) {
      const forMs = backend.isChanging(attributes.inode) ? 0 : grantedMs(attributes);
      return forMs > 0 || attributes.kind !== 'directory' ? forMs : backend.delegatedAttributesMs(attributes);
    },
    nameValidMs: (parent, name, inode) => backend.nameGrantedMs(parent, name, inode),
    isGranted: (directory) => backend.isGranted(directory),
  };
}
