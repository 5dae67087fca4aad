import type { World } from '../base/world.ts';
import { isForeseen } from './errno.ts';
import type { Log, LogLevel } from './transport.ts';

const LEVELS: readonly LogLevel[] = ['error', 'warn', 'info', 'debug'];

/** A log with one line of JSON per message, of `level` and of more severe levels. */
export function stderrLog(world: World, level: LogLevel): Log {
  return (severity, message, facts = {}) => {
    if (LEVELS.indexOf(severity) > LEVELS.indexOf(level)) return;
    process.stderr.write(
      `${JSON.stringify({ time: new Date(world.wallMs()).toISOString(), level: severity, message, ...facts })}\n`,
    );
  };
}

/** Logs an unexpected error, with its stack. Expected ones (`isForeseen`) are only returned to the caller. */
export function logUnforeseen(log: Log, error: unknown): void {
  if (isForeseen(error)) return;
  log('error', 'a call failed unexpectedly', {
    error: error instanceof Error ? (error.stack ?? error.message) : String(error),
  });
}
