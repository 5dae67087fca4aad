import type { Lease } from './lease.ts';

/** What a majority's answers say about a cell. */
export type Finding =
  /** There is no lease, or it is over on every clock. */
  | { readonly kind: 'free' }
  /** The lease is over on this clock, but until `untilMs` perhaps not on its holder's. */
  | { readonly kind: 'grace'; readonly lease: Lease; readonly untilMs: number }
  | { readonly kind: 'held'; readonly lease: Lease };
