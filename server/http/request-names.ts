import { assert } from '../../base/assert.ts';

/** The name of one command: a retry carries the same and is answered, not repeated. */
export interface RequestName {
  readonly session: number;
  readonly number: number;
  /** The catalog's `seq` when the session began, if the client knows it. */
  readonly since?: number | undefined;
}

/**
 * Distance between the oldest number still in use and the newest one given out, in one session.
 * Well within what the catalog's session table remembers, so that a slow request never falls out of it.
 */
const WINDOW_COUNT = 32;

interface Session {
  readonly id: number;
  readonly since: number | undefined;
  /** Numbers given out and not released; insertion order is numeric order. */
  readonly open: Set<number>;
  next: number;
}

/**
 * Gives names to the commands that this server issues on its own account. A request that hangs holds
 * its session back; the others go on in further sessions.
 */
export class RequestNames {
  readonly #random53: () => number;
  readonly #sessions: Session[] = [];

  /** A name begins a session: what is known of the catalog then is its `since`. */
  get mustBegin(): boolean {
    return !this.#sessions.some(hasRoom);
  }

  /** @param random53 draws a random integer from 1 to 2^53 − 1 */
  constructor(random53: () => number) {
    this.#random53 = random53;
  }

  /**
   * The name is in use until `release`.
   *
   * @param since an operation of the catalog that has happened, for a session that begins now; null where none is known
   */
  acquire(since: number | null): RequestName {
    const session = this.#sessions.find(hasRoom) ?? this.#begin(since);
    const name = { session: session.id, number: session.next, since: session.since };
    session.open.add(session.next++);
    return name;
  }

  /** @returns the number up to which all requests of the session of `name` have ended */
  answered({ session, number }: RequestName): number {
    const open = this.#sessions
      .find(({ id }) => id === session)
      ?.open.values()
      .next();
    return (open?.value ?? number) - 1;
  }

  release(name: RequestName): void {
    const session = this.#sessions.find(({ id }) => id === name.session);
    // A session that was given up is gone from the list before its last names are released.
    if (session === undefined) return;
    const wasOpen = session.open.delete(name.number);
    assert(wasOpen, 'A name is released once');
  }

  /** The other side no longer remembers this session: no new names come from it. */
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

function hasRoom(session: Session): boolean {
  const oldest = session.open.values().next();
  return oldest.done === true || session.next - oldest.value < WINDOW_COUNT;
}
