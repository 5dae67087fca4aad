import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { KnownView } from './group.ts';
import type { LeaseEnvelope, LeaseMessage } from './messages.ts';

/** Largest note that travels with a claim, in UTF-16 code units. */
export const CLAIM_NOTE_MAX = 8192;

/**
 * What one client asks of a cell that belongs to clients, not to files. `session` is a number below 2^53 that the
 * client has drawn at random for this acquisition: whoever knows it is the holder.
 */
export type LeaseOrder =
  | {
      readonly kind: 'acquire';
      readonly session: number;
      /** Length wanted, in milliseconds: more than 0, at most `leaseMs`. */
      readonly spanMs: number;
      readonly note: string;
    }
  /** `note` null leaves the note as it is. */
  | {
      readonly kind: 'refresh';
      readonly session: number;
      readonly spanMs: number;
      readonly note: string | null;
    }
  | { readonly kind: 'release'; readonly session: number }
  | { readonly kind: 'look' };

/** A client's lease as a majority had it at one moment. */
export interface ClaimedLease {
  readonly session: number;
  /** Fencing token: larger for every later holder of the cell, the same for all refreshes of one holder. Below 2^53. */
  readonly token: number;
  /** How long it lasts from the moment the order was *received* here, in milliseconds, counted safely short. */
  readonly remainingMs: number;
  readonly note: string;
}

export type LeaseOutcome =
  /** `acquire`, `refresh`: the session holds the cell. */
  | { readonly kind: 'granted'; readonly lease: ClaimedLease }
  /** `acquire`: another session does, or did so recently that its clock may still say so. */
  | { readonly kind: 'taken'; readonly lease: ClaimedLease }
  /** `release`: given back. `refresh`, `release`: it is over, or another's (`lease`). `look`: nobody has it. */
  | { readonly kind: 'free'; readonly lease: ClaimedLease | null }
  /** `look`: this one has it. */
  | { readonly kind: 'seen'; readonly lease: ClaimedLease }
  /** No majority has answered in time. What was asked for may or may not have come about. */
  | { readonly kind: 'unknown' };

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
      /** The members change: a majority is one of `members` and one of `joint`. */
      readonly joint?: readonly ServerId[];
      /** Extra delay before competing, in milliseconds: larger where the own data is known to lag. */
      readonly handicapMs: number;
    }
  /** The connection to a peer is gone: until it is heard again it is not asked where others will do. */
  | { readonly kind: 'away'; readonly peer: ServerId }
  /** The members of the cell changed, as the layer above knows: older views are refused from now on. Opens nothing. */
  | ({ readonly kind: 'view'; readonly cell: CellId } & KnownView)
  /**
   * The holder `from` is about to give the lease back and has chosen this server, which has the cell open, to be the next:
   * it begins at that word, where others leave it to chance who begins. A wish and no promise.
   */
  | { readonly kind: 'succeed'; readonly cell: CellId; readonly from: ServerId }
  /** No longer wanted here: a held lease runs out unless `release` follows; no new attempt. */
  | { readonly kind: 'close'; readonly cell: CellId }
  /**
   * The replica has stopped acting as primary: give the lease back so that others need not wait for
   * its end. If the cell is still open here, this server lets others go first.
   */
  | { readonly kind: 'release'; readonly cell: CellId }
  /**
   * A client asks something of a cell, through this server, which need not be a member. Attempts follow each other
   * until there is an outcome or `deadlineMs` (lease clock) has come; `answered` says which, with the same `ask`.
   */
  | {
      readonly kind: 'ask';
      readonly ask: number;
      readonly cell: CellId;
      readonly view: number;
      readonly members: readonly ServerId[];
      /** The voters change: a majority is one of `members` and one of `joint`. */
      readonly joint?: readonly ServerId[];
      readonly order: LeaseOrder;
      readonly deadlineMs: number;
    }
  /**
   * The voters of all cells changed: this server has the view of that number on disk and goes by it from now on. Orders
   * that are under way end with an unknown outcome: their votes were given by the view before.
   */
  | { readonly kind: 'voters'; readonly view: number }
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
  | {
      readonly kind: 'held';
      readonly cell: CellId;
      readonly untilMs: number;
      /** Number of the view by which it was decided; 0 where it is only told again. */
      readonly view: number;
    }
  | { readonly kind: 'answered'; readonly ask: number; readonly outcome: LeaseOutcome }
  /** A claim on this cell was decided or given back, as this member heard: `LeaseHost.claim` says what stands now. */
  | { readonly kind: 'claimed'; readonly cell: CellId }
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

export function answeredAction(ask: number, outcome: LeaseOutcome): LeaseAction {
  return { kind: 'answered', ask, outcome };
}
