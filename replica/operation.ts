import type { View } from './view.ts';

/** Identifies a client's request for good; a retry has the same session, number and `since`. */
export interface RequestId {
  /** Random number below 2^53 that the client drew for this file. */
  readonly session: number;
  /** 1, 2, 3 … within the session; may arrive out of order within the window. */
  readonly number: number;
  /**
   * A sequence number *committed* when the session began (0 is always right). If a table has forgotten a session with
   * a later operation, it refuses unknown sessions. An uncommitted number may be reused, and a late retry would be
   * taken for a new request.
   */
  readonly since: number;
  /** Numbers up to this one are done for the client: results are dropped, late requests refused. Below `number`. */
  readonly answered?: number;
}

/** An element of a subject's sequence, already resolved: applying it gives the same state everywhere. */
export interface Operation {
  readonly request: RequestId | null;
  /** A change of view, which leaves the contents as they are. */
  readonly view?: View;
  /** Answer to the client; kept with the session for retries. */
  readonly result: Uint8Array;
  /** The change of the subject; opaque to the core. */
  readonly body: Uint8Array;
}
