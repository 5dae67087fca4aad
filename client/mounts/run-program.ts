import { execFile } from 'node:child_process';
import { formatDuration } from '../terminal/quantities.ts';

export type RunResult =
  | { readonly kind: 'done'; readonly output: string }
  | { readonly kind: 'missing' }
  | { readonly kind: 'failed'; readonly output: string };

const TIMEOUT_MS = 30_000;

/** Runs a program. `output` is what it printed, errors first. After `timeoutMs` it is killed and has failed. */
export function run(
  program: string,
  argv: readonly string[],
  timeoutMs: number = TIMEOUT_MS,
): Promise<RunResult> {
  return new Promise((resolve) => {
    execFile(program, [...argv], { timeout: timeoutMs, killSignal: 'SIGKILL' }, (error, stdout, stderr) => {
      if (error === null) resolve({ kind: 'done', output: `${stderr}${stdout}`.trim() });
      else if (error.code === 'ENOENT') resolve({ kind: 'missing' });
      else {
        const output = stderr || stdout || (error.killed === true ? tookLonger(timeoutMs) : error.message);
        resolve({ kind: 'failed', output: output.trim() });
      }
    });
  });
}

function tookLonger(limitMs: number): string {
  return `it took longer than ${formatDuration(limitMs)}`;
}
