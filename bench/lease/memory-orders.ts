import type { LeaseAlgorithm } from '../../lease/parameters.ts';

/** A lease frame between two hosts, which may be in different processes. */
export interface Parcel {
  readonly from: string;
  readonly to: string;
  readonly bytes: Uint8Array;
}

/** The benchmark's orders to a process of lease hosts; the benchmark also sets their clock. */
export type MemoryOrder =
  | {
      readonly kind: 'step';
      readonly nowMs: number;
      /** Cells that one of the hosts here acquires from now on. */
      readonly open: { readonly host: string; readonly first: number; readonly count: number } | null;
      readonly parcels: readonly Parcel[];
    }
  | { readonly kind: 'measure' };

export type MemoryReport =
  | {
      readonly kind: 'stepped';
      readonly parcels: readonly Parcel[];
      /** The number of cells that the hosts here hold. */
      readonly held: number;
      /** When one of them must be woken; null for never. */
      readonly wakeMs: number | null;
    }
  | {
      readonly kind: 'measured';
      readonly rssBytes: number;
      /** Heap in use, and buffers outside of it. */
      readonly liveBytes: number;
      readonly cells: number;
    };

export interface MemoryHostOptions {
  readonly hosts: readonly string[];
  readonly members: readonly string[];
  readonly leaseMs: number;
  readonly clockSkewMaxMs: number;
  readonly algorithm: LeaseAlgorithm;
  readonly startMs: number;
}
