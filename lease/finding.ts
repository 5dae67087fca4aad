import type { Lease } from './lease.ts';

/** What a majority's answers say about a cell. */
export type Finding =
  /** No holder on any clock. */
  | { readonly kind: 'free' }
  /** The lease is over on this clock, but until `untilMs` perhaps not on its holder's. */
  | { readonly kind: 'grace'; readonly lease: Lease; readonly untilMs: number }
  | { readonly kind: 'held'; readonly lease: Lease };
