import type { LeaseMoment } from './lease-clock.ts';

/** When a command must go: it is asked to end at `stop` and killed at `kill`, unless later moments come in time. */
export interface GuardDeadline {
  readonly stop: LeaseMoment;
  readonly kill: LeaseMoment;
}

/** What the keeper of a lease tells the guard of its command. */
export type GuardOrder =
  | {
      readonly kind: 'run';
      readonly command: string;
      readonly args: readonly string[];
      readonly deadline: GuardDeadline;
    }
  | { readonly kind: 'extend'; readonly deadline: GuardDeadline }
  /** The lease is lost: the command is asked to end now, and killed at `kill` at the latest. */
  | { readonly kind: 'stop'; readonly kill: LeaseMoment }
  /** The user wants the command to end. */
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals };

/** What the guard tells the keeper. */
export type GuardReport =
  | { readonly kind: 'started'; readonly pid: number }
  /** There is no such command, or it cannot be run. */
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | {
      readonly kind: 'ended';
      readonly code: number | null;
      readonly signal: NodeJS.Signals | null;
      /** It was ended because the lease was lost, or not extended in time. */
      readonly expired: boolean;
    };

/** Where the two meet: an end of a pair of sockets, the file descriptor that the guard inherits. */
export const GUARD_FD = 3;

/** Reads messages, one JSON value a line, out of pieces of text. */
export class GuardReader<Message> {
  #rest = '';

  push(text: string): Message[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.map((line) => JSON.parse(line) as Message);
  }
}

export function guardText(message: GuardOrder | GuardReport): string {
  return `${JSON.stringify(message)}\n`;
}
