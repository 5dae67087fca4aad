/** The functions of `node:fs` as Node has them, in simulated processes, too; the guard replaces those of the module. */
import fs from 'node:fs';

type Call = (...args: unknown[]) => unknown;

/** Node's own functions call each other by the names of the module: calls from inside are real. */
let depth = 0;

export function isInside(): boolean {
  return depth > 0;
}

/** @returns what `run` does with files, none of which is simulated */
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

/** @returns the path of an open file, which has a name */
export function pathOf(fd: number): string {
  return realFiles.readlinkSync(`/proc/self/fd/${fd}`);
}

/** @returns the inode number of what has the name; null where nothing has */
export function inodeAt(path: string): number | null {
  return realFiles.lstatSync(path, { throwIfNoEntry: false })?.ino ?? null;
}

/** A file that is not of the disk of the process that asks for it. */
export class ForeignFile extends Error {}
