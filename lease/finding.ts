import type { Lease } from './lease.ts';

/** What a majority's answers say of a cell. */
export type Finding =
  /** Nobody holds it, on any clock. */
  | { readonly kind: 'free' }
  /** Its lease is over here but perhaps not at its holder, until then. */
  | { readonly kind: 'grace'; readonly lease: Lease; readonly untilMs: number }
  | { readonly kind: 'held'; readonly lease: Lease };
