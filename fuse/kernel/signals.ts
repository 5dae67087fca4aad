import { readFileSync } from 'node:fs';
import { constants } from 'node:os';

/** Signals with which somebody wants a program to stop what it does. */
const STOPPING = maskOf(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']);
const KILLED = maskOf(['SIGKILL']);

/** What is pending for a thread that waits: its end, the wish that it stops, or nothing that matters. */
export type Pending = 'killed' | 'stopping' | 'other';

/** @param pid of the calling thread, 0 where it is not known */
export type Signals = (pid: number) => Pending;

/**
 * The kernel says only that some signal arrived. Most programs do not expect a call on a file to be broken off
 * by a timer or the end of a child, so that the kind of signal matters.
 *
 * @param pid of the calling thread, 0 where it is not known
 * @returns 'stopping' where nothing can be found out
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

/** @param status as in /proc/PID/status, see proc_pid_status(5) */
export function pendingIn(status: string): Pending {
  const mask = (name: string): bigint =>
    BigInt(`0x${new RegExp(`^${name}:\\s*([0-9a-f]+)$`, 'm').exec(status)?.[1] ?? '0'}`);
  const pending = (mask('SigPnd') | mask('ShdPnd')) & ~mask('SigBlk');
  // What ends a process is made a SIGKILL for each of its threads.
  if ((pending & KILLED) !== 0n) return 'killed';
  if ((pending & STOPPING & ~mask('SigCgt')) !== 0n) return 'killed';
  return (pending & STOPPING) !== 0n ? 'stopping' : 'other';
}

function maskOf(names: readonly NodeJS.Signals[]): bigint {
  return names.reduce((mask, name) => mask | (1n << BigInt(constants.signals[name] - 1)), 0n);
}
