import { hostname } from 'node:os';

/**
 * @param what the program, if it acts for many users: `mount`
 * @returns who makes a request, for other users to read; it is not authenticated
 */
export function whoami(what = `uid ${process.getuid?.() ?? '?'}`): string {
  return `${what} on ${hostname()}`;
}
