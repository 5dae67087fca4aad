import type { Incarnation } from '../base/ids.ts';
import type { Epoch, Position } from './epoch.ts';
import type { Operation } from './operation.ts';
import type { Trust } from './record.ts';
import type { View } from './view.ts';

/** In the place of a replica's life where none was heard of. */
export const LIFE_UNKNOWN = 0 as Incarnation;

/**
 * What the replicas of one file tell each other. `epoch` is always the epoch the message belongs
 * to: of the sender where it is (or wants to be) primary, of the question where it is an answer.
 * An answer counts only in the epoch it was asked in.
 */
export type ReplicaMessageBody =
  /** Candidate: will you refuse every smaller epoch from now on, and where do you stand? */
  | { readonly kind: 'prepare'; readonly epoch: Epoch; readonly view: View }
  /** Replica: I will; I stand at `position`, and stay there until `epoch` is installed; so far I can be believed. */
  | {
      readonly kind: 'promise';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly view: View;
      readonly trust: Trust;
    }
  /** Replica: I have promised a larger epoch. */
  | { readonly kind: 'refuse'; readonly epoch: Epoch; readonly promised: Epoch }
  /**
   * Primary: be a replica of this epoch. Who stands at `base` already has all it needs; who does
   * not fetches the state from me. `to`: the life of the replica that this was chosen for, or
   * `LIFE_UNKNOWN`; a replica whose store is in doubt takes nothing that an earlier life of it was meant to have.
   */
  | {
      readonly kind: 'install';
      readonly epoch: Epoch;
      readonly view: View;
      readonly base: Position;
      readonly to: Incarnation;
      /** Clients may be waiting for a majority to have it. */
      readonly urgent: boolean;
    }
  /**
   * Primary of the first epoch, which has made the subject: be a replica of it, which begins empty. Operations follow
   * without waiting for an answer.
   */
  | { readonly kind: 'begin'; readonly epoch: Epoch; readonly view: View }
  /** Replica: the epoch is installed here, and all operations up to `seq`. */
  | { readonly kind: 'installed'; readonly epoch: Epoch; readonly seq: number }
  /** Primary: operation number `seq` of the sequence. */
  | {
      readonly kind: 'write';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly committedSeq: number;
      readonly operation: Operation;
    }
  /** Replica: all operations up to `seq` are applied here. */
  | { readonly kind: 'ack'; readonly epoch: Epoch; readonly seq: number }
  /** Replica: I lack the operations from `fromSeq` on. */
  | { readonly kind: 'resend'; readonly epoch: Epoch; readonly fromSeq: number }
  /** Replica: this epoch is not installed here. */
  | { readonly kind: 'need-state'; readonly epoch: Epoch; readonly position: Position }
  /**
   * Primary: I am here; this much is committed; you were sent the operations up to `sentSeq`. Promise nothing
   * to anybody else for `guardMs` from when you hear this.
   */
  | {
      readonly kind: 'heartbeat';
      readonly epoch: Epoch;
      readonly view: View;
      readonly committedSeq: number;
      readonly sentSeq: number;
      /** Number of the heartbeat in its epoch. */
      readonly beat: number;
      readonly guardMs: number;
    }
  /** Replica: no larger epoch was promised here, I keep the guard of `beat`, and this is where I stand. */
  | {
      readonly kind: 'heartbeat-ack';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly beat: number;
      readonly trust: Trust;
    }
  /** Primary: all operations up to `committedSeq` are committed. */
  | { readonly kind: 'commit'; readonly epoch: Epoch; readonly committedSeq: number }
  /** Replica: let me answer reads for a while. */
  | { readonly kind: 'read-request'; readonly epoch: Epoch; readonly nonce: number }
  /** Primary: do, for `durationMs` from when you asked, once you have all operations up to `startSeq`. */
  | {
      readonly kind: 'read-grant';
      readonly epoch: Epoch;
      readonly nonce: number;
      readonly durationMs: number;
      readonly startSeq: number;
    }
  /** Primary: answer no more reads, also by no grant that is still under way. */
  | { readonly kind: 'read-revoke'; readonly epoch: Epoch }
  /** Replica: I answer none. */
  | { readonly kind: 'read-returned'; readonly epoch: Epoch }
  /** Primary: I serve this epoch no longer; nobody need wait for its guard. */
  | { readonly kind: 'yield'; readonly epoch: Epoch }
  /** Primary: make the operations up to `seq` survive loss of power. */
  | { readonly kind: 'flush'; readonly epoch: Epoch; readonly seq: number }
  /** Replica: those up to `seq` do. */
  | { readonly kind: 'flushed'; readonly epoch: Epoch; readonly seq: number };

/** What every message says about its sender. */
export interface ReplicaMessageHeader {
  /** Which life of the sender this is. */
  readonly incarnation: Incarnation;
}

export type ReplicaMessage = ReplicaMessageHeader & ReplicaMessageBody;

/** Messages that only the (would-be) primary of their epoch sends. */
export type PrimaryMessage = Extract<
  ReplicaMessage,
  {
    readonly kind:
      | 'prepare'
      | 'install'
      | 'begin'
      | 'write'
      | 'heartbeat'
      | 'flush'
      | 'commit'
      | 'read-grant';
  }
>;

/** What replicas answer to a candidate or primary. */
export type Answer = Exclude<
  ReplicaMessage,
  PrimaryMessage | { readonly kind: 'refuse' | 'read-revoke' | 'yield' }
>;

/** @returns the view that the sender goes by, where the message says it */
export function statedView(message: ReplicaMessage): View | null {
  return message.kind === 'promise' ? message.view : messageView(message);
}

/**
 * @returns the view of the file as the message tells it, with which a server that has no replica
 *   of the file yet makes an empty one; null where the message does not name the members
 */
export function messageView(message: ReplicaMessage): View | null {
  switch (message.kind) {
    case 'prepare':
    case 'install':
    case 'begin':
    case 'heartbeat':
      return message.view;
    default:
      return null;
  }
}
