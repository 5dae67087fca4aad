import type { CellId, Incarnation } from '../base/ids.ts';
import type { Ballot } from './ballot.ts';
import type { Lease } from './lease.ts';

/** In PaxosLease READ and WRITE are prepare and propose; a lease in a message has a span in `untilMs`, not an end. */

/** `view` numbers the set of servers that vote on the cell. */
interface OfCell {
  readonly cell: CellId;
  readonly view: number;
}

/** READ(k): request a promise, and the last write. */
export interface ReadMessage extends OfCell {
  readonly kind: 'read';
  readonly ballot: Ballot;
}

/** Requests the last write without a promise; k only distinguishes the answers of one attempt from another's. */
export interface QueryMessage extends OfCell {
  readonly kind: 'query';
  readonly ballot: Ballot;
}

/** WRITE(k, λ). `acquires`: the proposer found the cell free, so an acceptor with another's valid lease refuses. */
export interface WriteMessage extends OfCell {
  readonly kind: 'write';
  readonly ballot: Ballot;
  readonly lease: Lease;
  readonly acquires: boolean;
}

export interface AckReadMessage extends OfCell {
  readonly kind: 'ack-read';
  readonly ballot: Ballot;
  readonly written: Ballot;
  /** Null if nothing was written; in PaxosLease also if the written lease is over. */
  readonly lease: Lease | null;
}

export interface AckWriteMessage extends OfCell {
  readonly kind: 'ack-write';
  readonly ballot: Ballot;
}

/** The acceptor's largest promised or accepted ballot is larger than the request's; for a READ it may be equal. */
export interface NackMessage extends OfCell {
  readonly kind: 'nack-read' | 'nack-write';
  readonly ballot: Ballot;
  readonly largestBallot: Ballot;
}

/** The ballot or lease is too old or from the future, or the lease to be replaced is still valid here. */
export interface RefusedMessage extends OfCell {
  readonly kind: 'refused-read' | 'refused-write';
  readonly ballot: Ballot;
  readonly reason: 'old' | 'future' | 'still-valid';
}

/** The sender knows a newer view of the cell, `view`. */
export interface WrongViewMessage extends OfCell {
  readonly kind: 'wrong-view';
  readonly ballot: Ballot;
}

/** λ was decided with ballot k. Like a WRITE without an answer, and a hint for redirects. */
export interface LearnMessage extends OfCell {
  readonly kind: 'learn';
  readonly ballot: Ballot;
  readonly lease: Lease;
}

/** The holder stopped: its writes up to `uid` are void. */
export interface ReleaseMessage extends OfCell {
  readonly kind: 'release';
  readonly uid: Ballot;
}

export type LeaseMessage =
  | ReadMessage
  | QueryMessage
  | WriteMessage
  | AckReadMessage
  | AckWriteMessage
  | NackMessage
  | RefusedMessage
  | WrongViewMessage
  | LearnMessage
  | ReleaseMessage;

export interface LeaseEnvelope {
  readonly incarnation: Incarnation;
  /** The sender's lease clock at process start; orders the incarnations of a server. */
  readonly startedMs: number;
  /** Hash of timing and protocol version; a frame with another one is dropped. */
  readonly parametersHash: number;
  readonly clockMs: number;
  /** What the receiver's clock certainly showed when this was sent, or 0; bounds the clock offset from above. */
  readonly echoMs: number;
}
