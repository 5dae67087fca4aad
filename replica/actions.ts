import type { Incarnation, ServerId } from '../base/ids.ts';
import type { Epoch, Position } from './epoch.ts';
import type { ReplicaMessage } from './messages.ts';
import type { Operation } from './operation.ts';
import type { View } from './view.ts';

/**
 * Events from the driver. Storage reports (`promised`, `applied`, `installed`) come in the order of their actions,
 * never before the stated durability, and never within the same step. `applied` counts for all operations up to
 * `seq`.
 */
export type ReplicaEvent =
  /** The local lease lasts until `untilMs` (lease clock); 0: none. The core itself notices that a lease ended. */
  | {
      readonly kind: 'lease';
      readonly untilMs: number;
      readonly view: number;
    }
  /** This process created the subject, known only here: with the lease it is primary. Sent once, while it is empty. */
  | { readonly kind: 'created' }
  /**
   * This process ended its own epoch in good order (`Replica.resumable`), or created the file with contents in it and
   * the catalog has its name. All operations up to this position are committed, none follows, and the process may
   * resume the epoch. Sent once per end.
   */
  | { readonly kind: 'ended'; readonly position: Position }
  /** After the first message of a peer's new incarnation, none of an earlier one is delivered. */
  | { readonly kind: 'message'; readonly from: ServerId; readonly message: ReplicaMessage }
  /** The transport reached `peer` again: what may be lost is sent again. */
  | { readonly kind: 'connected'; readonly peer: ServerId }
  /** `readGate` refused a read or made it wait: request the guard of a majority, or a read lease, for the next try. */
  | { readonly kind: 'read-wanted' }
  /**
   * Moves the replicas to these servers. Answer: `members-changed`, `refused` (`not-primary`, or `busy` with another
   * change) or `unknown`. If new members never start, a later call replaces this one.
   */
  | { readonly kind: 'change-members'; readonly ticket: number; readonly members: readonly ServerId[] }
  /** A client's operation; answered by `committed`, `refused` or `unknown` with the same ticket. */
  | { readonly kind: 'submit'; readonly ticket: number; readonly operation: Operation }
  /** Make all committed operations survive power loss of a majority. Answer: `flushed`, `unknown` or `refused`. */
  | { readonly kind: 'flush'; readonly ticket: number }
  /**
   * Orderly stop: finish what is in flight, then `stopped`. No reset begins during the present lease, so the driver
   * releases it after `stopped`.
   */
  | { readonly kind: 'stop' }
  | { readonly kind: 'promised'; readonly epoch: Epoch }
  | { readonly kind: 'applied'; readonly epoch: Epoch; readonly seq: number }
  /** `epoch` of the action; the other fields are the source's record, read at one instant with the contents. */
  | {
      readonly kind: 'state-fetched';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly view: View;
      readonly sessions: Uint8Array;
      /**
       * Only a part was fetched: an earlier state of the source's history, which continues the state here. The
       * position's epoch is the one that sequenced its last operation, so that its base is complete.
       */
      readonly isPart?: boolean;
    }
  | { readonly kind: 'state-failed'; readonly epoch: Epoch; readonly reason: string }
  | { readonly kind: 'installed'; readonly epoch: Epoch; readonly seq: number }
  /** The action `install-part` is done. */
  | { readonly kind: 'part-installed'; readonly position: Position }
  | { readonly kind: 'begun'; readonly epoch: Epoch }
  /** All operations up to `seq`, at least those applied at the action, survive power loss here. */
  | { readonly kind: 'flush-done'; readonly seq: number }
  | { readonly kind: 'storage-failed'; readonly reason: string }
  | { readonly kind: 'tick' };

