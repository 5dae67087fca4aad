import type { ServerId } from '../base/ids.ts';
import type { Epoch, Position } from '../replica/epoch.ts';
import type { Operation } from '../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../replica/record.ts';
import type { View } from '../replica/view.ts';

/** Asks the server that holds the wanted state; bound to one epoch, which the answerer must have promised. */
export type AskSource = (method: string, payload: Uint8Array) => Promise<Uint8Array>;

/** What makes a fetch faster, or slower. */
export interface FetchHelp {
  /** Further servers that may have some of the objects; each is asked only for `objects`. */
  readonly others?: readonly ServerId[];
  /** Asks one of the others. What it throws takes that server out of the fetch, no more. */
  readonly askOther?: (server: ServerId, method: string, payload: Uint8Array) => Promise<Uint8Array>;
  /** How fast objects are asked for; unlimited without one. */
  readonly pace?: { take(bytes: number): Promise<void> };
  /** An object that a source does not bring in this time is asked for elsewhere, in milliseconds. */
  readonly patienceMs?: number;
}

/** What was fetched and lies beside the own contents. */
export interface FetchedState {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  /** Objects of which no replica has the bytes. */
  readonly lost?: readonly number[];
}

/**
 * What a replica orders operations over: a file's objects, or the catalog. A subject applies an
 * operation, tells its state, fetches what differs from another's, and installs it.
 *
 * All methods reject with a `ServiceError` where the disk refuses; the replica then stops acknowledging.
 */
export interface Subject {
  readonly appliesAtPrimary: 'first' | 'last';

  /** @throws ServiceError `not-found` where the replica was removed meanwhile */
  record(): ReplicaRecord;

  /** How far the store can be believed to hold what the replica acknowledged. */
  trust(): Trust;

  /** promised := epoch; survives power loss when it resolves. */
  promise(epoch: Epoch): Promise<void>;

  /** Applies one operation, or its change of view, together with its position; survives kill −9 when it resolves. */
  apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): Promise<void>;

  /** All that is applied survives power loss when it resolves. */
  flush(): Promise<void>;

  /**
   * Fetches beside the own contents whatever differs from the source's state.
   *
   * @throws ServiceError where the source cannot be reached, or its state moved on under the fetch
   */
  fetch(ask: AskSource, help?: FetchHelp): Promise<FetchedState>;

  /** Takes over what was fetched with its view (or keeps both) and stamps the epoch; survives power loss. */
  install(epoch: Epoch, seq: number, sessions: Uint8Array, fetched: boolean): Promise<void>;

  /** Answers a fetch of another replica. Called only while `epoch` is promised here. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array>;

  /** The replica is primary no longer: what was begun for it is undone. */
  abandon(): void;
}
