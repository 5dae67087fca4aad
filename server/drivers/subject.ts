import type { ServerId } from '../../base/ids.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';

/** Asks the server that has the wanted state; bound to one epoch, which that server must have promised. */
export type AskSource = (method: string, payload: Uint8Array) => Promise<Uint8Array>;

export interface FetchHelp {
  /** Further servers that may have some of the objects; they are asked only for `objects`. */
  readonly others?: readonly ServerId[];
  /** An error only removes that server from the fetch. */
  readonly askOther?: (server: ServerId, method: string, payload: Uint8Array) => Promise<Uint8Array>;
  /** Rate limit of object requests; unlimited if absent. */
  readonly pace?: { take(bytes: number): Promise<void> };
  /** An object that a source does not send within this time is requested elsewhere, in milliseconds. */
  readonly patienceMs?: number;
}

/** Fetched state, stored beside the local contents. */
export interface FetchedState {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  readonly lost?: readonly number[];
}

/**
 * What a replica orders operations over: a file's objects, or the catalog. All methods reject with a `ServiceError` if
 * the disk refuses; the replica then stops acknowledging.
 */
export interface Subject {
  readonly appliesAtPrimary: 'first' | 'last';

  /** @throws ServiceError `not-found` if the replica was removed meanwhile */
  record(): ReplicaRecord;

  trust(): Trust;

  /** Sets `promised`; survives power loss when it resolves. */
  promise(epoch: Epoch): Promise<void>;

  /** Applies one operation, or its change of view, together with its position; survives kill −9 when it resolves. */
  apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): Promise<void>;

  /** Everything applied survives power loss when it resolves. */
  flush(): Promise<void>;

  /**
   * Fetches the difference to the source's state, and stores it beside the local contents.
   * @throws ServiceError if the source cannot be reached, or its state changed during the fetch
   */
  fetch(ask: AskSource, help?: FetchHelp): Promise<FetchedState>;

  /** Installs the fetched state with its view (or keeps both) and stamps the epoch; survives power loss. */
  install(epoch: Epoch, seq: number, sessions: Uint8Array, fetched: boolean): Promise<void>;

  /** Answers another replica's fetch. Called only while `epoch` is promised here. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array>;

  /** The replica is no longer primary: its unfinished work is undone. */
  abandon(): void;
}
