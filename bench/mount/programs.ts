import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** Runs a program to its end. @throws an error with its output if it fails */
export async function run(program: string, argv: readonly string[], cwd = '/'): Promise<string> {
  const { stdout } = await execute(program, [...argv], { cwd, maxBuffer: OUTPUT_BYTES_MAX });
  return stdout;
}

/** @returns whether the program is installed */
export async function isInstalled(program: string): Promise<boolean> {
  try {
    await run('sh', ['-c', 'command -v "$0"', program]);
    return true;
  } catch {
    // `command` fails for one reason only.
    return false;
  }
}

/** @returns the duration of `work`, in seconds */
export async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const beganMs = performance.now();
  await work();
  return (performance.now() - beganMs) / 1000;
}
