import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** The unit of times under /proc: a hundredth of a second on every Linux. */
const TICK_MS = 10;
/** Indexes of user and system time after the name, which is the second field and ends with the last parenthesis. */
const USER_PLACE = 11;
const SYSTEM_PLACE = 12;

/** @returns CPU that processes have used since their start in all threads, in milliseconds; NaN without /proc */
export function processCpuMs(processes: readonly Pick<ChildProcess, 'pid'>[]): number {
  let ticks = 0;
  for (const { pid } of processes) {
    if (process.platform !== 'linux') return Number.NaN;
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[USER_PLACE]) + Number(fields[SYSTEM_PLACE]);
  }
  return ticks * TICK_MS;
}
