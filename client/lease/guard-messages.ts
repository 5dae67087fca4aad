import type { LeaseMoment } from './lease-clock.ts';

/** The command is asked to end at `stop` and killed at `kill`, unless a later deadline arrives in time. */
export interface GuardDeadline {
  readonly stop: LeaseMoment;
  readonly kill: LeaseMoment;
}

/** From the keeper of a lease to the guard of its command. */
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
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals };

/** From the guard to the keeper. */
export type GuardReport =
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | {
      readonly kind: 'ended';
      readonly code: number | null;
      readonly signal: NodeJS.Signals | null;
      /** It was ended because the lease was lost, or not extended in time. */
      readonly expired: boolean;
    };

export const GUARD_FD = 3;

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
