import { hostname } from 'node:os';

/**
 * @param what the program that speaks, where it does so for many: `mount`
 * @returns who wants something, as it is told to others: nobody is asked to prove it
 */
export function whoami(what = `uid ${process.getuid?.() ?? '?'}`): string {
  return `${what} on ${hostname()}`;
}
