import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { LateErrorReport } from '../../wire/late-errors.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { EVENT_TEXTS } from './event-texts.ts';
import type { ServerEvents } from './server-events.ts';

/** Values of the metric's label; mounts of another release may report others. */
const OPERATIONS: ReadonlySet<string> = new Set(['unlink', 'create']);

export interface LateErrorParts {
  readonly self: ServerId;
  readonly log: Logger;
  readonly events: Pick<ServerEvents, 'add'>;
  readonly metrics: MetricsRegistry;
}

/** Turns mounts' reports of acknowledged operations that were dropped into events, a metric and log lines. */
export class LateErrorReports {
  readonly #parts: LateErrorParts;
  readonly #count: (operation: string) => void;

  constructor(parts: LateErrorParts) {
    this.#parts = parts;
    const counter = parts.metrics.counter(
      'leasehold_late_errors_total',
      'Acknowledged operations that mounts dropped, as reported to this server',
      ['operation'],
    );
    // Alerts need the series before the first error.
    for (const operation of [...OPERATIONS, 'other']) counter.add(0, { operation });
    this.#count = (operation) =>
      counter.add(1, { operation: OPERATIONS.has(operation) ? operation : 'other' });
  }

  report(error: LateErrorReport): void {
    const { self, log, events } = this.#parts;
    this.#count(error.operation);
    log.warn(error, 'a mount has dropped an acknowledged operation');
    events.add(EVENT_TEXTS.lateError(self, error));
  }
}
