import { readFileSync } from 'node:fs';
import { processCpuMs } from '../lease/cpu.ts';
import type { Subject } from './subject.ts';

/** The cost of one measurement: CPU by process, in milliseconds, and requests to servers by kind; null: not known. */
export interface Cost {
  readonly cpuMs: Readonly<Record<string, number>>;
  readonly requests: Readonly<Record<string, number>> | null;
}

/** The key of the load, which runs in this process or in programs that it starts. */
export const PROGRAMS = 'programs';
/** The unit of times under /proc: a hundredth of a second on every Linux. */
const TICK_MS = 10;
/** Indexes of user and system time of ended children, after the name in parentheses. */
const CHILDREN_PLACES = [13, 14];

/** @returns the cost of `work` for the subject, and its result */
export async function costOf<Value>(
  subject: Subject,
  work: () => Promise<Value>,
): Promise<{ readonly value: Value; readonly cost: Cost }> {
  const requestsBefore = await subject.requests?.();
  const before = cpuOf(subject);
  const value = await work();
  const after = cpuOf(subject);
  const requestsAfter = await subject.requests?.();
  const cpuMs = Object.fromEntries([...after].map(([name, ms]) => [name, ms - (before.get(name) ?? 0)]));
  if (requestsBefore === undefined || requestsAfter === undefined)
    return { value, cost: { cpuMs, requests: null } };
  const more = [...requestsAfter].map(
    ([kind, count]) => [kind, count - (requestsBefore.get(kind) ?? 0)] as const,
  );
  const requests = Object.fromEntries(more.filter(([, count]) => count > 0));
  return { value, cost: { cpuMs, requests } };
}

export function sum(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((all, one) => all + one, 0);
}

/** @returns CPU that the subject's processes and the load have used so far, by process, in milliseconds */
function cpuOf(subject: Subject): Map<string, number> {
  const groups = Object.entries(subject.pids());
  const used = groups.map(([name, pids]) => [name, processCpuMs(pids.map((pid) => ({ pid })))] as const);
  const { user, system } = process.cpuUsage();
  return new Map([...used, [PROGRAMS, (user + system) / 1000 + childrenCpuMs()]]);
}

/** @returns CPU of programs that this process has waited for */
function childrenCpuMs(): number {
  if (process.platform !== 'linux') return 0;
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return CHILDREN_PLACES.reduce((ticks, place) => ticks + Number(fields[place]), 0) * TICK_MS;
}