/** `beginning`: orders a new subject until a majority has begun it. `resumed`: orders without a lease. */
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
  /** `deferrable`: probably nothing waits for it, so it may be sent a moment later. */
  | {
      readonly kind: 'send';
      readonly to: ServerId;
      readonly message: ReplicaMessage;
      readonly deferrable?: boolean;
    }
  /** Store `promised := epoch` so that it survives power loss; then event `promised`. */
  | { readonly kind: 'promise'; readonly epoch: Epoch }
  /**
   * Apply in this order, in one transaction with `seq`, `sessions` and the operation's view; it must survive kill −9,
   * then event `applied`. A view must survive power loss too: by an older one, other servers would vote than those
   * that have what follows.
   */
  | {
      readonly kind: 'apply';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly operation: Operation;
      readonly sessions: Uint8Array;
    }
  /**
   * Fetch what differs in `from`'s state, beside the local contents; then `state-fetched` or `state-failed`, in
   * bounded time. A later order discards this one. No `apply` comes between this and its `install`.
   */
  | {
      readonly kind: 'fetch-state';
      readonly epoch: Epoch;
      readonly from: ServerId;
      /** False if nothing waits for it, so that it may be slowed down. */
      readonly urgent: boolean;
    }
  /**
   * In one synced transaction: contents := the fetched ones (if `fetched`), installed := epoch, seq, view, sessions;
   * then event `installed`. The store is intact from then on.
   */
  | {
      readonly kind: 'install';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly view: View;
      readonly sessions: Uint8Array;
      readonly fetched: boolean;
    }
  /**
   * In one synced transaction: contents := the fetched part, installed := the position's epoch, with its seq, view and
   * sessions; then event `part-installed`. The store is trusted as much as before: it may still lack operations.
   */
  | {
      readonly kind: 'install-part';
      readonly position: Position;
      readonly view: View;
      readonly sessions: Uint8Array;
    }
  /** In one synced step, for an empty replica: promised := installed := epoch; then `begun`. */
  | { readonly kind: 'begin'; readonly epoch: Epoch; readonly view: View; readonly sessions: Uint8Array }
  | { readonly kind: 'flush-local' }
  | { readonly kind: 'committed'; readonly ticket: number; readonly seq: number; readonly result: Uint8Array }
  /** Certainly not done, and never will be by this attempt. */
  | {
      readonly kind: 'refused';
      readonly ticket: number;
      readonly reason: 'not-primary' | 'session-expired' | 'busy';
    }
  /** It may or may not have happened: the client retries with the same request id. */
  | { readonly kind: 'unknown'; readonly ticket: number }
  | { readonly kind: 'flushed'; readonly ticket: number }
  | { readonly kind: 'members-changed'; readonly ticket: number; readonly view: View }
  /** The lease must use this view's voters from now on. A primary has committed it, a backup has accepted it. */
  | { readonly kind: 'view-changed'; readonly view: View }
  /** The commit point moved, or reads may be possible again: waiting reads try again. */
  | { readonly kind: 'advanced'; readonly committedSeq: number }
  | { readonly kind: 'role-changed'; readonly role: Role; readonly epoch: Epoch }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'trace'; readonly mark: string; readonly detail: string };

export interface ReplicaConfig {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  /**
   * When the primary applies. `first`: when it sequences (files). `last`: after the others of a majority, because it
   * holds a transaction open until then (catalog). Its own copy counts once applied, and a commit needs it.
   */
  readonly appliesAtPrimary: 'first' | 'last';
  /** Period of the primary's heartbeats and of repeated messages, in milliseconds. */
  readonly heartbeatMs: number;
  /** Heartbeat period when all replicas have everything; a silent primary would not learn that it was replaced. */
  readonly quietHeartbeatMs: number;
  /** While quiet, this replica beats as its lease is extended: many replicas whose leases are extended together do. */
  readonly beatsWithLease: boolean;
  /** Longest read lease, in milliseconds; a write waits this long for a silent holder. */
  readonly readLeaseMs: number;
  /** No promise before this time (lease clock): a predecessor (`Replica.boundUntilMs`) may have kept a guard. */
  readonly startGuardUntilMs: number;
  /** Smallest counter of a candidate's epoch; smaller ones belong to servers that create subjects. */
  readonly candidatesFrom: number;
  /** The subject may start empty even if all its stores have the trust `lost`: a new catalog's have. */
  readonly mayStartEmptyIfLost: boolean;
  /** A replica without messages for this long is reported unreachable, in milliseconds. */
  readonly silentMs: number;
  /** Bytes of operations kept for lagging replicas; a replica further back fetches the state. */
  readonly retainedBytesMax: number;
}

export interface PeerStatus {
  readonly server: ServerId;
  readonly role: 'primary' | 'backup' | 'learner';
  readonly state: 'current' | 'catching-up' | 'unreachable';
  readonly seq: number;
  readonly lagOperations: number;
  /** Bytes of them; null if no longer kept, so that the peer must fetch the state. */
  readonly lagBytes: number | null;
  /** Age of the first operation that it is not known to have; 0 if it is current. */
  readonly behindMs: number;
}
