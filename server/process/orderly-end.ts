import type { Surroundings } from './surroundings.ts';

/** Signals that ask a process to end; terminals, service managers and launchers may send each repeatedly. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGQUIT', 'SIGUSR2'] as const;
const END_MS_MAX = 15_000;

/** Ends the process in good order at the first of these signals, with exit code 0; later ones are ignored. */
export function endOnSignals({ world, log, fatal }: Surroundings, stop: () => Promise<void>): void {
  let isEnding = false;
  const end = (signal: NodeJS.Signals): void => {
    if (isEnding) return;
    isEnding = true;
    log.info({ signal }, 'server is shutting down: releasing leases');
    world.after(END_MS_MAX, () => fatal(new Error(`Shutdown took longer than ${END_MS_MAX} ms`))).unref();
    stop().then(() => process.exit(0), fatal);
  };
  for (const signal of SIGNALS) process.on(signal, end);
}
