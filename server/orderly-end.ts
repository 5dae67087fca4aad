import type { Surroundings } from './surroundings.ts';

/** Those that ask a process to end. Each comes once or more often: from a terminal, a service manager, and a launcher. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGQUIT', 'SIGUSR2'] as const;
/** An orderly end that takes longer than this is waited for no longer, in milliseconds. */
const END_MS_MAX = 15_000;

/**
 * Ends the process in good order at the first such signal, with exit code 0; the same signal again changes nothing.
 *
 * @param stop rejects where that is impossible
 */
export function endOnSignals({ world, log, fatal }: Surroundings, stop: () => Promise<void>): void {
  let isEnding = false;
  const end = (signal: NodeJS.Signals): void => {
    if (isEnding) return;
    isEnding = true;
    log.info({ signal }, 'server ends: leases are given back');
    world.after(END_MS_MAX, () => fatal(new Error(`It did not end in ${END_MS_MAX} ms`))).unref();
    stop().then(() => process.exit(0), fatal);
  };
  for (const signal of SIGNALS) process.on(signal, end);
}
