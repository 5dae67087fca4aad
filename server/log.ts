import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { World } from '../base/world.ts';
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
 * Writes lines to a file descriptor as they come. A line that cannot be written is lost and ends neither a
 * request nor the server: the full disk that it tells about may be its own. Pino's own destination throws the
 * error at whoever logs, and waits without end for room when the line is a fatal one. Where the reader of a pipe stands still, as a
 * pager does, lines are lost, and counted, rather than that the server stands still with it.
 */
export function logDestination(fd: number, world: World): DestinationStream {
  const out = withoutWaiting(fd);
  let cut = false;
  let lost = 0;
  /** @returns whether all of it was written */
  const put = (line: string, retriesMax: number): boolean => {
    const bytes = Buffer.from(cut ? `\n${line}` : line);
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
      cut = false;
      return true;
    } catch {
      // Nobody is left to tell. What comes next begins a line of its own.
      cut ||= written > 0;
      return false;
    }
  };
  return {
    write(line) {
      if (lost > 0 && put(lostLine(lost, timeOf(world)), 0)) lost = 0;
      // Whoever has not read for so long is waited for no more until there is room.
      if (lost > 0 || !put(line, RETRIES_MAX)) lost += 1;
    },
  };
}

/** @returns a descriptor of the same pipe that refuses what does not fit instead of waiting; `fd` itself where it is none */
function withoutWaiting(fd: number): number {
  try {
    if (!fstatSync(fd).isFIFO()) return fd;
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    // Closed, or another user's: then it is as it is.
    if (errorCode(error) === '') throw error;
    return fd;
  }
}

function timeOf(world: World): string {
  return new Date(world.wallMs()).toISOString();
}

function lostLine(lines: number, time: string): string {
  const msg = 'lines of the log were lost: nobody read them, or there was no room';
  return `${JSON.stringify({ level: 'warn', time, lines, msg })}\n`;
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
