import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { LeaseEnvelope, LeaseMessage } from './messages.ts';

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
   * is the holder it renews. While another server is known to hold it, nothing is sent. Repeating the
   * event is harmless and takes over a changed view or handicap.
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
  /**
   * The replica has stopped acting as primary: give the lease back so that others need not wait for
   * its end. If the cell is still open here, this server lets others go first.
   */
  | { readonly kind: 'release'; readonly cell: CellId }
  /** A frame of a peer, decoded. `from` is whom the transport authenticated. */
  | {
      readonly kind: 'frame';
      readonly from: ServerId;
      readonly envelope: LeaseEnvelope;
      readonly messages: readonly LeaseMessage[];
    }
  /** Own clock found out of bounds: take part in nothing until restarted. */
  | { readonly kind: 'clock-fault' }
  | { readonly kind: 'tick' };

/** Everything a core can report to have happened; drivers count them, simulations demand them. */
export const LEASE_MARKS = [
  /** The wait after the start is over. */
  'recovered',
  /** Messages were dropped unanswered, because this server is still silent after its start. */
  'kept-silent',
  /** This server acquired a lease. */
  'decided',
  /** This server renewed its lease. */
  'renewed',
  /** Another server's lease was found and written back. */
  'helped',
  /** Too many refused an attempt of ours. */
  'overruled',
  'timed-out',
  /** An attempt found a lease in its grace period and starts again after it. */
  'waited-out-grace',
  /** Own lease ended without renewal. */
  'expired',
  'released',
  'forgotten',
  'repeated',
  'refused-old',
  'refused-future',
  'refused-still-valid',
  'wrong-view',
  /** A peer runs with other timing or another protocol: none of its frames is heard. */
  'parameters-differ',
  'older-life',
  /** A peer's clock is certainly out of bounds: none of its frames is heard. */
  'clock-out-of-bounds',
  /** Own clock is wrong: this server is out until restarted. */
  'clock-fault',
] as const;

export type LeaseMark = (typeof LEASE_MARKS)[number];

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
      readonly incarnation: Incarnation;
      readonly untilMs: number;
    }
  /** `cell` is CATALOG_CELL where the mark is about the server as a whole. */
  | { readonly kind: 'trace'; readonly mark: LeaseMark; readonly cell: CellId; readonly detail: string };

/** What is known of a cell's lease at one moment. */
export interface LeaseView {
  readonly holder: ServerId | null;
  readonly own: boolean;
  readonly remainingMs: number;
}
