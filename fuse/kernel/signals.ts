import { readFileSync } from 'node:fs';
import { constants } from 'node:os';

const STOPPING = maskOf(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']);
const KILLED = maskOf(['SIGKILL']);

/** What is pending for a waiting thread: its end, a request to stop, or neither. */
export type Pending = 'killed' | 'stopping' | 'other';

export type Signals = (pid: number) => Pending;

/**
 * The kernel reports only that a signal arrived; most programs do not expect a timer or the end of a child to interrupt
 * a file operation. @returns 'stopping' if unknown
 */
export function pendingSignals(pid: number): Pending {
  if (pid === 0) return 'stopping';
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, 'latin1');
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ESRCH')) {
      return 'killed';
    }
    throw error;
  }
  return pendingIn(status);
}

/** As `pendingSignals`. @param status as in /proc/PID/status, see proc_pid_status(5) */
export function pendingIn(status: string): Pending {
  const mask = (name: string): bigint =>
    BigInt(`0x${new RegExp(`^${name}:\\s*([0-9a-f]+)$`, 'm').exec(status)?.[1] ?? '0'}`);
  const pending = (mask('SigPnd') | mask('ShdPnd')) & ~mask('SigBlk');
  // The kernel turns any signal that ends a process into a SIGKILL for each of its threads.
  if ((pending & KILLED) !== 0n) return 'killed';
  if ((pending & STOPPING & ~mask('SigCgt')) !== 0n) return 'killed';
  return (pending & STOPPING) !== 0n ? 'stopping' : 'other';
}

function maskOf(names: readonly NodeJS.Signals[]): bigint {
  return names.reduce((mask, name) => mask | (1n << BigInt(constants.signals[name] - 1)), 0n);
}
