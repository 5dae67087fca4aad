import { type DestinationStream, type Logger, pino } from 'pino';
import type { ServerConfig } from './config.ts';

/**
 * The log of a server: one JSON object a line, to standard error unless told otherwise. Written
 * synchronously, so that the last words of a process that ends are not lost.
 */
export function createLogger(
  config: Pick<ServerConfig, 'id' | 'cluster' | 'logLevel'>,
  destination: DestinationStream = pino.destination({ dest: 2, sync: true }),
): Logger {
  return pino(
    {
      level: config.logLevel,
      base: { pid: process.pid, cluster: config.cluster, server: config.id },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
}

/** What ends a process when its own code has failed. */
export interface Mortal {
  on(event: 'uncaughtException' | 'unhandledRejection', listener: (error: unknown) => void): unknown;
  exit(code: number): void;
}

/**
 * Ends the process with exit code 1, and a line in the log, at the first error that nobody caught,
 * a failed assertion above all: restarting is safe, going on is not.
 *
 * @returns does the same with an error that was caught and must not be survived
 */
export function endOnFatal(log: Logger, mortal: Mortal = process): (error: unknown) => void {
  let ending = false;
  const fatal = (error: unknown): void => {
    // Ending may fail in turn; the first error is the one to report.
    if (ending) return;
    ending = true;
    log.fatal(
      { err: error instanceof Error ? error : new Error(String(error)) },
      'server ends: its own code failed',
    );
    mortal.exit(1);
  };
  mortal.on('uncaughtException', fatal);
  mortal.on('unhandledRejection', fatal);
  return fatal;
}
