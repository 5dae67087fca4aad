import { assert } from '../../base/assert.ts';

/** Identifies a command, or a write: a retry has the same numbers, and gets the first result, not another execution. */
export interface NumberedRequest {
  readonly session: number;
  readonly number: number;
  /** The catalog's `seq` when the session began, if known. */
  readonly since?: number | undefined;
}

/** Distance of the newest number from the oldest one in use: far below what the catalog remembers of a session. */
const WINDOW_COUNT = 32;

interface Session {
  readonly id: number;
  readonly since: number | undefined;
  readonly open: Set<number>;
  next: number;
}

/** Numbers this server's commands, or its writes of one file. If one hangs, others begin a further session. */
export class NumberedRequests {
  readonly #random53: () => number;
  readonly #sessions: Session[] = [];

  /** Whether the next `acquire` begins a session, whose `since` should be known. */
  get needsNewSession(): boolean {
    return !this.#sessions.some(hasFreeNumber);
  }

  constructor(random53: () => number) {
    this.#random53 = random53;
  }

  /** Returns a number, in use until `release`. `since`, for a new session: an executed operation of the catalog. */
  acquire(since: number | null): NumberedRequest {
    const session = this.#sessions.find(hasFreeNumber) ?? this.#begin(since);
    const request = { session: session.id, number: session.next, since: session.since };
    session.open.add(session.next++);
    return request;
  }

  /** Returns the number up to which all requests of the session have ended. */
  answered({ session, number }: NumberedRequest): number {
    const open = this.#sessions
      .find(({ id }) => id === session)
      ?.open.values()
      .next();
    return (open?.value ?? number) - 1;
  }

  release(request: NumberedRequest): void {
    const session = this.#sessions.find(({ id }) => id === request.session);
    // An abandoned session was removed before its last numbers are released.
    if (session === undefined) return;
    const wasOpen = session.open.delete(request.number);
    assert(wasOpen, 'A number is released once');
  }

  /** The catalog has forgotten this session: it gives no new numbers. */
  abandon(session: number): void {
    const index = this.#sessions.findIndex(({ id }) => id === session);
    if (index >= 0) this.#sessions.splice(index, 1);
  }

  #begin(since: number | null): Session {
    const session = { id: this.#random53(), since: since ?? undefined, open: new Set<number>(), next: 1 };
    this.#sessions.push(session);
    return session;
  }
}

function hasFreeNumber(session: Session): boolean {
  const oldest = session.open.values().next();
  return oldest.done === true || session.next - oldest.value < WINDOW_COUNT;
}
