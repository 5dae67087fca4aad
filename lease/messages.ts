import type { CellId, Incarnation } from '../base/ids.ts';
import type { Ballot } from './ballot.ts';
import type { Lease } from './lease.ts';

/**
 * PaxosLease's messages are the same with other names: prepare and propose are READ and WRITE. There, a
 * lease on its way has a span instead of an end in `untilMs`: clocks of two servers have nothing in common.
 */

/** What the acceptor of a cell is asked and told. `view` numbers the set of servers that vote on it. */
interface OfCell {
  readonly cell: CellId;
  readonly view: number;
}

/** READ(k): promise me, and tell what was written. */
export interface ReadMessage extends OfCell {
  readonly kind: 'read';
  readonly ballot: Ballot;
}

/** What was written, without a promise: k only tells the answers of one attempt from those of another. */
export interface QueryMessage extends OfCell {
  readonly kind: 'query';
  readonly ballot: Ballot;
}

/** WRITE(k, λ). `acquires`: the proposer found the cell free, so nobody's valid lease may be in the way. */
export interface WriteMessage extends OfCell {
  readonly kind: 'write';
  readonly ballot: Ballot;
  readonly lease: Lease;
  readonly acquires: boolean;
}

/** To READ and to a query. */
export interface AckReadMessage extends OfCell {
  readonly kind: 'ack-read';
  readonly ballot: Ballot;
  readonly written: Ballot;
  /** Null where nothing was written, and in PaxosLease also where what was written is over. */
  readonly lease: Lease | null;
}

export interface AckWriteMessage extends OfCell {
  readonly kind: 'ack-write';
  readonly ballot: Ballot;
}

/** A larger ballot was promised or written: `standing`. */
export interface NackMessage extends OfCell {
  readonly kind: 'nack-read' | 'nack-write';
  readonly ballot: Ballot;
  readonly standing: Ballot;
}

/** The ballot or the lease is not of this time, or the lease it would replace is still valid here. */
export interface RefusedMessage extends OfCell {
  readonly kind: 'refused-read' | 'refused-write';
  readonly ballot: Ballot;
  readonly reason: 'old' | 'future' | 'still-valid';
}

/** The sender knows a newer view of this cell, `view`: whoever asked goes by an outdated one. */
export interface WrongViewMessage extends OfCell {
  readonly kind: 'wrong-view';
  readonly ballot: Ballot;
}

/** λ was decided with ballot k. A WRITE that asks for no answer, and a hint for redirects. */
export interface LearnMessage extends OfCell {
  readonly kind: 'learn';
  readonly ballot: Ballot;
  readonly lease: Lease;
}

/** The holder has stopped: what it wrote up to `uid` is void. */
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

/** What every frame says about its sender. */
export interface LeaseEnvelope {
  readonly incarnation: Incarnation;
  /** The sender's lease clock when its process started: orders the lives of one server. */
  readonly startedMs: number;
  /** Hash of timing and protocol version; frames with another one are refused. */
  readonly parametersHash: number;
  /** The sender's lease clock when it sent this. */
  readonly clockMs: number;
  /** The latest `clockMs` the sender has heard from the receiver's present life, or 0: bounds the offset from above. */
  readonly echoMs: number;
}
