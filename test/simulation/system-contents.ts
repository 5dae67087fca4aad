/**
 * What the replicas of a system simulation hold: a file, or the catalog. Whatever it is, it applies operations in
 * order, and shows what it holds; and it remembers the operations, for the observers.
 */

import type { Epoch } from '../../replica/epoch.ts';
import type { Operation, RequestId } from '../../replica/operation.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Seal } from '../../wire/file-operation.ts';

/** An operation as it was applied. */
export interface Logged {
  /** Names the client's request and says what was wanted; of a change of members, the view. */
  readonly request: string;
  readonly operation: Operation;
  /** In which it was sequenced. */
  readonly epoch: Epoch;
}

/** What one replica holds. */
export interface Contents {
  /** Every operation applied; the simulation's own knowledge. */
  readonly log: Logged[];
  /** Whether what is here may still change; see `FileOperation`. */
  readonly seal: Seal;
  apply(operation: Operation, epoch: Epoch, seq: number): void;
  copy(): Contents;
  /** The same for the same contents. */
  digest(): number;
  /** @returns what a client sees that looks at `what` */
  look(what: string): string;
  /** @returns the newest operation of the epoch with this counter that the answer shows; 0 if none */
  dependsOn(what: string, counter: number): number;
}

/** What a client wants to be changed, or to do to the file system; a text says all about it. */
export interface Wish {
  readonly kind: string;
}

/** A wish as an operation: what is applied everywhere, and what the client is told. */
export interface Resolved {
  /** Null where nothing is to be done: the answer is known already. */
  readonly body: Uint8Array | null;
  /** The client's answer, beside the request it is for. */
  readonly answer: string;
}

/** Resolves wishes at a primary, against everything that was sequenced before. */
export interface Orderer {
  /** @param nowMs what the primary's clock shows */
  resolve(request: RequestId, wish: Wish, nowMs: number): Resolved;
  noteOrdered(operation: Operation): void;
}

/** A kind of subject. */
export interface Subject {
  readonly appliesAtPrimary: 'first' | 'last';
  /** It remembers requests by itself, so that the core need not. */
  readonly keepsSessions: boolean;
  empty(): Contents;
  /** @param contents of a server that has become primary */
  orderer(contents: Contents): Orderer;
  /** Judges what clients saw. @returns what is wrong, or null */
  judge(history: History): string | null;
}

/** A change that a client asked for. Times are true; what came to no answer returns at Infinity. */
export interface ChangeEntry {
  readonly kind: 'change';
  readonly request: string;
  readonly wish: Wish;
  readonly answer: string | null;
  readonly callMs: number;
  readonly returnMs: number;
  /** Where the client was told that it stands; null where it was told nothing. */
  readonly seq: number | null;
}

/** What a client saw. */
export interface LookEntry {
  readonly kind: 'look';
  readonly what: string;
  readonly shown: string;
  readonly callMs: number;
  readonly returnMs: number;
}

export type HistoryEntry = ChangeEntry | LookEntry;

/** What happened between two losses of everything that was not synced; in most runs, the whole run. */
export interface History {
  readonly entries: readonly HistoryEntry[];
  /** The committed operations by position; those up to `baseSeq` were there when it began. */
  readonly sequence: readonly Logged[];
  readonly baseSeq: number;
}

const decoder = new TextDecoder();
const encoder = new TextEncoder();

// A request is known to the simulation by a text that says all about it. It travels in the result of
// the operation, and so through every replica.

export function requestKey(request: RequestId, wish: Wish): string {
  return `${request.session}.${request.number} ${JSON.stringify(wish)}`;
}

export function resultEncode(request: string, answer: string): Uint8Array {
  return encoder.encode(`${request}\n${answer}`);
}

export function resultAnswer(result: Uint8Array): string {
  const text = decoder.decode(result);
  return text.slice(text.indexOf('\n') + 1);
}

/** @returns the name of the request that became the operation */
export function operationRequest({ view, result }: Operation): string {
  if (view !== undefined) return `view ${view.number} of ${viewVoters(view).join()}`;
  const text = decoder.decode(result);
  return text.slice(0, text.indexOf('\n'));
}

const SEALS = { sealed: 'first seal', final: 'second seal' } as const;

/** @returns a name for one of the two operations that seal a file */
export function sealRequest(seal: keyof typeof SEALS, number: number): string {
  return `${SEALS[seal]} ${number}`;
}

/** @returns which seal the operation is; null where it is none */
export function sealOf({ request }: Logged): keyof typeof SEALS | null {
  if (request.startsWith(SEALS.sealed)) return 'sealed';
  return request.startsWith(SEALS.final) ? 'final' : null;
}
