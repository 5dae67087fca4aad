import type { View } from './view.ts';

/** Names one request of one client for good; a retry carries the same three. */
export interface RequestId {
  /** Random number below 2^53 that the client drew for this file. */
  readonly session: number;
  /** 1, 2, 3 … within the session; may arrive out of order within the window. */
  readonly number: number;
  /**
   * A sequence number of the file that was *committed* when the session began (0 is always right).
   * A table that forgot a session with a later operation refuses the request, if it does not know
   * this session. An uncommitted number may be given out again, and a late retry then taken for new.
   */
  readonly since: number;
  /**
   * The client asks for no number up to this one any more: they were answered, or given up. Their results are dropped, and
   * whichever of them still comes is refused. Below `number`; absent where nothing is said of that.
   */
  readonly answered?: number;
}

/** An element of a subject's sequence, already resolved: applying it gives the same state everywhere. */
export interface Operation {
  readonly request: RequestId | null;
  /** A change of view, which leaves the subject's contents as they are; absent in all other operations. */
  readonly view?: View;
  /** What the client is told; kept with the session for retries. */
  readonly result: Uint8Array;
  /** What the subject applies; opaque to the core. */
  readonly body: Uint8Array;
}
