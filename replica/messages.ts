import type { Incarnation } from '../base/ids.ts';
import type { Epoch, Position } from './epoch.ts';
import type { Operation } from './operation.ts';
import type { Trust } from './record.ts';
import type { View } from './view.ts';

/** Stands for a replica's incarnation while none is known. */
export const INCARNATION_UNKNOWN = 0 as Incarnation;

/** Messages between a file's replicas. `epoch` is the primary's or candidate's; an answer repeats its request's. */
export type ReplicaMessageBody =
  /** Candidate: request to refuse every smaller epoch from now on, and to report the position. */
  | { readonly kind: 'prepare'; readonly epoch: Epoch; readonly view: View }
  /** Replica: promised. It stays at `position` until `epoch` is installed; `trust`: how reliable its store is. */
  | {
      readonly kind: 'promise';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly view: View;
      readonly trust: Trust;
    }
  /** Replica: refused, because it promised a larger epoch. */
  | { readonly kind: 'refuse'; readonly epoch: Epoch; readonly promised: Epoch }
  /**
   * Primary: install this epoch. A replica at `base` has all it needs; others fetch the state from the sender. `to`:
   * the incarnation that `base` was chosen for, or `INCARNATION_UNKNOWN`. A replica whose store is not intact ignores a
   * message for another incarnation.
   */
  | {
      readonly kind: 'install';
      readonly epoch: Epoch;
      readonly view: View;
      readonly base: Position;
      readonly to: Incarnation;
      /** Clients may be waiting for a majority. */
      readonly urgent: boolean;
    }
  /** Primary of the first epoch, which created the subject: begin it empty. Operations follow without an answer. */
  | { readonly kind: 'begin'; readonly epoch: Epoch; readonly view: View }
  /** Replica: the epoch and all operations up to `seq` are installed here. */
  | { readonly kind: 'installed'; readonly epoch: Epoch; readonly seq: number }
  | {
      readonly kind: 'write';
      readonly epoch: Epoch;
      readonly seq: number;
      readonly committedSeq: number;
      readonly operation: Operation;
    }
  /** Replica: all operations up to `seq` are applied here. */
  | { readonly kind: 'ack'; readonly epoch: Epoch; readonly seq: number }
  /** Replica: operations from `fromSeq` on are missing here. */
  | { readonly kind: 'resend'; readonly epoch: Epoch; readonly fromSeq: number }
  /** Replica: this epoch is not installed here. */
  | { readonly kind: 'need-state'; readonly epoch: Epoch; readonly position: Position }
  /** Primary: `committedSeq` is committed, `sentSeq` was sent. Promise nothing to others for `guardMs` from now. */
  | {
      readonly kind: 'heartbeat';
      readonly epoch: Epoch;
      readonly view: View;
      readonly committedSeq: number;
      readonly sentSeq: number;
      readonly beat: number;
      readonly guardMs: number;
    }
  /** Replica: no larger epoch was promised here, the guard of `beat` is kept, and this is the position. */
  | {
      readonly kind: 'heartbeat-ack';
      readonly epoch: Epoch;
      readonly position: Position;
      readonly beat: number;
      readonly trust: Trust;
    }
  | { readonly kind: 'commit'; readonly epoch: Epoch; readonly committedSeq: number }
  | { readonly kind: 'read-request'; readonly epoch: Epoch; readonly nonce: number }
  /** Primary: granted for `durationMs` from the request, once the replica has all operations up to `startSeq`. */
  | {
      readonly kind: 'read-grant';
      readonly epoch: Epoch;
      readonly nonce: number;
      readonly durationMs: number;
      readonly startSeq: number;
    }
  /** Primary: answer no more reads, nor by a grant still under way. */
  | { readonly kind: 'read-revoke'; readonly epoch: Epoch }
  | { readonly kind: 'read-returned'; readonly epoch: Epoch }
  /** Primary: no longer serves this epoch; its guard need not be kept. */
  | { readonly kind: 'yield'; readonly epoch: Epoch }
  /** Primary: make the operations up to `seq` survive power loss. */
  | { readonly kind: 'flush'; readonly epoch: Epoch; readonly seq: number }
  /** Replica: the operations up to `seq` survive power loss. */
  | { readonly kind: 'flushed'; readonly epoch: Epoch; readonly seq: number };

export interface ReplicaMessageHeader {
  readonly incarnation: Incarnation;
}

export type ReplicaMessage = ReplicaMessageHeader & ReplicaMessageBody;

/** Messages that only the primary or candidate of their epoch sends. */
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

export type Answer = Exclude<
  ReplicaMessage,
  PrimaryMessage | { readonly kind: 'refuse' | 'read-revoke' | 'yield' }
>;

/** @returns the sender's view, if the message has it */
export function statedView(message: ReplicaMessage): View | null {
  return message.kind === 'promise' ? message.view : messageView(message);
}

/** @returns the file's view in the message, for a new replica of it; null if it names no members */
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
