import { writeSync } from 'node:fs';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { ServerConfig } from './config.ts';
import { errorCode } from './storage/failures.ts';
import { traceFields } from './trace-context.ts';

/** How often, and after how many milliseconds, a line is offered again to a pipe whose reader is behind. */
const RETRIES_MAX = 10;
const RETRY_AFTER_MS = 10;

/**
 * The log of a server: one JSON object a line, to standard error unless told otherwise. Written
 * synchronously, so that the last words of a process that ends are not lost.
 */
export function createLogger(
  config: Pick<ServerConfig, 'id' | 'cluster' | 'logLevel'>,
  destination: DestinationStream = logDestination(2),
): Logger {
  return pino(
    {
      level: config.logLevel,
      base: { pid: process.pid, cluster: config.cluster, server: config.id },
      timestamp: pino.stdTimeFunctions.isoTime,
      mixin: traceFields,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
}

/**
 * Writes lines to a file descriptor as they come. A line that cannot be written is lost and ends neither a
 * request nor the server: the full disk that it tells about may be its own. Pino's own destination throws the
 * error at whoever logs, and waits without end for room when the line is a fatal one.
 */
export function logDestination(fd: number): DestinationStream {
  let cut = false;
  return {
    write(line) {
      const bytes = Buffer.from(cut ? `\n${line}` : line);
      let written = 0;
      try {
        for (let retries = 0; written < bytes.length; ) {
          try {
            written += writeSync(fd, bytes, written);
          } catch (error) {
            if (errorCode(error) !== 'EAGAIN' || retries === RETRIES_MAX) throw error;
            retries += 1;
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_AFTER_MS);
          }
        }
        cut = false;
      } catch {
        // Nobody is left to tell. What comes next begins a line of its own.
        cut ||= written > 0;
      }
    },
  };
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
