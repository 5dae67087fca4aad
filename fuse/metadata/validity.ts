import type { Answered, KernelCache } from '../answered.ts';
import type { FileSystemBackend } from '../backend.ts';
import type { MetadataCache } from './cache.ts';

/** How long the kernel may cache answers: a policy for each cache mode. */

type TtlPolicy = KernelCache & { readonly nameValidMs: NonNullable<KernelCache['nameValidMs']> };

export const STRICT: KernelCache = { attributesMs: 0, validMs: () => 0, nameValidMs: null, isGranted: null };

/** For `ttl`: answers are valid for a time after their request; time in this cache counts against the kernel's. */
export function ttlPolicy(cache: MetadataCache, ttlMs: number): TtlPolicy {
  return {
    attributesMs: ttlMs,
    validMs: (attributes) => cache.attributes.leftMs(attributes),
    nameValidMs: (parent, name, inode) => cache.nameValidMs(parent, name, inode),
    isGranted: null,
  };
}

/**
 * For `leases`: answers are valid until a recall, while the session lasts. No recall comes for changes by this mount: a
 * directory with pending ones, or without a grant, is cached by `delegatedAttributesMs` only, for the requests of one
 * system call, and dropped at each change.
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
