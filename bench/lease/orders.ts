import type { LeaseAlgorithm } from '../../lease/parameters.ts';

/**
 * Orders of the benchmark to one lease server. Each is answered by one report, of the kind that its comment names.
 */
export type Order =
  /** → `acquired`: acquires `count` new leases at once, of cells `first`, `first` + 1, … */
  | {
      readonly kind: 'acquire';
      readonly first: number;
      readonly count: number;
      /** The number of servers that vote on each cell, including this one. */
      readonly groupSize: number;
    }
  /** → `singles`: acquires new leases of groups of all servers, one after the other. */
  | { readonly kind: 'singles'; readonly first: number; readonly count: number }
  /** → `returned`: releases all leases that it holds. */
  | { readonly kind: 'return' }
  /** → `usage` */
  | { readonly kind: 'usage' };

export type LeaseReport =
  | { readonly kind: 'ready' }
  /** By the clock that all processes of a machine share. */
  | { readonly kind: 'acquired'; readonly begunMs: number; readonly endedMs: number }
  | { readonly kind: 'singles'; readonly latenciesMs: readonly number[] }
  | { readonly kind: 'returned' }
  | {
      readonly kind: 'usage';
      /** CPU used since the start of the process, in all threads. */
      readonly cpuMs: number;
      readonly atMs: number;
      readonly held: number;
      /** Cells that it remembers, its own and others'. */
      readonly cells: number;
      /** Leases that ended without a release, since the start. */
      readonly lost: number;
      readonly renewed: number;
    };

/** The options of a lease server, as JSON in its first argument. */
export interface LeaseServerOptions {
  readonly self: string;
  readonly ports: Readonly<Record<string, number>>;
  readonly leaseMs: number;
  readonly clockSkewMaxMs: number;
  readonly algorithm: LeaseAlgorithm;
}
