import { assert } from '../base/assert.ts';
import { ByteReader, ByteWriter, MalformedError } from '../wire/bytes.ts';
import type { RequestId } from './operation.ts';

/** Results kept per session. A client has at most half as many requests under way. */
export const SESSION_WINDOW = 128;
/** Sessions kept per subject; beyond it, the one with the oldest last operation is forgotten. */
export const SESSIONS_MAX = 64;

const FORM = 2;
/** Format without `answered`: everything in the window had a result. */
const FORM_WITHOUT_ANSWERED = 1;

interface Outcome {
  readonly number: number;
  readonly seq: number;
  readonly result: Uint8Array;
}

interface Session {
  readonly session: number;
  readonly numberMax: number;
  /** Numbers up to this one are refused: answered, or below the window. */
  readonly over: number;
  /** In the order of the sequence; all numbers are above `over`. */
  readonly outcomes: readonly Outcome[];
  readonly encoded: Uint8Array;
}

export type SessionLookup =
  /** Certainly new: it may be sequenced. */
  | { readonly kind: 'fresh' }
  | { readonly kind: 'known'; readonly seq: number; readonly result: Uint8Array }
  /** Answered before, or too old to tell whether it was done: refused, never executed. */
  | { readonly kind: 'expired' };

/**
 * Results of recent requests, so that a retry at any replica is answered, not repeated. Part of the replicated state:
 * it depends on the sequence of operations alone, byte for byte. Immutable: `with` returns a new table, so that each
 * operation under way has the table after it.
 */
export class SessionTable {
  static readonly EMPTY = new SessionTable(new Map(), 0);

  /** By the last operation of each session, oldest first. */
  readonly #sessions: ReadonlyMap<number, Session>;
  /** The largest `seq` of all forgotten sessions' operations. */
  readonly #forgottenSeqMax: number;
  #encoded: Uint8Array | null = null;

  private constructor(sessions: ReadonlyMap<number, Session>, forgottenSeqMax: number) {
    this.#sessions = sessions;
    this.#forgottenSeqMax = forgottenSeqMax;
  }

  /**
   * The known outcome of a request.
   *
   * An unknown session is new or forgotten. A forgotten one has an operation after its `since` and not after
   * `forgottenSeqMax`; so with `since ≥ forgottenSeqMax` it must be new. This needs a *committed* `since`: an
   * uncommitted number may be used again.
   */
  find(request: RequestId): SessionLookup {
    const session = this.#sessions.get(request.session);
    if (session === undefined) {
      return request.since < this.#forgottenSeqMax ? { kind: 'expired' } : { kind: 'fresh' };
    }
    if (request.number <= session.over) return { kind: 'expired' };
    const outcome = session.outcomes.find(({ number }) => number === request.number);
    return outcome === undefined
      ? { kind: 'fresh' }
      : { kind: 'known', seq: outcome.seq, result: outcome.result };
  }

