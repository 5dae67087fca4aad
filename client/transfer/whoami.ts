import { hostname } from 'node:os';

/** @returns who makes a request, for other users to read; it is not authenticated */
export function whoami(what = `uid ${process.getuid?.() ?? '?'}`): string {
  return `${what} on ${hostname()}`;
}
