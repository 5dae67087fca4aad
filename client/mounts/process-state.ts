import { readFileSync } from 'node:fs';
import { isSystemError } from '../terminal/failure.ts';

/** Whether a process runs. A zombie does not: the first process of a container may never wait for its children. */
export function isAlive(pid: number): boolean {
  return !['', 'Z'].includes(stateOf(pid));
}

export function isStopped(pid: number): boolean {
  return ['T', 't'].includes(stateOf(pid));
}

/** @returns the state letter of proc_pid_stat(5); empty if there is no such process */
function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The state follows the name, which may contain any character.
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
  } catch (error) {
    if (isSystemError(error) && (error.code === 'ENOENT' || error.code === 'ESRCH')) return '';
    throw error;
  }
}