  /** @returns the table after the request became operation `seq` with this result */
  with(request: RequestId, seq: number, result: Uint8Array): SessionTable {
    assert(seq >= 1, 'Operations are numbered from 1');
    const sessions = new Map(this.#sessions);
    const before = sessions.get(request.session);
    // Deleted and set again, to become the youngest in the map's order.
    sessions.delete(request.session);
    const numberMax = Math.max(before?.numberMax ?? 0, request.number);
    const over = Math.max(before?.over ?? 0, request.answered ?? 0, numberMax - SESSION_WINDOW);
    const kept = (before?.outcomes ?? []).filter(({ number }) => number > over);
    // A copy, as the result may be a view into a frame of megabytes (`slice` of a Buffer does not copy).
    const outcomes = [...kept, { number: request.number, seq, result: new Uint8Array(result) }];
    const encoded = encodeSession(request.session, numberMax, over, outcomes);
    sessions.set(request.session, { session: request.session, numberMax, over, outcomes, encoded });

    let forgottenSeqMax = this.#forgottenSeqMax;
    for (const [id, oldest] of sessions) {
      if (sessions.size <= SESSIONS_MAX) break;
      sessions.delete(id);
      forgottenSeqMax = Math.max(forgottenSeqMax, lastSeq(oldest));
    }
    return new SessionTable(sessions, forgottenSeqMax);
  }

  /** @returns the result of the last operation of all, if it is number `seq` and a request; else null */
  lastResult(seq: number): Uint8Array | null {
    const last = [...this.#sessions.values()].at(-1)?.outcomes.at(-1);
    return last?.seq === seq ? last.result : null;
  }

  get isEmpty(): boolean {
    return this.#sessions.size === 0 && this.#forgottenSeqMax === 0;
  }

  encode(): Uint8Array {
    if (this.#encoded === null) {
      let sizeBytes = 16;
      for (const session of this.#sessions.values()) sizeBytes += session.encoded.length;
      const writer = new ByteWriter(sizeBytes).uint8(FORM).uint53(this.#forgottenSeqMax);
      writer.uint8(this.#sessions.size);
      for (const session of this.#sessions.values()) writer.raw(session.encoded);
      this.#encoded = writer.finish();
    }
    return this.#encoded;
  }

  /** @param encoded from `encode`; empty for the empty table. @throws MalformedError */
  static decode(encoded: Uint8Array): SessionTable {
    if (encoded.length === 0) return SessionTable.EMPTY;
    const reader = new ByteReader(encoded);
    const form = reader.uint8();
    if (form !== FORM && form !== FORM_WITHOUT_ANSWERED)
      throw new MalformedError('A session table of an unknown form');
    const forgottenSeqMax = reader.uint53();
    const count = reader.uint8();
    if (count > SESSIONS_MAX) throw new MalformedError(`A table of ${count} sessions`);
    const sessions = new Map<number, Session>();
    let youngestSeq = 0;
    for (let index = 0; index < count; index++) {
      const session = readSession(reader, form);
      if (sessions.has(session.session)) throw new MalformedError('A session is there twice');
      const seq = lastSeq(session);
      if (seq <= youngestSeq) throw new MalformedError('Sessions are out of order');
      youngestSeq = seq;
      sessions.set(session.session, session);
    }
    reader.end();
    return new SessionTable(sessions, forgottenSeqMax);
  }
}

function lastSeq(session: Session): number {
  const last = session.outcomes.at(-1);
  assert(last !== undefined, 'A session is known by an operation');
  return last.seq;
}

function encodeSession(
  session: number,
  numberMax: number,
  over: number,
  outcomes: readonly Outcome[],
): Uint8Array {
  let sizeBytes = 18;
  for (const { result } of outcomes) sizeBytes += 13 + result.length;
  const writer = new ByteWriter(sizeBytes)
    .uint53(session)
    .uint53(numberMax)
    .uint8(numberMax - over);
  writer.uint8(outcomes.length);
  for (const { number, seq, result } of outcomes) {
    writer
      .uint8(numberMax - number)
      .uint53(seq)
      .bytes(result);
  }
  return writer.finish();
}

function readSession(reader: ByteReader, form: number): Session {
  const session = reader.uint53();
  const numberMax = reader.uint53();
  const over = form === FORM ? numberMax - reader.uint8() : Math.max(0, numberMax - SESSION_WINDOW);
  if (over < 0 || over < numberMax - SESSION_WINDOW || over >= numberMax)
    throw new MalformedError('A session that ends where it cannot');
  const count = reader.uint8();
  if (count === 0 || count > SESSION_WINDOW) throw new MalformedError(`A session of ${count} results`);
  const outcomes: Outcome[] = [];
  let seqBefore = 0;
  for (let index = 0; index < count; index++) {
    const number = numberMax - reader.uint8();
    const seq = reader.uint53();
    if (number <= over) throw new MalformedError('A number is too old');
    if (seq <= seqBefore) throw new MalformedError('Results are out of order');
    seqBefore = seq;
    outcomes.push({ number, seq, result: new Uint8Array(reader.bytes()) });
  }
  return { session, numberMax, over, outcomes, encoded: encodeSession(session, numberMax, over, outcomes) };
}
