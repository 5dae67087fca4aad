import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { LeaseMessage } from './messages.ts';

/** Timing that all servers of a cluster must share; a hash of it travels with every frame. In milliseconds. */
export interface LeaseTiming {
  /** Length of a lease, t_max in the papers. At least ten times `clockSkewMaxMs`. */
  readonly leaseMs: number;
  /** ε: any two lease clocks differ by at most this, at any moment. */
  readonly clockSkewMaxMs: number;
}

export interface LeaseConfig extends LeaseTiming {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
}

/** Events of the host: one per server process, with all its cells. */
export type LeaseEvent =
  /**
   * This server, one of `members`, wants the cell to have a holder and is willing to be it; while it
   * is the holder it renews. While another server is known to hold it, nothing is sent.
   */
  | {
      readonly kind: 'open';
      readonly cell: CellId;
      readonly view: number;
      readonly members: readonly ServerId[];
      /** Extra delay before competing, in milliseconds: larger where the own data is known to lag. */
      readonly handicapMs: number;
    }
  /** No longer wanted here: a held lease runs out unless `release` follows; no new attempt. */
  | { readonly kind: 'close'; readonly cell: CellId }
  /** The replica has stopped acting as primary: give the lease back so that others need not wait for its end. */
  | { readonly kind: 'release'; readonly cell: CellId }
  | { readonly kind: 'message'; readonly from: ServerId; readonly message: LeaseMessage }
  /** Own clock found out of bounds, or the outlier among the peers: take part in nothing until restarted. */
  | { readonly kind: 'clock-fault' }
  | { readonly kind: 'tick' };

export type LeaseAction =
  | { readonly kind: 'send'; readonly to: ServerId; readonly message: LeaseMessage }
  /** This server holds the cell's lease until `untilMs` (lease clock); sent again at each renewal. */
  | { readonly kind: 'held'; readonly cell: CellId; readonly untilMs: number }
  /** This server holds the lease no longer (expired, released, clock fault). */
  | { readonly kind: 'lost'; readonly cell: CellId }
  /** Another server holds it, as far as is known; a hint for redirects only. */
  | {
      readonly kind: 'learned';
      readonly cell: CellId;
      readonly holder: ServerId;
      readonly untilMs: number;
    }
  | { readonly kind: 'trace'; readonly mark: string; readonly cell: CellId; readonly detail: string };

/** What is known of a cell's lease at one moment. */
export interface LeaseView {
  readonly holder: ServerId | null;
  readonly own: boolean;
  readonly remainingMs: number;
}
