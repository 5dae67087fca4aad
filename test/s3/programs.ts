import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { promisify } from 'node:util';

const run = promisify(execFile);
const PATHS = ['/usr/local/bin', '/usr/bin', '/bin'];
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;

/** @returns the program's path; null if it is not installed. Only of the system: a user's wrappers may do anything. */
export function programPath(name: string): string | null {
  for (const folder of PATHS) {
    try {
      accessSync(`${folder}/${name}`, constants.X_OK);
      return `${folder}/${name}`;
    } catch {
      // It may be in the next folder.
    }
  }
  return null;
}

/** Runs a program. @returns its output @throws the error with both outputs if it fails */
export async function runProgram(
  path: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const options = {
    env: { PATH: PATHS.join(':'), HOME: '/nonexistent', ...env },
    maxBuffer: OUTPUT_BYTES_MAX,
  };
  const { stdout } = await run(path, argv, options);
  return stdout;
}
