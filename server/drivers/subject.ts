import type { ServerId } from '../../base/ids.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';

/** Calls a fetch method of the server that has the wanted state. It answers only while it has promised the epoch. */
export type CallSource = (method: string, payload: Uint8Array) => Promise<Uint8Array>;

export interface FetchOptions {
  /** Further servers that may have some of the objects; they are asked only for `objects`. */
  readonly others?: readonly ServerId[];
  /** Calls a method of another server than the source; after an error the fetch does not ask that server again. */
  readonly callOther?: (server: ServerId, method: string, payload: Uint8Array) => Promise<Uint8Array>;
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
  /** An earlier state of the source's history, for `installPart`; the next fetch continues from there. */
  readonly isPart?: boolean;
}

/**
 * What a replica orders operations over: a file's objects, or the catalog. Methods fail with a `ServiceError` if the
 * disk does; the replica then fails, and acknowledges nothing more.
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
  fetch(ask: CallSource, help?: FetchOptions): Promise<FetchedState>;

  /** Installs the fetched state with its view (or keeps both) and stamps the epoch; survives power loss. */
  install(epoch: Epoch, seq: number, sessions: Uint8Array, fetched: boolean): Promise<void>;

  /**
   * Adds the fetched operations to the contents, and sets the position to that of the last one; survives power loss.
   * Of subjects whose `fetch` returns parts.
   */
  installPart?(position: Position): Promise<void>;

  /** Answers a call of another replica's `fetch`. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array>;

  /** Undoes unfinished work of a primary, and fetches in progress: the replica has another role now, or is unloaded. */
  abandon(): void;
}
