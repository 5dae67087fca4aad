import type { LeaseMoment } from './lease-clock.ts';

/** The command is asked to end at `stop` and killed at `kill`, unless a later deadline arrives in time. */
export interface SupervisorDeadline {
  readonly stop: LeaseMoment;
  readonly kill: LeaseMoment;
}

/** From the keeper of a lease to the supervisor of its command. */
export type SupervisorOrder =
  | {
      readonly kind: 'run';
      readonly command: string;
      readonly args: readonly string[];
      readonly deadline: SupervisorDeadline;
    }
  | { readonly kind: 'extend'; readonly deadline: SupervisorDeadline }
  /** The lease is lost: the command is asked to end now, and killed at `kill` at the latest. */
  | { readonly kind: 'stop'; readonly kill: LeaseMoment }
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals };

/** From the supervisor to the keeper. */
export type SupervisorReport =
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | {
      readonly kind: 'ended';
      readonly code: number | null;
      readonly signal: NodeJS.Signals | null;
      /** It was ended because the lease was lost, or not extended in time. */
      readonly expired: boolean;
    };

export const SUPERVISOR_FD = 3;

export class SupervisorReader<Message> {
  #rest = '';

  push(text: string): Message[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.map((line) => JSON.parse(line) as Message);
  }
}

export function supervisorText(message: SupervisorOrder | SupervisorReport): string {
  return `${JSON.stringify(message)}\n`;
}
