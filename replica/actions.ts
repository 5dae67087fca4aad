import type { Incarnation, ServerId } from '../base/ids.ts';
import type { Epoch, Position } from './epoch.ts';
import type { ReplicaMessage } from './messages.ts';
import type { Operation } from './operation.ts';
import type { View } from './view.ts';

/**
 * What a driver tells the core. What is stored (`promised`, `applied`, `installed`) is told in the
 * order it was asked for, never before it has the stated durability, and never within the step that
 * asked for it. `applied` counts for all operations up to `seq`.
 */
export type ReplicaEvent =
  /**
   * Own lease: this server may act as primary until `untilMs` (lease clock). 0 when it may not. The
   * same event with a later end renews; the core itself notices an end that passed.
   */
  | {
      readonly kind: 'lease';
      readonly untilMs: number;
      /** Number of the view whose voters decided it; 0 where it was only told again. */
      readonly view: number;
    }
  /**
   * This process has made the subject, a moment ago, and alone knew of it until that was committed: with its lease it
   * leads it at once, by an epoch before all others. Told once, of a replica that is empty.
   */
  | { readonly kind: 'made' }
  /**
   * This process has ended an epoch of its own at `place`, in good order (`Replica.resumable`), or borne the subject by it, which has its name by
   * now; all up to there is committed, and nothing was ordered in it since. It may go on in it. Told once of each end.
   */
  | { readonly kind: 'ended'; readonly place: Position }
  /** Once a peer's new life was heard, nothing that a former life of it sent is brought any more. */
  | { readonly kind: 'message'; readonly from: ServerId; readonly message: ReplicaMessage }
  /** The transport reached `peer` again: what was lost meanwhile is to be sent again now. */
  | { readonly kind: 'connected'; readonly peer: ServerId }
  /** Somebody wants to read here, and the gate is not open: gets ready what would open it. */
  | { readonly kind: 'read-wanted' }
  /**
   * The replicas are to be at these servers; answered by `members-changed`, `refused` (`not-primary`, or `busy`
   * where another change is under way) or `unknown`. Where new members never come up, a later call replaces this one.
   */
  | { readonly kind: 'change-members'; readonly ticket: number; readonly members: readonly ServerId[] }
  /** A client's operation; answered by `committed`, `refused` or `unknown` with the same ticket. */
  | { readonly kind: 'submit'; readonly ticket: number; readonly operation: Operation }
  /**
   * Make everything committed so far survive power loss of a majority; answered by `flushed`,
   * `unknown`, or `refused` where this server is not the primary.
   */
  | { readonly kind: 'flush'; readonly ticket: number }
  /**
   * Orderly end of primaryship: finish what is in flight, then `stopped`; at once where there is
   * none. While the present lease lasts no new reset begins, so the driver gives it back after `stopped`.
   */
  | { readonly kind: 'stop' }
  | { readonly kind: 'promised'; readonly epoch: Epoch }
  | { readonly kind: 'applied'; readonly epoch: Epoch; readonly seq: number }
  /** `epoch` of the order; `position`, `view` and `sessions` of the other's record, read with the contents at one instant. */
  | {
      readonly kind: 'state-fetched';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly view: View;
      readonly sessions: Uint8Array;
    }
  | { readonly kind: 'state-failed'; readonly epoch: Epoch; readonly reason: string }
  | { readonly kind: 'installed'; readonly epoch: Epoch; readonly seq: number }
  | { readonly kind: 'begun'; readonly epoch: Epoch }
  /** All operations up to `seq`, at least those applied when it was ordered, survive power loss here. */
  | { readonly kind: 'flush-done'; readonly seq: number }
  /** The disk refused: this replica acknowledges nothing more and is primary no longer. */
  | { readonly kind: 'storage-failed'; readonly reason: string }
  | { readonly kind: 'tick' };

/**
 * `beginning`: orders the first operations of a subject that it has made; `active` once it is known that a majority has begun with it. `resumed`: orders,
 * without a lease, in an epoch that it had ended.
 */
export type Role =
  | 'backup'
  | 'preparing'
  | 'installing'
  | 'beginning'
  | 'resumed'
  | 'active'
  | 'stopping'
  | 'failed';

