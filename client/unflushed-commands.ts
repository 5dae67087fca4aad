import { ServiceError } from '../base/errors.ts';
import type { AnsweredCommands } from '../wire/catalog-api.ts';
import { FLUSH_SESSIONS_MAX } from '../wire/request-limits.ts';
import { REQUEST_WINDOW } from './request-window.ts';

/** Commands that were answered are gone: all members of the catalog have lost their power before a flush. */
export class CommandsLost extends ServiceError {
  constructor() {
    const why = 'changes of names or attributes that were acknowledged before are gone';
    super('storage', `The catalog is flushed, but ${why}: all its servers have lost their power since`);
  }
}

/**
 * The commands that were answered to this client and that no flush has covered, by their sessions.
 *
 * A loss of power of all servers takes the end of the catalog's sequence. A number of a session is given out only when the
 * number `REQUEST_WINDOW` below it is answered, so that all older commands are before the newest one in that sequence: it suffices
 * to ask for the latest `REQUEST_WINDOW` numbers. A session has none of both sides of a loss, @see CommandSession.
 */
export class UnflushedCommands {
  readonly #sessions = new Map<number, Set<number>>();

  get isEmpty(): boolean {
    return this.#sessions.size === 0;
  }

  answered(session: number, number: number): void {
    const numbers = this.#sessions.get(session) ?? new Set();
    this.#sessions.set(session, numbers.add(number));
    if (numbers.size < 2 * REQUEST_WINDOW) return;
    const oldest = Math.max(...numbers) - REQUEST_WINDOW;
    for (const known of numbers) if (known <= oldest) numbers.delete(known);
  }

  /** What a flush is to name, in requests of which each takes so many sessions. */
  pages(): readonly (readonly AnsweredCommands[])[] {
    const all = [...this.#sessions].map(([session, numbers]): AnsweredCommands => {
      const oldest = Math.max(...numbers) - REQUEST_WINDOW;
      return { session, numbers: [...numbers].filter((number) => number > oldest) };
    });
    const pages = [all.splice(0, FLUSH_SESSIONS_MAX)];
    while (all.length > 0) pages.push(all.splice(0, FLUSH_SESSIONS_MAX));
    return pages;
  }

  /** A flush has covered what it named, or has found that it is gone. */
  flushed(commands: readonly AnsweredCommands[]): void {
    for (const { session, numbers } of commands) {
      const left = this.#sessions.get(session);
      if (left === undefined) continue;
      const newest = Math.max(...numbers);
      for (const number of left)
        if (numbers.includes(number) || number <= newest - REQUEST_WINDOW) left.delete(number);
      if (left.size === 0) this.#sessions.delete(session);
    }
  }
}
