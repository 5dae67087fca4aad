import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { KnownView } from './group.ts';
import type { LeaseEnvelope, LeaseMessage } from './messages.ts';

/** Largest note of a claim, in UTF-16 code units. */
export const CLAIM_NOTE_MAX = 8192;

/** A client's request to a cell. `session` is the holder's secret: drawn at random per acquisition, below 2^53. */
export type LeaseOrder =
  | {
      readonly kind: 'acquire';
      readonly session: number;
      /** Requested length in milliseconds: more than 0, at most `leaseMs`. */
      readonly spanMs: number;
      /** Of a new holder: a session that holds the cell keeps its note, as this order may be a late repetition. */
      readonly note: string;
    }
  | {
      readonly kind: 'refresh';
      readonly session: number;
      readonly spanMs: number;
      /** Null leaves the note as it is; else it replaces the note `before`, and no other. */
      readonly note: { readonly text: string; readonly before: string } | null;
    }
  | { readonly kind: 'release'; readonly session: number }
  | { readonly kind: 'query' };

export interface ClaimedLease {
  readonly session: number;
  /** Fencing token below 2^53: larger for every later holder of the cell, unchanged by refreshes. */
  readonly token: number;
  /** Milliseconds left from the moment this server *received* the order, rounded to the safe side. */
  readonly remainingMs: number;
  readonly note: string;
}

export type LeaseOutcome =
  | { readonly kind: 'granted'; readonly lease: ClaimedLease }
  /** `acquire`: another session holds the cell, or its lease is in grace. */
  | { readonly kind: 'taken'; readonly lease: ClaimedLease }
  /** `release`: released. `refresh`, `release`: over, or another session's (`lease`). `query`: no holder. */
  | { readonly kind: 'free'; readonly lease: ClaimedLease | null }
  | { readonly kind: 'seen'; readonly lease: ClaimedLease }
  /** `refresh`: nothing is done, as the note is another one than its `before`. */
  | { readonly kind: 'changed'; readonly lease: ClaimedLease }
  /** No majority answered in time; the order may or may not take effect. */
  | { readonly kind: 'unknown' };

export type LeaseEvent =
  /**
   * This server, one of `members`, competes for the cell, and renews while it holds it. It sends nothing while it
   * knows another holder. Repeating the event only updates the view and the handicap.
   */
  | {
      readonly kind: 'open';
      readonly cell: CellId;
      readonly view: number;
      readonly members: readonly ServerId[];
      /** Set while members change: every majority needs one of `members` and one of `joint`. */
      readonly joint?: readonly ServerId[];
      /** Extra delay before competing, in milliseconds; larger if this server's data is known to lag. */
      readonly handicapMs: number;
    }
  /** The connection to `peer` broke. Until its next frame it is asked only if the other voters are not enough. */
  | { readonly kind: 'disconnected'; readonly peer: ServerId }
  /** The layer above knows new members of the cell: requests of older views are refused. Does not open the cell. */
  | ({ readonly kind: 'view'; readonly cell: CellId } & KnownView)
  /** The holder `from` will release its lease and prefers this server as the next: it starts without a random delay. */
  | { readonly kind: 'succeed'; readonly cell: CellId; readonly from: ServerId }
  /** This server stops competing. A lease that it holds runs out unless `release` follows. */
  | { readonly kind: 'close'; readonly cell: CellId }
  /** The replica stopped acting as primary: release the lease. In an open cell other servers compete first. */
  | { readonly kind: 'release'; readonly cell: CellId }
  /** A client's order. This server need not be a member. `answered` has the outcome, at the latest at `deadlineMs`. */
  | {
      readonly kind: 'ask';
      /** Number of the order, chosen by the caller; `answered` repeats it. */
      readonly ask: number;
      readonly cell: CellId;
      readonly view: number;
      readonly members: readonly ServerId[];
      readonly joint?: readonly ServerId[];
      readonly order: LeaseOrder;
      readonly deadlineMs: number;
    }
  /** All cells vote by this view, now on disk. Orders under way end as unknown: their votes are older. */
  | { readonly kind: 'voters'; readonly view: number }
  /** A peer's decoded frame. The transport authenticated `from`. */
  | {
      readonly kind: 'frame';
      readonly from: ServerId;
      readonly envelope: LeaseEnvelope;
      readonly messages: readonly LeaseMessage[];
    }
  /** The local clock is out of bounds: take part in nothing until the restart. */
  | { readonly kind: 'clock-fault' }
  | { readonly kind: 'tick' };

/** All marks of `trace` actions. Drivers count them, and simulations require each. */
export const LEASE_MARKS = [
  /** The recovery wait ended. */
  'recovered',
  /** Messages were dropped without an answer during the recovery wait. */
  'kept-silent',
  'decided',
  'renewed',
  /** An attempt wrote back another server's lease. */
  'helped',
  /** Too many acceptors refused an attempt of this server. */
  'overruled',
  'timed-out',
  /** An attempt found a lease in grace and restarts after it. */
  'waited-out-grace',
  'expired',
  'released',
  'forgotten',
  'repeated',
  'refused-old',
  'refused-future',
  'refused-still-valid',
  'wrong-view',
  /** A peer has another timing or protocol: its frames are dropped. */
  'parameters-differ',
  'older-life',
  /** A peer's clock is certainly out of bounds: its frames are dropped. */
  'clock-out-of-bounds',
  'clock-fault',
] as const;

export type LeaseMark = (typeof LEASE_MARKS)[number];

export type LeaseAction =
  | { readonly kind: 'send'; readonly to: ServerId; readonly message: LeaseMessage }
  /** This server holds the cell's lease until `untilMs` (lease clock); repeated at each renewal. */
  | {
      readonly kind: 'held';
      readonly cell: CellId;
      readonly untilMs: number;
      /** Number of the view that decided the lease; 0 if the action only repeats an earlier one. */
      readonly view: number;
    }
  | { readonly kind: 'answered'; readonly ask: number; readonly outcome: LeaseOutcome }
  /** This member learned that a claim on the cell was decided or released; `LeaseHost.claim` returns the newest. */
  | { readonly kind: 'claimed'; readonly cell: CellId }
  | { readonly kind: 'lost'; readonly cell: CellId }
  /** Another server probably holds the lease; a hint for redirects only. */
  | {
      readonly kind: 'learned';
      readonly cell: CellId;
      readonly holder: ServerId;
      readonly incarnation: Incarnation;
      readonly untilMs: number;
    }
  /** `cell` is CATALOG_CELL if the mark concerns the whole server. */
  | { readonly kind: 'trace'; readonly mark: LeaseMark; readonly cell: CellId; readonly detail: string };

export interface LeaseView {
  readonly holder: ServerId | null;
  readonly own: boolean;
  readonly remainingMs: number;
}

export function answeredAction(ask: number, outcome: LeaseOutcome): LeaseAction {
  return { kind: 'answered', ask, outcome };
}
