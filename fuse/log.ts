import type { Log, LogLevel } from './transport.ts';

const LEVELS: readonly LogLevel[] = ['error', 'warn', 'info', 'debug'];

export function isLogLevel(text: string): text is LogLevel {
  return (LEVELS as readonly string[]).includes(text);
}

/** One line of JSON per message on the standard error, levels above `level` left out. */
export function stderrLog(level: LogLevel): Log {
  return (of, message, facts = {}) => {
    if (LEVELS.indexOf(of) > LEVELS.indexOf(level)) return;
    process.stderr.write(
      `${JSON.stringify({ time: new Date().toISOString(), level: of, message, ...facts })}\n`,
    );
  };
}
