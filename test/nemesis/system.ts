/** Runs the programs of the operating system that inject faults. */
import { spawnSync } from 'node:child_process';

/**
 * Runs a program to its end.
 * @returns its output
 * @throws Error with its error output
 */
export function run(program: string, args: readonly string[], input = ''): string {
  const done = spawnSync(program, args, { encoding: 'utf8', input });
  if (done.error !== undefined) throw new Error(`Cannot run ${program}`, { cause: done.error });
  if (done.status !== 0) throw new Error(`${program} ${args.join(' ')}: ${done.stderr.trim()}`);
  return done.stdout;
}

/** @returns whether a program can be run here, and exits with 0 */
export function canRun(program: string, args: readonly string[]): boolean {
  const done = spawnSync(program, args, { stdio: 'ignore' });
  return done.error === undefined && done.status === 0;
}

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}
