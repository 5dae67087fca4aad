import { ServiceError } from '../../base/errors.ts';
import type { AnsweredCommands } from '../../wire/catalog-api.ts';
import { FLUSH_SESSIONS_MAX } from '../../wire/request-limits.ts';
import { REQUEST_WINDOW } from '../transport/request-window.ts';

/** Answered commands are lost: all members of the catalog had a power failure before a flush. */
export class CommandsLost extends ServiceError {
  constructor() {
    const why = 'all servers of the catalog lost power before a flush';
    super('storage', `Acknowledged changes of names or attributes are lost: ${why}`);
  }
}

interface Unflushed {
  readonly numbers: Set<number>;
  newest: number;
}

export interface FlushOutcome {
  readonly areLost: boolean;
  /** To be named in another flush, which decides whether they are lost. */
  readonly again: readonly AnsweredCommands[];
}

/**
 * The commands that were answered to this client and that no flush has covered, by session.
 *
 * A power failure of all servers loses the end of the catalog's sequence. A number of a session is given out only when
 * the number `REQUEST_WINDOW` below it is answered, so all older commands precede the newest one in that sequence: it
 * suffices to ask for the latest `REQUEST_WINDOW` numbers. No session has commands from before and after a loss, @see
 * CommandSession.
 *
 * The catalog remembers twice as many numbers below the highest that it has executed (`SESSION_WINDOW`). `lastOf` keeps
 * what a flush names within them. While the flush is in flight newer commands may push them out; they are named then.
 */
export class UnflushedCommands {
  readonly #sessions = new Map<number, Unflushed>();
  readonly #lost = new Set<number>();

  get isEmpty(): boolean {
    return this.#sessions.size === 0;
  }

  /** Records an answered command until a flush covers it; at times drops all but the latest `REQUEST_WINDOW`. */
  answered(session: number, number: number): void {
    const known = this.#sessions.get(session);
    if (known === undefined) {
      this.#sessions.set(session, { numbers: new Set([number]), newest: number });
      return;
    }
    const { numbers } = known;
    numbers.add(number);
    known.newest = Math.max(known.newest, number);
    if (numbers.size < 2 * REQUEST_WINDOW) return;
    for (const one of numbers) if (one <= known.newest - REQUEST_WINDOW) numbers.delete(one);
  }

  /** @returns the largest number that may be sent: commands may be refused, or executed after their calls have ended */
  numberMaxOf(session: number): number {
    const known = this.#sessions.get(session);
    return known === undefined ? Number.POSITIVE_INFINITY : known.newest + REQUEST_WINDOW;
  }

  /** The catalog is removed: no flush can cover its commands. */
  removed(): void {
    this.#sessions.clear();
    this.#lost.clear();
  }

  /** @returns the commands that a flush names, divided into requests of at most `FLUSH_SESSIONS_MAX` sessions */
  pages(): readonly (readonly AnsweredCommands[])[] {
    const all = [...this.#sessions.keys()].map((session) => this.#latestOf(session) as AnsweredCommands);
    const pages = [all.splice(0, FLUSH_SESSIONS_MAX)];
    while (all.length > 0) pages.push(all.splice(0, FLUSH_SESSIONS_MAX));
    return pages;
  }

  #latestOf(session: number): AnsweredCommands | null {
    const known = this.#sessions.get(session);
    if (known === undefined) return null;
    const { numbers, newest } = known;
    return { session, numbers: [...numbers].filter((number) => number > newest - REQUEST_WINDOW) };
  }

  /**
   * Handles the answer of a flush that named `commands`. The catalog does not have `missing`: they are lost, unless
   * newer commands of their session pushed them out: such a session is flushed again.
   */
  flushed(commands: readonly AnsweredCommands[], missing: readonly AnsweredCommands[] = []): FlushOutcome {
    const again: AnsweredCommands[] = [];
    let areLost = false;
    for (const named of commands) {
      const { session } = named;
      const missingNumbers = missing.find((one) => one.session === session)?.numbers;
      const newer = missingNumbers === undefined ? null : this.#newerThan(named);
      if (newer !== null) {
        again.push(newer);
        continue;
      }
      // A command that another flush has covered meanwhile is no longer listed.
      const isListed = (number: number): boolean => this.#sessions.get(session)?.numbers.has(number) === true;
      if (missingNumbers?.some(isListed)) this.#lost.add(session);
      if (missingNumbers !== undefined && this.#lost.has(session)) areLost = true;
      this.#removeCovered(named);
    }
    return { areLost, again };
  }

  /** @returns the latest commands of a session if some are newer than those that a flush named */
  #newerThan({ session, numbers }: AnsweredCommands): AnsweredCommands | null {
    const now = this.#latestOf(session);
    return now !== null && newestOf(now.numbers) > newestOf(numbers) ? now : null;
  }

  #removeCovered({ session, numbers }: AnsweredCommands): void {
    const remaining = this.#sessions.get(session)?.numbers;
    if (remaining === undefined) return;
    const oldest = newestOf(numbers) - REQUEST_WINDOW;
    for (const number of remaining)
      if (numbers.includes(number) || number <= oldest) remaining.delete(number);
    if (remaining.size === 0) this.#sessions.delete(session);
  }
}

function newestOf(numbers: readonly number[]): number {
  return Math.max(...numbers);
}
