/**
 * The functions of `node:fs` as Node has them, also for simulated processes; the guard replaces those of the module.
 */
import fs from 'node:fs';

type Call = (...args: unknown[]) => unknown;

/** Node's own functions call each other by the names of the module: calls from inside are real. */
let depth = 0;

export function isInside(): boolean {
  return depth > 0;
}

/** @returns the result of `run`, whose file operations are not simulated */
export function unguarded<Value>(run: () => Value): Value {
  depth++;
  try {
    return run();
  } finally {
    depth--;
  }
}

const synchronous = Object.entries(fs)
  .filter(([name]) => name.endsWith('Sync'))
  .map(([name, real]) => [name, (...args: unknown[]) => unguarded(() => (real as Call)(...args))]);

export const realFiles: Readonly<typeof fs> = { ...fs, ...Object.fromEntries(synchronous) };

/** @returns the path of an open file that has a name */
export function pathOf(fd: number): string {
  return realFiles.readlinkSync(`/proc/self/fd/${fd}`);
}

/** @returns the inode number of a path; null if it does not exist */
export function inodeAt(path: string): number | null {
  return realFiles.lstatSync(path, { throwIfNoEntry: false })?.ino ?? null;
}

/** A file that is not on the disk of the calling process. */
export class ForeignFile extends Error {}
