import { ServiceError } from '../../base/errors.ts';
import type { ExchangeOutcome } from './exchange.ts';
import type { RequestWindow } from './request-window.ts';

/** A number of a session, under which a change is sent. */
export interface Ticket {
  readonly window: RequestWindow;
  readonly number: number;
  /** Called when the cluster has forgotten the session: the next ticket is of another one. */
  forgotten(): void;
}

/**
 * Sends a change under a number of a session, so that all attempts are one change. If the cluster has forgotten the
 * session, and has certainly not executed the change, it is sent once more in another session.
 */
export async function sendOnce<Value>(
  acquire: (isAnother: boolean) => Promise<Ticket>,
  send: (ticket: Ticket) => Promise<ExchangeOutcome<Value>>,
  failed: (error: unknown) => void = () => undefined,
): Promise<Value> {
  for (let attempt = 1; ; attempt++) {
    const ticket = await acquire(attempt > 1);
    try {
      const outcome = await send(ticket);
      if (outcome.kind === 'answered') return outcome.value;
      const { error, isOutcomeUnknown: doubtful } = outcome;
      if (error.remedy !== 'reopen') throw error;
      ticket.forgotten();
      if (doubtful) throw unknownOutcome(error);
      if (attempt === 2) throw error;
    } catch (error) {
      failed(error);
      throw error;
    } finally {
      ticket.window.release(ticket.number);
    }
  }
}

/** An attempt may have been executed; sent under another number, the change could be executed twice. */
export function unknownOutcome(cause: ServiceError): ServiceError {
  const why = `${cause.message}; it is unknown whether an earlier attempt was executed`;
  return new ServiceError('unknown', why, cause.details, { cause });
}
