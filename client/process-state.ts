import { readFileSync } from 'node:fs';
import { isSystemError } from './failure.ts';

/** A process that has ended stays in the table until its parent asks for it, which the first process of a container may never do. */
export function isAlive(pid: number): boolean {
  return !['', 'Z'].includes(stateOf(pid));
}

/** By a signal, or by a debugger. */
export function isStopped(pid: number): boolean {
  return ['T', 't'].includes(stateOf(pid));
}

/** @returns the letter that `ps` shows, see proc_pid_stat(5); empty where there is no such process */
function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // After the name, which may have any character in it.
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
  } catch (error) {
    if (isSystemError(error) && (error.code === 'ENOENT' || error.code === 'ESRCH')) return '';
    throw error;
  }
}
