import type { LeaseAlgorithm } from '../../lease/parameters.ts';

/** Orders of the benchmark to one lease server. Each is answered by one report of the kind that stands beside it. */
export type Order =
  /** → `acquired`: so many fresh leases at once, of cells `first`, `first` + 1, … */
  | {
      readonly kind: 'acquire';
      readonly first: number;
      readonly count: number;
      /** Servers that vote on each cell, this one among them. */
      readonly groupSize: number;
    }
  /** → `singles`: fresh leases of all servers' groups, each after the one before. */
  | { readonly kind: 'singles'; readonly first: number; readonly count: number }
  /** → `returned`: gives back all that it holds. */
  | { readonly kind: 'return' }
  /** → `usage` */
  | { readonly kind: 'usage' };

export type LeaseReport =
  | { readonly kind: 'ready' }
  /** On the clock that all processes of a machine share. */
  | { readonly kind: 'acquired'; readonly begunMs: number; readonly endedMs: number }
  | { readonly kind: 'singles'; readonly latenciesMs: readonly number[] }
  | { readonly kind: 'returned' }
  | {
      readonly kind: 'usage';
      /** Used since the start of the process, in all threads. */
      readonly cpuMs: number;
      readonly atMs: number;
      readonly held: number;
      /** Cells that it remembers, its own and others'. */
      readonly cells: number;
      /** Leases that ended without being given back, since the start. */
      readonly lost: number;
      readonly renewed: number;
    };

/** What a lease server is started with, as JSON in its first argument. */
export interface LeaseServerOptions {
  readonly self: string;
  readonly ports: Readonly<Record<string, number>>;
  readonly leaseMs: number;
  readonly clockSkewMaxMs: number;
  readonly algorithm: LeaseAlgorithm;
}
