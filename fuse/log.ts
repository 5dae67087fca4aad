import type { World } from '../base/world.ts';
import { isForeseen } from './errno.ts';
import type { Log, LogLevel } from './transport.ts';

const LEVELS: readonly LogLevel[] = ['error', 'warn', 'info', 'debug'];

/** One line of JSON per message on the standard error, levels above `level` left out. */
export function stderrLog(world: World, level: LogLevel): Log {
  return (of, message, facts = {}) => {
    if (LEVELS.indexOf(of) > LEVELS.indexOf(level)) return;
    process.stderr.write(
      `${JSON.stringify({ time: new Date(world.wallMs()).toISOString(), level: of, message, ...facts })}\n`,
    );
  };
}

/** An error of the mount itself, with where it was thrown; what was foreseen is the caller's to hear of. */
export function logUnforeseen(log: Log, error: unknown): void {
  if (isForeseen(error)) return;
  log('error', 'a call failed unexpectedly', {
    error: error instanceof Error ? (error.stack ?? error.message) : String(error),
  });
}