export type ReplicaAction =
  /** `deferrable`: nobody waits for it, as far as is known, so that it may leave a moment later, behind what was sent before. */
  | {
      readonly kind: 'send';
      readonly to: ServerId;
      readonly message: ReplicaMessage;
      readonly deferrable?: boolean;
    }
  /** Store `promised := epoch` so that it survives power loss; then event `promised`. */
  | { readonly kind: 'promise'; readonly epoch: Epoch }
  /**
   * Apply in this order, in one transaction with `seq`, `sessions` and the operation's view, if it has one, so
   * that it survives kill −9; then `applied`. With a view it survives loss of power, too: by an older one, others
   * would vote than have what follows.
   */
  | {
      readonly kind: 'apply';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly operation: Operation;
      readonly sessions: Uint8Array;
    }
  /**
   * Fetch, beside the own contents, what differs in `from`'s state; then `state-fetched` or
   * `state-failed`, in bounded time. A later order replaces this one: what was fetched for it is
   * dropped. No `apply` is ordered between this and its `install`.
   */
  | {
      readonly kind: 'fetch-state';
      readonly epoch: Epoch;
      readonly from: ServerId;
      /** False where nobody waits for it, so that it may be slowed down. */
      readonly urgent: boolean;
    }
  /**
   * In one synced transaction: contents := the fetched ones (if `fetched`), installed := epoch,
   * seq, view, sessions; then `installed`. The store is intact from then on.
   */
  | {
      readonly kind: 'install';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly view: View;
      readonly sessions: Uint8Array;
      readonly fetched: boolean;
    }
  /** In one synced step: promised := installed := epoch, of a replica that is empty; then `begun`. */
  | { readonly kind: 'begin'; readonly epoch: Epoch; readonly view: View; readonly sessions: Uint8Array }
  /** Make all that is applied survive power loss here; then `flush-done`. */
  | { readonly kind: 'flush-local' }
  | { readonly kind: 'committed'; readonly ticket: number; readonly seq: number; readonly result: Uint8Array }
  /** Certainly not done and never will be by this attempt. */
  | {
      readonly kind: 'refused';
      readonly ticket: number;
      readonly reason: 'not-primary' | 'session-expired' | 'busy';
    }
  /** It may or may not have happened: the client retries with the same request id. */
  | { readonly kind: 'unknown'; readonly ticket: number }
  | { readonly kind: 'flushed'; readonly ticket: number }
  /** The replicas are where `change-members` wanted them. */
  | { readonly kind: 'members-changed'; readonly ticket: number; readonly view: View }
  /** The lease is to be asked for by this view from now on. At a primary it is committed; a backup has accepted it. */
  | { readonly kind: 'view-changed'; readonly view: View }
  /** The commit point moved, or reads may be served again: waiting reads look again. */
  | { readonly kind: 'advanced'; readonly committedSeq: number }
  | { readonly kind: 'role-changed'; readonly role: Role; readonly epoch: Epoch }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'trace'; readonly mark: string; readonly detail: string };

/** How a subject takes part in the order of writes at its primary. */
export interface ReplicaConfig {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  /**
   * `first`: the primary applies when it sequences (files). `last`: the primary applies once the
   * others of a majority have it, because it holds a transaction open until then (catalog). Either
   * way its own copy counts only once applied, and a commit needs it.
   */
  readonly appliesAtPrimary: 'first' | 'last';
  /** Period of the primary's heartbeats and of repeated messages, in milliseconds. */
  readonly heartbeatMs: number;
  /**
   * Period of heartbeats while every replica has everything and nothing is under way. They still go
   * out: a primary that never spoke would never learn that it was replaced.
   */
  readonly quietHeartbeatMs: number;
  /** A read lease lasts this long at the most, in milliseconds; a write waits as long for a holder that is silent. */
  readonly readLeaseMs: number;
  /**
   * No candidate is promised anything before this moment of the lease clock: an earlier life, or an earlier replica in
   * this life (`Replica.boundUntilMs`), may have answered a primary's heartbeat just before it ended.
   */
  readonly startGuardUntilMs: number;
  /** The smallest counter of an epoch that promises are asked for; smaller ones are for who has made the subject. */
  readonly candidatesFrom: number;
  /** A new subject begins with replicas of which no store is known to be the first (the catalog). */
  readonly mayBeginLost: boolean;
  /** A silent replica is reported unreachable after this long, in milliseconds. */
  readonly silentMs: number;
  /** Operations kept for replicas that lag, in bytes; further back they fetch the state instead. */
  readonly retainedBytesMax: number;
}

/** A replica as its primary sees it. */
export interface PeerStatus {
  readonly server: ServerId;
  readonly role: 'primary' | 'backup' | 'learner';
  readonly state: 'current' | 'catching-up' | 'unreachable';
  /** The last operation it is known to have. */
  readonly seq: number;
  /** Committed operations that it is not known to have. */
  readonly lagOperations: number;
  /** Bytes of them; null where they are kept no longer, so that it is brought up by comparing contents. */
  readonly lagBytes: number | null;
  /** How old the first operation is that it is not known to have; 0 where it is current. */
  readonly behindMs: number;
}
