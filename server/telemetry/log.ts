import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { World } from '../../base/world.ts';
import type { ServerConfig } from '../config/config.ts';
import { errorCode } from '../storage/failures.ts';
import { traceFields } from './trace-context.ts';

/** Retries of a write to a full pipe, and the pause before each. */
const RETRIES_MAX = 10;
const RETRY_AFTER_MS = 10;

/** A server's log: one JSON object a line, to standard error by default. Synchronous, so that no last line is lost. */
export function createLogger(
  config: Pick<ServerConfig, 'id' | 'cluster' | 'logLevel'>,
  world: World,
  destination: DestinationStream = logDestination(2, world),
): Logger {
  return pino(
    {
      level: config.logLevel,
      base: { pid: process.pid, cluster: config.cluster, server: config.id },
      timestamp: () => `,"time":"${timeOf(world)}"`,
      mixin: traceFields,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
}

/**
 * Writes lines to a file descriptor. A line that cannot be written is lost, and fails neither a request nor the server:
 * it may be about the very disk that is full. Pino's own destination throws the error at the caller, and waits forever
 * for space for a fatal line. If the reader of a pipe stops, as a pager does, lines are dropped and counted; the server
 * does not wait.
 */
export function logDestination(fd: number, world: World): DestinationStream {
  const out = withoutWaiting(fd);
  let isLineCut = false;
  let droppedCount = 0;
  const tryWrite = (line: string, retriesMax: number): boolean => {
    const bytes = Buffer.from(isLineCut ? `\n${line}` : line);
    let written = 0;
    try {
      for (let retries = 0; written < bytes.length; ) {
        try {
          written += writeSync(out, bytes, written);
        } catch (error) {
          if (errorCode(error) !== 'EAGAIN' || retries >= retriesMax) throw error;
          retries += 1;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_AFTER_MS);
        }
      }
      isLineCut = false;
      return true;
    } catch {
      // There is no place to report this. The next line begins on a line of its own.
      isLineCut ||= written > 0;
      return false;
    }
  };
  return {
    write(line) {
      if (droppedCount > 0 && tryWrite(lostLine(droppedCount, timeOf(world)), 0)) droppedCount = 0;
      // A reader that was too slow is not waited for again until there is space.
      if (droppedCount > 0 || !tryWrite(line, RETRIES_MAX)) droppedCount += 1;
    },
  };
}

/** @returns a non-blocking descriptor of the same pipe; `fd` itself if it is no pipe */
function withoutWaiting(fd: number): number {
  try {
    if (!fstatSync(fd).isFIFO()) return fd;
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    // Closed, or another user's: it is used as it is.
    if (errorCode(error) === '') throw error;
    return fd;
  }
}

function timeOf(world: World): string {
  return new Date(world.wallMs()).toISOString();
}

function lostLine(lines: number, time: string): string {
  const msg = 'log lines were dropped: the reader of the log is too slow, or there is no space for it';
  return `${JSON.stringify({ level: 'warn', time, lines, msg })}\n`;
}

export interface EndableProcess {
  on(event: 'uncaughtException' | 'unhandledRejection', listener: (error: unknown) => void): unknown;
  exit(code: number): void;
}

/**
 * Ends the process with exit code 1 and a log line at the first uncaught error, in particular a failed assertion:
 * restarting is safe, continuing is not.
 * @returns a function that does the same with an error that was caught
 */
export function endOnFatal(log: Logger, mortal: EndableProcess = process): (error: unknown) => void {
  let ending = false;
  const fatal = (error: unknown): void => {
    // Ending may fail in turn; the first error is the one to report.
    if (ending) return;
    ending = true;
    log.fatal(
      { err: error instanceof Error ? error : new Error(String(error)) },
      'server stops: internal error; please report it',
    );
    mortal.exit(1);
  };
  mortal.on('uncaughtException', fatal);
  mortal.on('unhandledRejection', fatal);
  return fatal;
}
